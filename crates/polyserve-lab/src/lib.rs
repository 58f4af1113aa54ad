//! polyserve-lab
