//! What a model checker runs of this crate: `ci/models.sh`; "Model checking" in docs/DESIGN.md.
//!
//! loom's, both of them: they are small, and `copy_on_write`'s publication stands on which store a load may see. The whole of
//! `actor` is run by either.

mod mailbox;
#[cfg(polyserve_loom)]
mod publication;

use polyserve_core::sync::model::Bounds;

/// A model's bounds with either checker: loom's preemptions, and shuttle's schedules.
fn bounds(loom: [usize; 2], shuttle: [usize; 2]) -> Bounds {
    let [short, deep] = if cfg!(polyserve_loom) { loom } else { shuttle };
    Bounds::new(short, deep)
}
