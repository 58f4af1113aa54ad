//! The commands, one a module.

pub(crate) mod data;
pub(crate) mod list;
pub(crate) mod load;
pub(crate) mod serve;
pub(crate) mod stress;
