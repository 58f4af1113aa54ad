//! Which lines of the log are written: those of the level, and few of the Redis client.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{DynFilterFn, LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;

/// The target of the Redis client.
const REDIS: &str = "redis";

/// The filter of a log with this level. Up to the level `info`, the Redis client logs an error in some seconds.
pub(crate) fn log_filter<S: Subscriber + for<'a> LookupSpan<'a>>(level: LevelFilter) -> impl Layer<S> {
    let shows_all = level > LevelFilter::INFO;
    // It warns of each node that it cannot reach, at each try.
    let redis_level = if shows_all || level == LevelFilter::OFF { level } else { LevelFilter::ERROR };
    let targets = Targets::new().with_default(level).with_target(REDIS, redis_level);
    let errors = Mutex::new(FewLines::default());
    let few_of_redis = DynFilterFn::new(move |metadata: &Metadata<'_>, _| {
        let is_error_of_redis = *metadata.level() == Level::ERROR && metadata.target().starts_with(REDIS);
        shows_all || !is_error_of_redis || errors.lock().is_ok_and(|mut errors| errors.allows(Instant::now()))
    });
    targets.and_then(few_of_redis)
}

/// The Redis client logs an error at each try to reach a cluster. One in a while names the reason, which the error of the store may lack.
#[derive(Default)]
struct FewLines {
    /// When the last line was allowed.
    last: Option<Instant>,
}

impl FewLines {
    /// The time between two lines.
    const EACH: Duration = Duration::from_secs(5);

    /// The filter is asked twice for a line of the `log` crate, which the client uses: the second question comes within this time.
    const SAME_LINE: Duration = Duration::from_millis(1);

    /// Whether a line may be written now.
    fn allows(&mut self, now: Instant) -> bool {
        let since_last = self.last.map(|last| now.saturating_duration_since(last));
        if since_last.is_none_or(|since| since >= Self::EACH) {
            self.last = Some(now);
            return true;
        }
        since_last.is_some_and(|since| since < Self::SAME_LINE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: while a Redis Cluster had another password, the log grew by some fifty lines a second.
    #[test]
    fn the_redis_client_does_not_fill_the_log() {
        let (start, mut errors) = (Instant::now(), FewLines::default());
        let allowed = |millis: u64| errors.allows(start + Duration::from_millis(millis));
        let times = [0, 0, 20, 40, 4_999, 5_000, 5_000, 5_020, 9_000, 10_000];
        assert_eq!(times.map(allowed), [true, true, false, false, false, true, true, false, false, true]);
    }
}
