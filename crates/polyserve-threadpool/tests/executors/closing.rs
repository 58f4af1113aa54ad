//! What the pools promise beyond the executor kit when they close or cannot start.

use std::time::Instant;

use polyserve_threadpool::{CrossbeamPool, MpscPool, StealingPool};

use super::support::{bounded, empty_job, occupy, pools, wait_until};

#[test]
fn a_deadline_leaves_no_job_in_the_counts() {
    for pool in pools(&bounded(1, 64)) {
        let latch = occupy(&*pool, 1);
        (0..8).for_each(|_| pool.execute(empty_job()).unwrap());
        assert_eq!(pool.close(Some(Instant::now())), 1, "{pool:?}");
        assert_eq!(pool.stats().queued, 0, "{pool:?}");
        latch.open();
        assert_eq!((pool.close(None), pool.stats().executed), (0, 1), "{pool:?}");
    }
}

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
        property::in_child(|| {
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
            wait_until("the threads that were started to end", || threads() == before);
        })
    }

    let _ = property::test(module_path!(), "new_ends_its_threads_if_one_cannot_start", &(), check);
}
