//! polyserve
