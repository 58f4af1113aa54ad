//! Strategies that are wrong in one way each. The kit's own tests show, for every one of them, which named property
//! catches it; a property that catches nothing here would prove nothing elsewhere.

pub mod executors;
pub mod repos;
pub mod servers;
