//! The models of this crate, which a model checker runs: see `ci/models.sh` and "Model checking" in docs/DESIGN.md.
//!
//! The publication of `copy_on_write` and the copies of `seqlock` depend on memory ordering, that is, on the stores that a load may see.
//! So loom checks them. The mailbox and the whole of `actor` are checked by loom and by shuttle.

mod mailbox;
#[cfg(all(polyserve_loom, feature = "copy-on-write"))]
mod publication;
#[cfg(all(polyserve_loom, feature = "seqlock"))]
mod seqlock;

use polyserve_core::sync::model::Bounds;

/// Returns the bounds of a model: preemptions for loom, schedules for shuttle.
fn bounds(loom: [usize; 2], shuttle: [usize; 2]) -> Bounds {
    let [short, deep] = if cfg!(polyserve_loom) { loom } else { shuttle };
    Bounds::new(short, deep)
}
