//! The predictions for the candidates, made before the measurement.

use polyserve_lab::Misuse;
use polyserve_lab::compare::{Contestant, Instrument, Role, round};
use polyserve_lab::journal::Journal;
use polyserve_lab::recommend::{Candidate, Curves, Predictions, Workload};
use polyserve_lab::statistics::median_of;
use serde::{Deserialize, Serialize};

use super::super::entrants::{LIMIT, accept_limit, limit_launch};
use super::RecommendArgs;

/// The throughput is the median of this number of measurements of the null server.
const MEASUREMENTS: usize = 3;

/// The `kind` of [`NullServer`] in the record.
const NULL_SERVER: &str = "null_server";

/// The throughput of the null server. A resumed run does not measure it again.
#[derive(Serialize, Deserialize)]
struct NullServer {
    name: String,
    requests_per_s: f64,
}

/// Returns the predictions; `None` if the null server could not be measured.
///
/// # Errors
///
/// Returns an error if a file of `--curves` is no record of a comparison, or the record cannot be written.
pub(super) fn predictions(
    args: &RecommendArgs,
    workload: &Workload,
    candidates: &[Candidate],
    instrument: &Instrument,
    journal: &mut Journal,
) -> anyhow::Result<Option<Predictions>> {
    let curves = match args.curves.as_slice() {
        [] => Curves::embedded()?,
        paths => Curves::of_records(paths).map_err(|error| Misuse(format!("--curves: {error:#}")))?,
    };
    let known = journal.before::<NullServer>(NULL_SERVER)?.pop();
    let null_server = match known {
        Some(known) => known,
        None => {
            let Some(measured) = measure_null_server(workload, instrument) else { return Ok(None) };
            journal.line(NULL_SERVER, &measured)?;
            measured
        }
    };
    Ok(Some(curves.predict(candidates, workload, null_server.requests_per_s)))
}

fn measure_null_server(workload: &Workload, instrument: &Instrument) -> Option<NullServer> {
    let (name, launch) = if workload.keep_alive { (LIMIT, limit_launch()) } else { accept_limit() };
    let limit = Contestant::new(name, Role::Limit, launch);
    let measure_once = |_| round::measure(instrument, &[&limit], 0, None, |_| {}).pop()?.ok();
    let measured = (0..MEASUREMENTS).filter_map(measure_once).map(|measurement| measurement.requests_per_s);
    let requests_per_s = median_of(measured).filter(|per_s| *per_s > 0.0 && !instrument.stop.is_begun())?;
    Some(NullServer { name: name.to_owned(), requests_per_s })
}
