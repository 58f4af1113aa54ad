//! Between the types of the `http` crate, which hyper and tower speak, and this project's own.

pub(crate) mod head;
pub(crate) mod reply;
