//! The flags of a workload: connections and entities. `load` and `compare` share them.

use std::iter::repeat_n;

use polyserve::Shutdown;
use polyserve_bench::Misuse;
use polyserve_bench::bench::BenchWorkload;
use polyserve_bench::bench::mode::requests::RequestSettings;
use polyserve_bench::bench::welcome;
use polyserve_bench::machine::cores::Cores;
use polyserve_bench::reference::BODY;
use polyserve_bench::turn::Instrument;
use polyserve_load::data::Data;
use polyserve_load::{Arrivals, Dist, Exchange, Load, LoadError, Mix, Traffic, Usage};
use toml::{Table, Value};

use super::seed::SeedArgs;
use super::service::RequestedService;

/// A workload.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WorkloadArgs {
    /// The number of concurrent connections.
    #[arg(long, short, value_name = "C", default_value_t = 64)]
    pub(crate) connections: usize,
    /// The number of pipelined requests of a connection.
    #[arg(long, value_name = "D", default_value_t = 1)]
    pipeline: usize,
    /// Use a connection for each request.
    #[arg(long, conflicts_with = "pipeline")]
    no_keepalive: bool,
    /// Entities: weights of reading and writing. [default: get=1, in a quick comparison get=95,put=5]
    #[arg(long, value_name = "get=95,put=5")]
    pub(crate) mix: Option<Mix>,
    /// Entities: their number. All are stored before the measurement. [default: 10000; 1 in a comparison without --quick]
    #[arg(long, value_name = "N")]
    pub(crate) keys: Option<u64>,
    /// Entities: their distribution in the requests: uniform, zipf:0.99, or hot (only one entity). [default: uniform]
    #[arg(long, value_name = "DIST")]
    pub(crate) dist: Option<Dist>,
    /// The spacing of requests at a fixed rate: poisson or even. [default: poisson]
    #[arg(long, value_name = "HOW")]
    pub(crate) arrivals: Option<Arrivals>,
    #[command(flatten)]
    pub(crate) random: SeedArgs,
}

impl WorkloadArgs {
    /// Returns how connections are used.
    pub(crate) fn usage(&self) -> Usage {
        if self.no_keepalive { Usage::Close } else { Usage::KeepAlive { pipeline: self.pipeline } }
    }

    /// Returns the number of keys and the mix. `keys` and `mix` are the defaults.
    pub(crate) fn keys_and_mix(&self, keys: u64, mix: Mix) -> (u64, Mix) {
        (self.keys.unwrap_or(keys), self.mix.unwrap_or(mix))
    }

    /// Writes the connections into the key `workload` of a definition.
    pub(crate) fn write_connections(&self, table: &mut Table) {
        let number = |number: usize| Value::from(i64::try_from(number).unwrap_or(i64::MAX));
        table.insert("connections".into(), number(self.connections));
        if self.no_keepalive {
            table.insert("close".into(), true.into());
        } else {
            table.insert("pipeline".into(), number(self.pipeline));
        }
        table.insert("arrivals".into(), self.arrivals.unwrap_or_default().to_string().into());
    }

    /// Returns the requests for entities. `keys` and `mix` are the defaults.
    pub(crate) fn entities(&self, keys: u64, mix: Mix) -> Result<Traffic, LoadError> {
        let (keys, mix) = self.keys_and_mix(keys, mix);
        Traffic::entities(&Data::new(self.random.seed), keys, self.dist.unwrap_or_default(), mix, self.random.seed)
    }
}

/// Returns the requests to a reference. They have the mix and the lengths of the requests for entities, but one id. A
/// reference has the same answer to all requests.
pub(crate) fn reference_traffic(keys: u64, mix: Mix) -> Result<Traffic, LoadError> {
    let target = format!("/{}", keys.saturating_sub(1));
    if mix.put == 0 {
        return Traffic::one("GET", &target, None, None);
    }
    let get = Exchange::new("GET", &target).with(|exchange| exchange.answers = vec![BODY.into()]);
    let put = Exchange::new("PUT", "/").with(|exchange| {
        exchange.headers = vec![("Content-Type".into(), "application/json".into())];
        exchange.body = Some(BODY.into());
        exchange.answers = vec![BODY.into()];
    });
    let (gets, puts) = request_counts(mix);
    Traffic::expecting(repeat_n(get, gets).chain(repeat_n(put, puts)).collect())
}

/// The mix as numbers of gets and puts: at most a thousand together, and at least one of each kind in the mix.
fn request_counts(Mix { get, put }: Mix) -> (usize, usize) {
    const MAX_REQUESTS: u64 = 1000;
    let sum = u64::from(get) + u64::from(put);
    let part = |weight: u32| match u64::from(weight) {
        weight if sum <= MAX_REQUESTS => weight as usize,
        0 => 0,
        weight => (weight * MAX_REQUESTS / sum).max(1) as usize,
    };
    (part(get), part(put))
}

/// The requests of a workload.
pub(crate) fn traffic(
    workload: &BenchWorkload,
    service: Option<&RequestedService>,
    seed: u64,
) -> anyhow::Result<Traffic> {
    match service {
        Some(service) => service.traffic(seed),
        None if workload.welcome => welcome().map_err(misuse),
        None => {
            let data = Data::new(seed).with_description(workload.payload);
            Traffic::entities(&data, workload.keys, workload.dist, workload.mix, seed).map_err(misuse)
        }
    }
}

/// How contestants are measured with a workload and its requests, on the cores of the servers and of the load generator.
pub(crate) fn instrument(
    workload: &BenchWorkload,
    traffic: Traffic,
    [server_cores, client_cores]: [Cores; 2],
    RequestSettings { warm_up, slice, latency_slice, .. }: RequestSettings,
    stop: &Shutdown,
) -> anyhow::Result<Instrument> {
    Ok(Instrument {
        server_cores,
        client_cores,
        connections: workload.connections,
        usage: workload.usage(),
        arrivals: workload.arrivals,
        traffic: checked(Ok(traffic), workload.connections, workload.usage())?,
        limit_traffic: reference_traffic(workload.keys, workload.mix).map_err(misuse)?,
        asked: workload.to_string(),
        warm_up,
        slice,
        latency_slice,
        stop: stop.clone(),
    })
}

/// Returns the traffic, or an error if it cannot use connections in this way.
pub(crate) fn checked(
    traffic: Result<Traffic, LoadError>,
    connections: usize,
    usage: Usage,
) -> anyhow::Result<Traffic> {
    let traffic = traffic.map_err(misuse)?;
    let load = Load::new(([127, 0, 0, 1], 0).into(), traffic.clone());
    load.with(|load| (load.connections, load.usage) = (connections, usage)).validate().map_err(misuse)?;
    Ok(traffic)
}

/// Converts the error of a load. Impossible settings are a [`Misuse`].
pub(crate) fn misuse(error: LoadError) -> anyhow::Error {
    match error {
        LoadError::Setting(why) => Misuse(why).into(),
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_asked_in_few_requests() {
        let counts = |get, put| request_counts(Mix { get, put });
        assert_eq!((counts(95, 5), counts(0, 3), counts(1000, 0)), ((95, 5), (0, 3), (1000, 0)));
        assert_eq!((counts(u32::MAX, 1), counts(0, u32::MAX)), ((999, 1), (0, 1000)));
    }
}
