//! Models: code of this crate that a model checker runs in every order that matters. See `ci/models.sh`, and "Model checking"
//! in docs/DESIGN.md.
//!
//! They are in the crate because they run private code, for instance a timer that ends. The checker is loom: the code waits
//! with locks and parking alone and is small, and loom leaves no order out.

mod overload;
mod promise;
mod shutdown;
mod timer;
