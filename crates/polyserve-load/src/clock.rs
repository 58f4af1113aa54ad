//! Clocks: monotonic time in nanoseconds, and processor time of threads and processes.

use std::time::Duration;

use nix::time::ClockId as ProcessClock;
use nix::unistd::Pid;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::error::LoadError;
use crate::load::CpuSource;

/// Returns the monotonic time since the machine started, in nanoseconds.
#[inline]
pub(crate) fn now() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Returns the processor time of this thread, user and system, in nanoseconds.
pub(crate) fn thread_cpu() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
}

/// Returns the processor time of this process, in nanoseconds.
pub(crate) fn own_cpu() -> u64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime))
}

#[inline]
fn nanoseconds(time: Timespec) -> u64 {
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Returns `time` in nanoseconds, at most 584 years.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The processor-time clock of a process. Its resolution is a nanosecond, and it is readable for any process. Cost of a
/// reading: a system call.
#[derive(Clone, Copy, Debug)]
pub struct ProcessCpuTime(ProcessClock);

impl ProcessCpuTime {
    /// The clock of the process with this id.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such process.
    pub fn new(id: u32) -> Result<Self, LoadError> {
        let none = || LoadError::setting(format!("there is no process {id}"));
        let number = i32::try_from(id).ok().filter(|id| *id > 0).ok_or_else(none)?;
        let clock = Self(ProcessClock::pid_cpu_clock_id(Pid::from_raw(number)).map_err(|_| none())?);
        clock.read().map(|_| clock).ok_or_else(none)
    }

    /// Returns the processor time in nanoseconds, or `None` if the process has ended.
    pub fn read(self) -> Option<u64> {
        let time = self.0.now().ok()?;
        u64::try_from(Duration::from(time).as_nanos()).ok()
    }
}

/// The source of the server's processor time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Meter {
    None,
    Process(ProcessCpuTime),
    Own,
}

/// The monotonic time, and the server's processor time at that time.
pub(crate) type Reading = (u64, Option<u64>);

impl Meter {
    pub(crate) fn new(cpu: CpuSource) -> Result<Self, LoadError> {
        Ok(match cpu {
            CpuSource::Unknown => Self::None,
            CpuSource::Process(id) => Self::Process(ProcessCpuTime::new(id)?),
            CpuSource::Own => Self::Own,
        })
    }

    pub(crate) fn read(self) -> Reading {
        let cpu = match self {
            Self::None => None,
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
        let clock = ProcessCpuTime::new(std::process::id()).unwrap();
        let before = clock.read().unwrap();
        while thread_cpu() == thread {}
        assert!(now() > wall && own_cpu() > own && clock.read().unwrap() > before);
        assert!(own_cpu() >= thread_cpu());
        assert!(ProcessCpuTime::new(0).is_err() && ProcessCpuTime::new(u32::MAX).is_err());
    }
}
