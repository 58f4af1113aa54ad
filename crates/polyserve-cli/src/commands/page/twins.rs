//! The twins: the published listings, and servers in other languages.

use polyserve_experiments::page::published;
use polyserve_experiments::page::record::Key;
use polyserve_experiments::page::{Conditions, PagePart, PageServer, PageSource};
use polyserve_lab::experiment::{Absence, Absent, again};
use polyserve_lab::launch::page_twins::{BuiltTwin, PageTwin, THREAD_POOL, TWINS, TwinPage};

/// Twice the published number of workers: more than there are connections.
const MORE_WORKERS: usize = 200;

/// The twins among these names, or all twins if no server was asked for; and the names of the other servers.
pub(super) fn split(servers: &[String]) -> (Vec<PageTwin>, Vec<String>) {
    if servers.is_empty() {
        return (TWINS.to_vec(), Vec::new());
    }
    let (twins, others): (Vec<&String>, Vec<&String>) =
        servers.iter().partition(|name| PageTwin::named(name).is_some());
    (twins.into_iter().filter_map(|name| PageTwin::named(name)).collect(), others.into_iter().cloned().collect())
}

/// The entrants of the built twins, and the twins that cannot be measured. The thread pool takes part three times: once more
/// under another name, as the control, and with more workers.
pub(super) fn entrants(
    built: &[BuiltTwin],
    conditions: &Conditions,
    page: &TwinPage,
    rounds: usize,
    excused: bool,
) -> (Vec<PageServer>, Vec<Absent<Key>>) {
    let (mut entrants, mut absent) = (Vec::new(), Vec::new());
    for BuiltTwin { twin, program, is_absent } in built {
        let program = match program {
            Ok(program) => program,
            Err(why) => {
                let (part, server, page) = (PagePart::Twins, twin.name.to_owned(), PageSource::File);
                let key = Key { part, server, workers: twin.workers, page, round: 1 };
                let absence = if *is_absent { Absence::not_available(why) } else { Absence::failed(why) };
                absent.push(Absent { key, absence, excused: excused && *is_absent });
                continue;
            }
        };
        let entrant = |name: String, workers: Option<usize>, published_as: Option<&str>| PageServer {
            part: PagePart::Twins,
            published_as: published_as.map(str::to_owned),
            name,
            workers,
            waiting: workers.map(|workers| workers.min(conditions.connections)),
            requests: published::REQUESTS,
            page: PageSource::File,
            rounds,
            launch: twin.launch(program, page, workers),
        };
        entrants.push(entrant(twin.name.to_owned(), twin.workers, twin.published_as));
        if twin.name == THREAD_POOL {
            entrants.push(entrant(again(twin.name), twin.workers, None));
            entrants.push(entrant(twin.name.to_owned(), Some(MORE_WORKERS), None));
        }
    }
    (entrants, absent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyserve::Shutdown;
    use polyserve_lab::machine::cores::Cores;
    use std::time::Duration;

    #[test]
    fn names_of_twins_and_of_others() {
        let (twins, others) = split(&[]);
        assert_eq!((twins.len(), others.len()), (TWINS.len(), 0));
        let (twins, others) = split(&["smol", "twin/go"].map(String::from));
        assert_eq!(
            (twins.iter().map(|twin| twin.name).collect::<Vec<_>>(), others),
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
        let page = TwinPage { file: "/page".into(), every: 10, wait: conditions.wait };
        let built = |name: &str, program: Result<&str, &str>, is_absent| BuiltTwin {
            twin: PageTwin::named(name).unwrap(),
            program: program.map(Into::into).map_err(Into::into),
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
