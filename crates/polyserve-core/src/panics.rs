//! Panics of foreign code: services, jobs, wakers and log subscribers.
//!
//! A panic payload is foreign code too: its `Drop` may panic. Every payload that polyserve catches is dropped by
//! [`drop_payload`], so that one panic never ends a thread of a server.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `act` and returns its value, or the text of its panic. The payload is dropped with [`drop_payload`].
///
/// # Errors
///
/// Returns the panic's text if `act` panics.
///
/// # Cost
///
/// No allocation unless `act` panics.
#[inline]
pub fn isolate<T>(act: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(act)).map_err(text_of)
}

/// Returns the text of a caught panic, and drops the payload with [`drop_payload`].
#[cold]
pub fn text_of(panic: Box<dyn Any + Send>) -> String {
    let text = panic_text(panic.as_ref());
    drop_payload(panic);
    text
}

/// Returns the text of a panic payload.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a text").to_owned()
}

/// Drops a panic payload. If its `Drop` panics, the second payload is leaked, because its `Drop` may panic as well.
pub fn drop_payload(panic: Box<dyn Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::panic_any;

    /// A payload that panics with another such payload when it is dropped.
    struct Bomb(u32);

    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0 > 0 {
                panic_any(Bomb(self.0 - 1));
            }
        }
    }

    /// Regression test: a payload that panicked as it was dropped ended the thread that had caught the panic.
    #[test]
    fn a_payload_that_panics_as_it_is_dropped_ends_nothing() {
        assert_eq!(isolate(|| panic_any(Bomb(3))), Err::<(), _>(String::from("a panic without a text")));
        assert_eq!(isolate(|| 7), Ok(7));
        assert_eq!(isolate(|| panic!("text {}", 1)), Err::<(), _>(String::from("text 1")));
    }
}
