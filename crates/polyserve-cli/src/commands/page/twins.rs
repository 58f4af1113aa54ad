//! The twins: the published listings, and servers in other languages.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use polyserve_bench::contestants::{BuiltProgram, Program, Registry, Serves};
use polyserve_bench::experiment::{Absence, Absent, again};
use polyserve_bench::page::published;
use polyserve_bench::page::record::Key;
use polyserve_bench::page::{Conditions, PagePart, PageServer, PageSource, THREAD_POOL};

/// Twice the published number of workers: more than there are connections.
const MORE_WORKERS: usize = 200;

/// The page that a twin answers.
pub(super) struct TwinPage {
    /// The file, which must exist.
    pub(super) file: PathBuf,
    /// The number of requests of which one waits.
    pub(super) every: u64,
    /// The length of a wait. It is rounded up to whole milliseconds.
    pub(super) wait: Duration,
}

impl TwinPage {
    /// The arguments of a twin.
    fn args(&self) -> [OsString; 3] {
        let mut file = OsString::from("--page-file=");
        file.push(&self.file);
        let wait_ms = self.wait.as_nanos().div_ceil(1_000_000);
        [format!("--page-every={}", self.every).into(), format!("--page-wait={wait_ms}ms").into(), file]
    }
}

/// The twins among these names, or all twins if no server was asked for; and the names of the other servers.
pub(super) fn split(servers: &[String]) -> (Vec<Program>, Vec<String>) {
    let twins: Vec<Program> =
        Registry::repository().programs().filter(|one| one.serves() == Serves::Page).cloned().collect();
    if servers.is_empty() {
        return (twins, Vec::new());
    }
    let is_named = |twin: &Program| servers.iter().any(|name| name == twin.name());
    let others = servers.iter().filter(|name| twins.iter().all(|twin| twin.name() != name.as_str())).cloned().collect();
    (twins.into_iter().filter(is_named).collect(), others)
}

/// The entrants of the built twins, and the twins that cannot be measured. The thread pool takes part three times: once more
/// under another name, as the control, and with more workers.
pub(super) fn entrants(
    built: &[BuiltProgram],
    conditions: &Conditions,
    page: &TwinPage,
    rounds: usize,
    excused: bool,
) -> (Vec<PageServer>, Vec<Absent<Key>>) {
    let (mut entrants, mut absent) = (Vec::new(), Vec::new());
    for built in built {
        let (twin, workers) = (&built.program, built.program.workers());
        let entrant = |name: String, workers: Option<usize>, published_as: Option<&str>| {
            let mut launch = built.launch(workers)?;
            launch.args.extend(page.args());
            Ok::<_, String>(PageServer {
                part: PagePart::Twins,
                published_as: published_as.map(str::to_owned),
                name,
                workers,
                waiting: workers.map(|workers| workers.min(conditions.connections)),
                requests: published::REQUESTS,
                page: PageSource::File,
                rounds,
                launch,
            })
        };
        let name = || twin.name().to_owned();
        let mut servers = vec![entrant(name(), workers, twin.published_as())];
        if twin.name() == THREAD_POOL {
            servers.push(entrant(again(twin.name()), workers, None));
            servers.push(entrant(name(), Some(MORE_WORKERS), None));
        }
        match servers.into_iter().collect::<Result<Vec<_>, _>>() {
            Ok(servers) => entrants.extend(servers),
            Err(why) => {
                let key = Key { part: PagePart::Twins, server: name(), workers, page: PageSource::File, round: 1 };
                let absence = if built.is_absent { Absence::not_available(why) } else { Absence::failed(why) };
                absent.push(Absent { key, absence, excused: excused && built.is_absent });
            }
        }
    }
    (entrants, absent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyserve::Shutdown;
    use polyserve_bench::machine::cores::Cores;

    #[test]
    fn names_of_twins_and_of_others() {
        let (twins, others) = split(&[]);
        assert_eq!((twins.len(), others.len()), (9, 0));
        let (twins, others) = split(&["smol", "twin/go"].map(String::from));
        assert_eq!(
            (twins.iter().map(Program::name).collect::<Vec<_>>(), others),
            (vec!["twin/go"], vec!["smol".into()])
        );
    }

    #[test]
    fn the_thread_pool_takes_part_three_times_and_what_is_not_installed_is_excused() {
        let cores = Cores::from(0);
        let conditions = Conditions {
            server_cores: cores.clone(),
            client_cores: cores,
            connections: 100,
            every: 10,
            wait: Duration::from_secs(2),
            stop: Shutdown::new(),
        };
        let page = TwinPage { file: "/page".into(), every: 10, wait: Duration::from_micros(1500) };
        assert_eq!(page.args(), ["--page-every=10", "--page-wait=2ms", "--page-file=/page"]);
        let built = |name: &str, program: Result<&str, &str>, is_absent| BuiltProgram {
            program: Registry::repository().named(name).unwrap().clone(),
            file: program.map(Into::into).map_err(Into::into),
            is_absent,
        };
        let built = [
            built(THREAD_POOL, Ok("/program"), false),
            built("twin/node", Err("node is not installed"), true),
            built("twin/tokio", Err("error: it does not compile"), false),
        ];
        let (entrants, absent) = entrants(&built, &conditions, &page, 10, true);
        let names: Vec<_> = entrants.iter().map(|one| (one.name.as_str(), one.workers, one.waiting)).collect();
        let hundred = Some(100);
        let expected = [
            (THREAD_POOL, hundred, hundred),
            ("twin/thread_pool (again)", hundred, hundred),
            (THREAD_POOL, Some(200), hundred),
        ];
        assert_eq!(names, expected);
        let absent: Vec<_> = absent.iter().map(|one| (one.key.server.as_str(), one.excused)).collect();
        assert_eq!(absent, [("twin/node", true), ("twin/tokio", false)]);
    }
}
