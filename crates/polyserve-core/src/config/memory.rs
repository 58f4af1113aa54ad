//! The default of [`ServerConfig::memory`](super::ServerConfig::memory).

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// The budget if neither the machine's memory nor a limit of a cgroup is known.
const UNKNOWN_MACHINE: usize = 256 << 20;

/// Returns the budget of a server without a configured one: a quarter of the machine's memory, or of the memory that the
/// process's cgroup allows if that is less. It is read once.
pub(super) fn default_memory() -> usize {
    static BUDGET: OnceLock<usize> = OnceLock::new();
    *BUDGET.get_or_init(|| {
        let read = |path: &Path| fs::read_to_string(path).ok();
        let machine = read(Path::new("/proc/meminfo")).and_then(|text| machine_memory(&text));
        let cgroups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
        let limit = cgroup_limit(&cgroups, |path| read(Path::new(path)));
        let memory = machine.into_iter().chain(limit).min();
        memory.map_or(UNKNOWN_MACHINE, |bytes| usize::try_from(bytes / 4).unwrap_or(usize::MAX))
    })
}

/// The memory of the machine in bytes, from the text of `/proc/meminfo`.
fn machine_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The least memory limit of the process's cgroup and the cgroups above it, in bytes. `cgroups`: the text of
/// `/proc/self/cgroup`, which has lines such as `0::/a/b` (version 2) and `4:memory:/a/b` (version 1).
fn cgroup_limit(cgroups: &str, read: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let mut limits = Vec::new();
    for line in cgroups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            names if names.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // In a container, the path may be that of the host. Then only the root exists.
        let mut path = path.trim_end_matches('/');
        loop {
            let text = read(&format!("{root}{path}/{file}"));
            limits.extend(text.and_then(|text| text.trim().parse::<u64>().ok()));
            let Some(parent) = path.rfind('/').and_then(|at| path.get(..at)) else { break };
            path = parent;
        }
    }
    limits.into_iter().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_the_cgroups_counts() {
        let files = [
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "1073741824\n"),
            ("/sys/fs/cgroup/memory.max", "2147483648\n"),
            ("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", "536870912\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        let read = |path: &str| files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned());
        assert_eq!(cgroup_limit("0::/a/b\n", read), Some(1 << 30));
        assert_eq!(cgroup_limit("3:cpuset:/x\n4:cpu,memory:/c\n0::/\n", read), Some(512 << 20));
        assert_eq!(cgroup_limit("4:memory:/of/the/host\n", read), Some(9_223_372_036_854_771_712));
        assert_eq!(cgroup_limit("", read), None);
        assert_eq!(machine_memory("MemTotal:       24684092 kB\nMemFree: 1 kB\n"), Some(24_684_092 * 1024));
        assert!(default_memory() > 0);
    }
}
