//! Futures that run at the same time in one task: attempts to reach one of several hosts, and questions to all of them.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout;

use crate::error::EngineFailure;

/// All hosts of a list are tried after this part of the timeout.
#[cfg_attr(not(any(feature = "etcd", feature = "postgres")), allow(dead_code, reason = "see `first_open`"))]
const HEAD_STARTS_PART: u32 = 3;

/// Opens a connection to one of several hosts. `attempts` are in the order of preference. The next one begins when another has failed,
/// and after its part of the time, so a host that is silent does not keep the store from the others. The first that succeeds ends the
/// others.
///
/// # Errors
///
/// Returns a failure if all attempts fail: one that another try does not mend, if there is one.
#[cfg_attr(
    not(any(feature = "etcd", feature = "postgres")),
    allow(dead_code, reason = "the client of Redis tries its hosts by itself")
)]
pub(crate) async fn first_open<T, F: Future<Output = Result<T, EngineFailure>>>(
    attempts: impl ExactSizeIterator<Item = F>,
    store_timeout: Duration,
) -> Result<T, EngineFailure> {
    let count = u32::try_from(attempts.len()).unwrap_or(u32::MAX).max(1);
    let head_start = store_timeout / HEAD_STARTS_PART / count;
    let (mut attempts, mut running, mut failure) = (attempts, Vec::new(), None);
    loop {
        match attempts.next() {
            Some(attempt) => running.push(Box::pin(attempt)),
            None if running.is_empty() => break,
            None => {}
        }
        match timeout(head_start, next_ended(&mut running)).await {
            Err(_) => {}
            Ok(Ok(opened)) => return Ok(opened),
            Ok(Err(failed)) if failure.as_ref().is_some_and(EngineFailure::is_final) => drop(failed),
            Ok(Err(failed)) => failure = Some(failed),
        }
    }
    Err(failure.unwrap_or_else(|| EngineFailure::NotDone("there is no address to connect to".into())))
}

/// Waits until one of `running` has ended, and removes it. If there is none, it never ends.
async fn next_ended<F: Future>(running: &mut Vec<Pin<Box<F>>>) -> F::Output {
    poll_fn(|context| {
        for index in 0..running.len() {
            if let Poll::Ready(output) = running[index].as_mut().poll(context) {
                drop(running.swap_remove(index));
                return Poll::Ready(output);
            }
        }
        Poll::Pending
    })
    .await
}

/// Runs futures at the same time. Returns their results in their order, or the first failure.
#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "only Redis has several nodes to ask"))]
pub(crate) async fn in_order<T>(
    futures: impl Iterator<Item = impl Future<Output = Result<T, EngineFailure>>>,
) -> Result<Vec<T>, EngineFailure> {
    let numbered = futures.enumerate().map(|(number, future)| Box::pin(async move { (number, future.await) }));
    let mut running: Vec<_> = numbered.collect();
    let mut results = Vec::with_capacity(running.len());
    while !running.is_empty() {
        let (number, result) = next_ended(&mut running).await;
        results.push((number, result?));
    }
    results.sort_unstable_by_key(|(number, _)| *number);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(6);

    /// What an attempt does: it ends with this result after this time.
    type Attempt = (u64, Result<u32, fn(crate::error::Source) -> EngineFailure>);

    /// Returns the result of attempts, and the time that it took in milliseconds.
    async fn raced(attempts: &[Attempt]) -> (Result<u32, EngineFailure>, u128) {
        let start = Instant::now();
        let attempts = attempts.iter().map(async |(millis, result)| {
            sleep(Duration::from_millis(*millis)).await;
            (*result).map_err(|kind| kind("it fails".into()))
        });
        (first_open(attempts, TIMEOUT).await, start.elapsed().as_millis())
    }

    const NEVER: u64 = 1_000_000;

    #[tokio::test(start_paused = true)]
    async fn silent_hosts_leave_time_for_the_others() {
        let (opened, millis) = raced(&[(NEVER, Ok(0)), (NEVER, Ok(1)), (NEVER, Ok(2)), (10, Ok(3))]).await;
        assert_eq!((opened.ok(), millis), (Some(3), 3 * 500 + 10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_starts_the_next_attempt() {
        let not_done = || Err(EngineFailure::NotDone as fn(_) -> _);
        let (opened, millis) = raced(&[(1, not_done()), (1, not_done()), (1, Ok(2)), (0, Ok(3))]).await;
        assert_eq!((opened.ok(), millis), (Some(2), 3));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_host_is_preferred_for_a_while() {
        let (opened, millis) = raced(&[(900, Ok(0)), (0, Ok(1))]).await;
        assert_eq!((opened.ok(), millis), (Some(0), 900));
    }

    #[tokio::test(start_paused = true)]
    async fn results_are_in_order() {
        let after = async |millis: u64| {
            sleep(Duration::from_millis(millis)).await;
            if millis == 0 { Err(EngineFailure::NotDone("it fails".into())) } else { Ok(millis) }
        };
        assert_eq!(in_order([3, 1, 2].into_iter().map(after)).await.ok(), Some(vec![3, 1, 2]));
        assert!(in_order([3, 0, 2].into_iter().map(after)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_rejection_is_the_failure_of_all() {
        let not_done = || Err(EngineFailure::NotDone as fn(_) -> _);
        let rejected = Err(EngineFailure::Rejected as fn(_) -> _);
        let (failed, _) = raced(&[(1, not_done()), (1, rejected), (2, not_done())]).await;
        assert!(matches!(failed, Err(EngineFailure::Rejected(_))), "{failed:?}");
        assert!(matches!(raced(&[]).await.0, Err(EngineFailure::NotDone(_))));
    }
}
