//! polyserve-memory
