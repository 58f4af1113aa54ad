//! The benches are in `benches/`; this library is empty.
