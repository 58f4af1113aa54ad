//! Clocks: monotonic time in nanoseconds, and processor time of threads and processes.

use std::time::Duration;

use nix::time::ClockId as ProcessClock;
use nix::unistd::Pid;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::error::LoadError;
use crate::load::CpuOf;

/// Monotonic time in nanoseconds, since the machine started.
#[inline]
pub(crate) fn now() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Processor time of this thread, user and system, in nanoseconds.
pub(crate) fn thread_cpu() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
}

/// Processor time of this process, in nanoseconds.
pub(crate) fn own_cpu() -> u64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime))
}

#[inline]
fn nanoseconds(time: Timespec) -> u64 {
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// `time` in nanoseconds; 584 years at most.
pub(crate) fn of(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The clock of another process's processor time. It keeps time to the nanosecond, and may be read for any process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(ProcessClock);

impl Process {
    pub(crate) fn new(id: u32) -> Result<Self, LoadError> {
        let none = || LoadError::setting(format!("there is no process {id}"));
        let number = i32::try_from(id).ok().filter(|id| *id > 0).ok_or_else(none)?;
        let clock = Self(ProcessClock::pid_cpu_clock_id(Pid::from_raw(number)).map_err(|_| none())?);
        clock.read().map(|_| clock).ok_or_else(none)
    }

    /// Its processor time in nanoseconds; `None` once the process is gone.
    pub(crate) fn read(self) -> Option<u64> {
        let time = self.0.now().ok()?;
        u64::try_from(Duration::from(time).as_nanos()).ok()
    }
}

/// Whose processor time is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Meter {
    Nobody,
    Process(Process),
    Own,
}

/// When it was, and the server's processor time then.
pub(crate) type Reading = (u64, Option<u64>);

impl Meter {
    pub(crate) fn new(cpu: CpuOf) -> Result<Self, LoadError> {
        Ok(match cpu {
            CpuOf::Nobody => Self::Nobody,
            CpuOf::Process(id) => Self::Process(Process::new(id)?),
            CpuOf::Own => Self::Own,
        })
    }

    pub(crate) fn read(self) -> Reading {
        let cpu = match self {
            Self::Nobody => None,
            Self::Process(clock) => clock.read(),
            Self::Own => Some(own_cpu()),
        };
        (now(), cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_run_forwards_and_a_process_has_one() {
        let (wall, thread, own) = (now(), thread_cpu(), own_cpu());
        let clock = Process::new(std::process::id()).unwrap();
        let before = clock.read().unwrap();
        while thread_cpu() == thread {}
        assert!(now() > wall && own_cpu() > own && clock.read().unwrap() > before);
        assert!(own_cpu() >= thread_cpu());
        assert!(Process::new(0).is_err() && Process::new(u32::MAX).is_err());
    }
}
