//! Figures of the kernel: a process's resident memory and context switches, and the CPU time that other processes used.
//!
//! Invariant: a thread or process that ends during a read is no error; it is left out. Cost: one small file, and one more
//! for each thread of the process: too much for the measured time of a turn.
//!
//! Source: proc(5).

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

/// Memory of a process that is in RAM, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Now.
    pub now: u64,
    /// The max since the process began.
    pub peak: u64,
    /// The part of `now` that no file backs: heaps and stacks. `None` if the system does not report it.
    pub anonymous: Option<u64>,
}

/// The resident memory of process `pid`.
///
/// # Errors
///
/// Returns an error if there is no such process, or if the system has no proc(5).
pub fn resident(pid: u32) -> io::Result<Resident> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name| field(&status, name).map(|kibibytes| kibibytes * 1024);
    let (now, peak) = field("VmRSS").zip(field("VmHWM")).ok_or_else(|| no_field("VmRSS"))?;
    Ok(Resident { now, peak, anonymous: field("RssAnon") })
}

/// The memory of this machine, in bytes.
///
/// # Errors
///
/// Returns an error if the system has no proc(5).
pub fn memory() -> io::Result<u64> {
    let all = fs::read_to_string("/proc/meminfo")?;
    field(&all, "MemTotal").map(|kibibytes| kibibytes * 1024).ok_or_else(|| no_field("MemTotal"))
}

/// Returns the number of open descriptors of process `pid`. It does not count a connection that the process has closed,
/// although the kernel may still send its bytes.
///
/// # Errors
///
/// Returns an error if there is no such process, if another user owns the process, or if the system has no proc(5).
pub fn descriptors(pid: u32) -> io::Result<u64> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64)
}

/// Returns the number of threads of process `pid`.
///
/// # Errors
///
/// Returns an error if there is no such process, or if the system has no proc(5).
pub fn threads(pid: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    field(&status, "Threads").ok_or_else(|| no_field("Threads"))
}

/// Returns the number of context switches, voluntary and involuntary, of the present threads of process `pid`. Threads that
/// have ended do not count: the kernel forgets their switches.
pub(crate) fn context_switches(pid: u32) -> io::Result<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path: PathBuf = thread?.path().join("status");
        match fs::read_to_string(path) {
            Ok(status) => sum += switches(&status).ok_or_else(|| no_field("voluntary_ctxt_switches"))?,
            // The thread has ended: ESRCH if its file was open already.
            Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(3) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sum)
}

fn switches(status: &str) -> Option<u64> {
    Some(field(status, "voluntary_ctxt_switches")? + field(status, "nonvoluntary_ctxt_switches")?)
}

/// The CPU time of the calling thread.
pub(crate) fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The first number of the line `name: number ...`.
fn field(status: &str, name: &str) -> Option<u64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Time spent so far, in the kernel's ticks: of some cores, and of this process with the children that it has waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spent {
    busy: u64,
    idle: u64,
    own: u64,
}

impl Spent {
    /// The times of `cores`; `None` if the system does not report them.
    pub(crate) fn on(cores: &[usize]) -> Option<Self> {
        Self::read(cores, &fs::read_to_string("/proc/stat").ok()?, &fs::read_to_string("/proc/self/stat").ok()?)
    }

    /// Returns the idle time of the cores since `before`, in seconds. Its resolution is a tick, usually 10 ms.
    pub(crate) fn idle_since(&self, before: &Self) -> f64 {
        self.idle.saturating_sub(before.idle) as f64 / clock_ticks_per_second() as f64
    }

    fn read(cores: &[usize], machine: &str, process: &str) -> Option<Self> {
        let (mut busy, mut idle) = (0, 0);
        for core in cores {
            let start = format!("cpu{core} ");
            let line = machine.lines().find_map(|line| line.strip_prefix(&start))?;
            // The columns are user, nice, system, idle, iowait, irq, softirq, steal. The later columns are part of user and nice.
            let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|ticks| ticks.parse().ok()).collect();
            let waiting = ticks.get(3)? + ticks.get(4)?;
            idle += waiting;
            busy += ticks.iter().sum::<u64>() - waiting;
        }
        // The name in parentheses may hold any character. Of the fields after it, the 12th to the 15th are the CPU times of the
        // process (user, system) and of its children (user, system).
        let (_, fields) = process.rsplit_once(')')?;
        let own = fields.split_whitespace().skip(11).take(4).map_while(|ticks| ticks.parse::<u64>().ok()).sum();
        Some(Self { busy, idle, own })
    }

    /// Returns the share of the cores' time that other processes used since `before`: 0 to 1.
    pub(crate) fn others_since(&self, before: &Self) -> f64 {
        let since = |now: u64, then: u64| now.saturating_sub(then) as f64;
        let (busy, idle) = (since(self.busy, before.busy), since(self.idle, before.idle));
        let others = busy - since(self.own, before.own);
        if busy + idle > 0.0 { (others / (busy + idle)).clamp(0.0, 1.0) } else { 0.0 }
    }
}

fn no_field(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the status of a process has no {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tVmRSS: 1\nVmHWM:\t    5000 kB\nVmRSS:\t    4936 kB\nThreads:\t3\n\
        voluntary_ctxt_switches:\t21\nnonvoluntary_ctxt_switches:\t2\n";

    #[test]
    fn fields_are_found_by_their_whole_name() {
        assert_eq!(field(STATUS, "VmRSS"), Some(4936));
        assert_eq!(field(STATUS, "voluntary_ctxt_switches"), Some(21));
        assert_eq!((field(STATUS, "Vm"), field(STATUS, "Name")), (None, None));
        assert_eq!((switches(STATUS), switches("Threads:\t3\n")), (Some(23), None));
    }

    #[test]
    fn what_others_have_had() {
        let machine = |busy: u64, idle: u64| {
            format!(
                "cpu  1 1 1 1\ncpu0 {busy} 0 1 {idle} 0 0 0 0 5 5\ncpu1 {busy} 0 0 {idle} 1 0 0 2 0 0\ncpu10 9 9 9 9 9 9 9 9\n"
            )
        };
        let process = |own: u64| format!("7 (a b) c) S 1 1 1 0 -1 0 0 0 0 0 {own} 1 2 3 20 0");
        let before = Spent::read(&[0, 1], &machine(100, 50), &process(10)).unwrap();
        assert_eq!(before, Spent { busy: 203, idle: 101, own: 16 });
        let after = Spent::read(&[0, 1], &machine(180, 70), &process(130)).unwrap();
        assert!((after.others_since(&before) - 0.2).abs() < 1e-9, "40 of 200 ticks");
        assert_eq!((before.others_since(&before), Spent::read(&[2], &machine(1, 1), &process(1))), (0.0, None));
        let idle = after.idle_since(&before) * clock_ticks_per_second() as f64;
        assert!((idle - 40.0).abs() < 1e-6 && Spent::on(&[]).is_some(), "{idle}");
    }

    #[test]
    fn this_process_has_memory_and_its_threads_switch() {
        let pid = std::process::id();
        let Resident { now, peak, anonymous } = resident(pid).unwrap();
        assert!(memory().unwrap() > now);
        assert!(now > 4096 && peak >= now && anonymous.is_none_or(|part| part <= peak), "{now} {peak} {anonymous:?}");
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let waiting = std::thread::spawn(move || receive.recv());
        assert!(context_switches(pid).is_ok());
        assert!(threads(pid).unwrap() > 1);
        drop(send);
        assert!(waiting.join().unwrap().is_err());
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(
            threads(u32::MAX).is_err()
                && resident(u32::MAX).is_err()
                && context_switches(u32::MAX).is_err()
                && descriptors(u32::MAX).is_err()
        );
    }
}
