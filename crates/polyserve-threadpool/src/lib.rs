//! polyserve-threadpool
