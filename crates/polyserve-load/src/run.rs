//! A load from its first connection to its report.

use crate::error::LoadError;
use crate::load::Load;
use crate::report::{Progress, Report};

/// Runs `load`.
///
/// # Errors
///
/// Where it cannot be run at all; what goes wrong with single requests is in the report.
pub fn run(load: &Load, on_progress: &mut dyn FnMut(&Progress)) -> Result<Report, LoadError> {
    load.validate()?;
    let _ = on_progress;
    Err(LoadError::setting("the loop comes with the next commits"))
}
