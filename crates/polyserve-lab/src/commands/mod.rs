//! The commands, one a module.

pub(crate) mod compare;
pub(crate) mod data;
pub(crate) mod entrants;
pub(crate) mod list;
pub(crate) mod load;
pub(crate) mod serve;
pub(crate) mod stop;
pub(crate) mod stress;
pub(crate) mod trial;
pub(crate) mod workload;
