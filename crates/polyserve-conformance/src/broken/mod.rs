//! Strategies with one flaw each. The kit's own tests show which named property catches each flaw. A property that
//! catches no flaw here would show nothing elsewhere.

pub mod executors;
pub mod repos;
pub mod servers;
