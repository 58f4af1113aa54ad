//! Conversions between the types of the `http` crate, which hyper and tower use, and this project's.

pub(crate) mod head;
pub(crate) mod reply;
