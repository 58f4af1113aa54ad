//! What the pools promise if they cannot start.

use std::thread;
use std::time::{Duration, Instant};

use polyserve_threadpool::{CrossbeamPool, MpscPool, StealingPool};

use super::bounded;

/// The time limit for the threads that were started to end.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// If a thread cannot be started, `new` fails and the threads that were started end.
#[cfg(target_os = "linux")]
#[test]
fn new_ends_its_threads_if_one_cannot_start() {
    use polyserve_conformance::property;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    fn threads() -> usize {
        std::fs::read_dir("/proc/self/task").unwrap().count()
    }

    fn check(_: &()) -> property::Outcome {
        property::in_child(None, || {
            let before = threads();
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.strip_suffix(" kB")).unwrap();
            // Limits the address space, so that only some of the stacks fit.
            let limit = size.trim().parse::<u64>().unwrap() * 1024 + (64 << 20);
            let maximum = getrlimit(Resource::As).maximum;
            setrlimit(Resource::As, Rlimit { current: Some(limit), maximum }).unwrap();
            let config = bounded(1_000, 8);
            for refused in [
                MpscPool::new(config.clone()).is_err(),
                CrossbeamPool::new(config.clone()).is_err(),
                StealingPool::new(config).is_err(),
            ] {
                assert!(refused, "1 000 stacks fit 64 MiB");
            }
            let deadline = Instant::now() + MAX_WAIT;
            while threads() != before {
                assert!(Instant::now() < deadline, "the threads that were started do not end");
                thread::yield_now();
            }
        })
    }

    let _ = property::test(module_path!(), "new_ends_its_threads_if_one_cannot_start", &(), check);
}
