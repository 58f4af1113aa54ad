//! Collection of a body.

use std::future::poll_fn;
use std::pin::pin;

use bytes::{Buf, BufMut};
use http_body::Body;

/// The reason why a body was not collected.
pub(crate) enum CollectError<E> {
    /// The body failed.
    Body(E),
    /// The body is larger than the limit.
    TooLarge,
    /// `reserve` has refused the memory.
    OutOfMemory,
}

/// Reads `body` to its end, if it has at most `max` bytes. `reserve` is called with the bytes so far, and returns whether there is
/// memory for them. Trailers are dropped.
///
/// Cost: a copy of each byte.
pub(crate) async fn collect<B: Body>(
    body: B,
    max: usize,
    mut reserve: impl FnMut(&Vec<u8>) -> bool,
) -> Result<Vec<u8>, CollectError<B::Error>> {
    if body.size_hint().lower() > max as u64 {
        return Err(CollectError::TooLarge);
    }
    let mut body = pin!(body);
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let Ok(data) = frame.map_err(CollectError::Body)?.into_data() else { continue };
        if bytes.len().saturating_add(data.remaining()) > max {
            return Err(CollectError::TooLarge);
        }
        bytes.put(data);
        if !reserve(&bytes) {
            return Err(CollectError::OutOfMemory);
        }
    }
    Ok(bytes)
}
