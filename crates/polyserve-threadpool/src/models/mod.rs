//! The models of this crate for model checkers. Each pool is a model as a whole, from its start to its drop, with one or two
//! workers and one or two submitters. Two parts of `pool_server` are models too: the slot states, which decide which thread
//! may touch a connection, and the ready list, which decides which thread serves or polls.
//!
//! `ci/models.sh` runs the models. "Model checking" in docs/DESIGN.md says what they show.
//!
//! shuttle runs each scenario for each pool. loom runs the pools around a channel, with one worker: it then reaches all
//! orders with a few preemptions. loom does not run `StealingPool`. This pool relies on sequentially consistent loads, which
//! loom treats as weaker, so loom finds orders that cannot occur.

mod closing;
#[cfg(polyserve_loom)]
mod ready_list;
#[cfg(polyserve_loom)]
mod slot_state;
mod working;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use polyserve_core::sync::model::{Bounds, DEADLOCK, PrimitiveFault, check, finds};
use polyserve_core::{Executor, Job};

use polyserve_serving::executor::PoolConfig;

use crate::{CrossbeamPool, MpscPool, StealingPool};

/// A pool that a scenario can create.
trait ModelPool: Executor + Sized {
    const NAME: &str;

    fn make(config: PoolConfig) -> Self;
}

macro_rules! pools {
    ($($pool:ident)*) => {$(
        impl ModelPool for $pool {
            const NAME: &str = stringify!($pool);

            fn make(config: PoolConfig) -> Self {
                Self::new(config).expect("the configuration is valid")
            }
        }
    )*};
}

pools!(MpscPool CrossbeamPool StealingPool);

/// Counts how many times its jobs ran. Each job holds a reference, so the references count the jobs that still exist.
#[derive(Clone, Default)]
struct Ran(Arc<AtomicUsize>);

impl Ran {
    /// A job that counts when it runs, and then calls `work`.
    fn job(&self, work: impl FnOnce() + Send + 'static) -> Job {
        let ran = self.clone();
        Job::new(move || {
            ran.0.fetch_add(1, Ordering::SeqCst);
            work();
        })
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// The number of jobs that exist: not run and not dropped, or run and still held.
    fn held(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

/// The bounds of a scenario: preemptions for loom, schedules for shuttle.
fn bounds(loom: [usize; 2], shuttle: [usize; 2]) -> Bounds {
    let [short, deep] = if cfg!(polyserve_loom) { loom } else { shuttle };
    Bounds::new(short, deep)
}

/// The number of workers of a pool. loom supports few threads.
const WORKERS: usize = if cfg!(polyserve_loom) { 1 } else { 2 };

/// Runs `body` for a pool, and then checks that it finds `fault`.
fn scenario<P: ModelPool>(name: &str, bounds: Bounds, fault: Option<PrimitiveFault>, body: fn()) {
    check(&format!("{}: {name}", P::NAME), bounds, body);
    if let Some(fault) = fault {
        finds(fault, DEADLOCK);
    }
}

/// Makes a test for each pool: `for_pools!(function, "description", bounds, fault in the channel, fault in parking)`.
macro_rules! for_pools {
    ($body:ident, $name:expr, $bounds:expr, $channel:expr, $parking:expr) => {
        mod $body {
            use super::*;

            #[test]
            fn mpsc_pool() {
                scenario::<crate::MpscPool>($name, $bounds, $channel, super::$body::<crate::MpscPool>);
            }

            #[test]
            fn crossbeam_pool() {
                scenario::<crate::CrossbeamPool>($name, $bounds, $channel, super::$body::<crate::CrossbeamPool>);
            }

            #[cfg(polyserve_shuttle)]
            #[test]
            fn stealing_pool() {
                scenario::<crate::StealingPool>($name, $bounds, $parking, super::$body::<crate::StealingPool>);
            }
        }
    };
}
use for_pools;
