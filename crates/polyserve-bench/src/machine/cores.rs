//! Cores: the machine's cores, the cores of a thread, and their CPU time.
//!
//! Invariant: pinning is of the calling thread alone; a process or thread that it starts afterwards inherits its cores.
//! Cost: one system call.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Some cores, by number, in order: `0`, `0,2`, `0-3,6`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores(Vec<usize>);

impl Cores {
    /// Returns the cores that this thread may use. Cores beyond the capacity of [`CpuSet`] are not among them.
    ///
    /// # Errors
    ///
    /// Returns an error if the system does not report them.
    pub fn available() -> io::Result<Self> {
        let set = sched_getaffinity(None)?;
        Ok(Self((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()))
    }

    /// The numbers of the cores.
    pub fn numbers(&self) -> &[usize] {
        &self.0
    }

    /// The number of cores.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns true if at least one core is in both sets.
    pub fn share_one_with(&self, other: &Self) -> bool {
        self.0.iter().any(|core| other.0.contains(core))
    }

    /// Returns the first core that is not in `available`.
    pub fn missing_in(&self, available: &Self) -> Option<usize> {
        self.0.iter().copied().find(|core| !available.0.contains(core))
    }

    /// Runs `body` on a thread of these cores. There, a default that depends on the number of cores is that of a process on them.
    ///
    /// # Errors
    ///
    /// Returns an error if the system refuses the cores, or a thread.
    pub fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let thread =
                thread::Builder::new().name("cores".into()).spawn_scoped(scope, || self.pin().map(|()| body()))?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Pins the calling thread to these cores.
    ///
    /// # Errors
    ///
    /// Returns an error if the system refuses, for example if a core does not exist.
    pub fn pin(&self) -> io::Result<()> {
        let mut set = CpuSet::new();
        for core in &self.0 {
            set.set(*core);
        }
        Ok(sched_setaffinity(None, &set)?)
    }
}

impl From<usize> for Cores {
    fn from(core: usize) -> Self {
        Self(vec![core])
    }
}

impl From<&[usize]> for Cores {
    fn from(cores: &[usize]) -> Self {
        let mut cores = cores.to_vec();
        cores.sort_unstable();
        cores.dedup();
        Self(cores)
    }
}

impl FromStr for Cores {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no list of cores such as 0, 0,2 or 0-3");
        let number = |text: &str| text.trim().parse().ok().filter(|core| *core < CpuSet::MAX_CPU);
        let mut cores = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (usize, usize) = number(first).zip(number(last)).ok_or_else(wrong)?;
            if first > last {
                return Err(wrong());
            }
            cores.extend(first..=last);
        }
        cores.sort_unstable();
        cores.dedup();
        Ok(Self(cores))
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&numbers.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores() {
        for (text, cores, shown) in
            [("0", &[0][..], "0"), ("2,0", &[0, 2], "0,2"), ("0-2, 6,1", &[0, 1, 2, 6], "0,1,2,6")]
        {
            let read: Cores = text.parse().unwrap();
            assert_eq!((read.numbers(), read.to_string().as_str()), (cores, shown));
        }
        for text in ["", "a", "1-", "3-1", "-1", "0,,1", "100000"] {
            let error = text.parse::<Cores>().unwrap_err();
            assert!(error.contains("no list of cores"), "{error}");
        }
    }

    #[test]
    fn what_is_shared_and_what_is_missing() {
        let cores = |text: &str| text.parse::<Cores>().unwrap();
        assert!(cores("0-1").share_one_with(&cores("1,2")) && !cores("0").share_one_with(&cores("1")));
        assert_eq!((cores("0-2").missing_in(&cores("0,1")), cores("1").missing_in(&cores("0,1"))), (Some(2), None));
    }

    #[test]
    fn a_thread_may_be_pinned_to_a_core_of_its_process() {
        let available = Cores::available().unwrap();
        let core = Cores::from(available.numbers()[0]);
        assert_eq!(core.run(|| Cores::available().unwrap()).unwrap(), core);
        assert_eq!(core.run(polyserve::cores).unwrap(), 1);
        assert_eq!(Cores::available().unwrap(), available, "other threads stay as they are");
    }
}
