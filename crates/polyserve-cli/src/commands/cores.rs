//! The flags for the cores of servers and clients. Every command that measures has them.

use anyhow::Context as _;
use polyserve_bench::Misuse;
use polyserve_bench::machine::cores::Cores;

const SERVER_CORES: &str = "--server-cores";
/// The flag for the cores of the load generator.
pub(crate) const CLIENT_CORES: &str = "--client-cores";

/// The cores of the servers and of the clients.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CoresArgs {
    /// The servers' cores: 0, or 0-3,6. [default: the first]
    #[arg(long, value_name = "CORES")]
    server_cores: Option<Cores>,
    /// The cores of the load generator, and of any other client. [default: the next]
    #[arg(long, value_name = "CORES")]
    client_cores: Option<Cores>,
}

impl CoresArgs {
    /// The flags for these cores.
    pub(crate) fn chosen(servers: Cores, clients: Cores) -> Self {
        Self { server_cores: Some(servers), client_cores: Some(clients) }
    }

    /// Returns the servers' cores and the clients' cores. Without flags, each has its own core if two are `available`.
    pub(crate) fn of(&self, available: &Cores) -> anyhow::Result<[Cores; 2]> {
        let (server, client) = (self.server_cores.as_ref(), self.client_cores.as_ref());
        let servers = chosen_cores(SERVER_CORES, server, client, available)?;
        let clients = chosen_cores(CLIENT_CORES, client, Some(&servers), available)?;
        Ok([servers, clients])
    }
}

impl CoresArgs {
    /// The names of the given flags.
    pub(crate) fn given(&self) -> impl Iterator<Item = &'static str> {
        let given =
            [self.server_cores.as_ref().map(|_| SERVER_CORES), self.client_cores.as_ref().map(|_| CLIENT_CORES)];
        given.into_iter().flatten()
    }

    /// Returns the cores of contestants without clients: all that are `available` by default.
    pub(crate) fn servers(&self, available: &Cores) -> anyhow::Result<Cores> {
        match &self.server_cores {
            None => Ok(available.clone()),
            given => chosen_cores(SERVER_CORES, given.as_ref(), None, available),
        }
    }
}

/// Returns the `given` cores. Without them, returns the first core that is not in `others`, or else the first core.
pub(crate) fn chosen_cores(
    flag: &str,
    given: Option<&Cores>,
    others: Option<&Cores>,
    available: &Cores,
) -> anyhow::Result<Cores> {
    let Some(given) = given else {
        let numbers = available.numbers();
        let free = numbers.iter().find(|core| others.is_none_or(|others| !others.numbers().contains(core)));
        return free.or(numbers.first()).copied().map(Cores::from).context("this process has no core");
    };
    match given.missing_in(available) {
        None => Ok(given.clone()),
        Some(missing) => Err(Misuse(format!("{flag} {given}: there is no core {missing}, only {available}")).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_and_server_have_a_core_each_if_there_are_two() {
        let cores = |text: &str| text.parse::<Cores>().unwrap();
        let (one, two) = (cores("3"), cores("0,2"));
        let default_cores = |others: Option<&str>, available: &Cores| {
            chosen_cores("--any", None, others.map(cores).as_ref(), available).unwrap().to_string()
        };
        assert_eq!(
            (default_cores(None, &two), default_cores(Some("0"), &two), default_cores(Some("2"), &two)),
            ("0".into(), "2".into(), "0".into())
        );
        assert_eq!((default_cores(Some("3"), &one), default_cores(Some("0,2"), &two)), ("3".into(), "0".into()));
        let error = chosen_cores("--any", Some(&cores("1")), None, &two).unwrap_err().to_string();
        assert!(error.contains("--any 1: there is no core 1, only 0,2"), "{error}");
    }
}
