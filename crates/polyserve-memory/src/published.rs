//! [`IsPublished`], which lets `new` create repos of the published entity only, and names `of` in the error for other types.

use polyserve_core::Entity;

/// Holds for the published entity. A type that is not known yet becomes it: `Sharded::new()` is a `Sharded<Entity>`.
#[diagnostic::on_unimplemented(
    message = "`new` creates a repo of the published `Entity`, not of `{E}`",
    label = "call `of` in place of `new`: `Sharded::of::<{E}>()`"
)]
pub trait IsPublished<E> {}

impl IsPublished<Entity> for Entity {}
