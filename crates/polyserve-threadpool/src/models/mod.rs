//! What a model checker runs of this crate: every pool as a whole, from its start to its drop, with one or two workers and
//! one or two submitters. `ci/models.sh`; "Model checking" in docs/DESIGN.md.
//!
//! And of `pool_server` the word that says who may touch a connection.
//!
//! Each scenario is run for each pool by shuttle. loom runs those of the pools around a channel, with one worker, where it
//! reaches all orders with a few preemptions; not `StealingPool`, whose argument stands on sequentially consistent loads,
//! which loom takes for weaker ones, and finds orders that cannot be.

mod closing;
#[cfg(polyserve_loom)]
mod word;
mod working;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use polyserve_core::sync::model::{Bounds, DEADLOCK, Fault, check, finds};
use polyserve_core::{Executor, Job};

use crate::{CrossbeamPool, MpscPool, PoolConfig, StealingPool};

/// A pool that can be made.
trait Pool: Executor + Sized {
    const NAME: &str;

    fn make(config: PoolConfig) -> Self;
}

macro_rules! pools {
    ($($pool:ident)*) => {$(
        impl Pool for $pool {
            const NAME: &str = stringify!($pool);

            fn make(config: PoolConfig) -> Self {
                Self::new(config).expect("the configuration is valid")
            }
        }
    )*};
}

pools!(MpscPool CrossbeamPool StealingPool);

/// Counts how often its jobs ran. What a job holds of it says how many jobs still are somewhere.
#[derive(Clone, Default)]
struct Ran(Arc<AtomicUsize>);

impl Ran {
    /// A job that is counted when it runs, and then does `more`.
    fn job(&self, more: impl FnOnce() + Send + 'static) -> Job {
        let ran = self.clone();
        Job::new(move || {
            ran.0.fetch_add(1, Ordering::SeqCst);
            more();
        })
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Jobs that neither ran nor were dropped, or that ran and are still held.
    fn held(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

/// A scenario's bounds with either checker: loom's preemptions, and shuttle's schedules.
fn bounds(loom: [usize; 2], shuttle: [usize; 2]) -> Bounds {
    let [short, deep] = if cfg!(polyserve_loom) { loom } else { shuttle };
    Bounds::new(short, deep)
}

/// Workers of a pool: loom has room for few threads.
const WORKERS: usize = if cfg!(polyserve_loom) { 1 } else { 2 };

/// Runs `body` for a pool, and then with `fault`, which it is to find.
fn scenario<P: Pool>(name: &str, bounds: Bounds, fault: Option<Fault>, body: fn()) {
    check(&format!("{}: {name}", P::NAME), bounds, body);
    if let Some(fault) = fault {
        finds(fault, DEADLOCK);
    }
}

/// A test for each pool: `for_pools!(scenario's function, "what it is", bounds, fault of the channel's, of parking's)`.
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
