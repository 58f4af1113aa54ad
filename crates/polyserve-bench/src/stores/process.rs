//! A process for each [`StoreRun`](super::StoreRun), so that no run shares memory and heap with another one.
//!
//! Invariant: the process has ended when the function returns. Cost: starting the process.

use std::time::{Duration, Instant};

use polyserve::Shutdown;

use super::run::StoreResult;
use crate::experiment::Absence;
use crate::launch::Launch;
use crate::launch::line_process::LineProcess;
use crate::machine::Cores;

/// The time between two checks of the stop signal.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// Returns the `count` results that the process prints, each as a line of JSON. Returns an error if the process fails or
/// exceeds the limit, or if the stop signal begins.
pub(crate) fn results(
    launch: &Launch,
    count: usize,
    limit: Duration,
    stop: &Shutdown,
) -> Result<Vec<StoreResult>, Absence> {
    let cores = Cores::available().map_err(|error| Absence::failed(error.to_string()))?;
    let mut process = LineProcess::start(launch, &cores)?;
    let deadline = Instant::now() + limit;
    let mut results = Vec::new();
    while results.len() < count {
        match process.next_line(STOP_CHECK) {
            Ok(Some(line)) => {
                let result = serde_json::from_str(&line);
                results.push(result.map_err(|error| Absence::wrong(format!("it printed {line:?}: {error}")))?);
            }
            Ok(None) if stop.is_begun() => return Err(Absence::failed("the run is over")),
            Ok(None) if Instant::now() >= deadline => return Err(Absence::wrong("it took too long")),
            Ok(None) => {}
            Err(absence) => return Err(absence),
        }
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long enough for every process that ends by itself.
    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn a_process_that_fails_says_why() {
        let run = |text: &str, limit| {
            let launch = crate::fixtures::script(text, crate::launch::AddressFrom::Json);
            results(&launch, 2, limit, &Shutdown::new())
        };
        let line = r#"echo '{"Ok":{"operations_per_s":2.0}}'; "#;
        let found = run(&format!("head -c 1000000 /dev/zero | tr '\\0' '\\n' >&2; {line}{line}"), LIMIT).unwrap();
        assert!(
            found.iter().all(|result| result.as_ref().unwrap()["operations_per_s"] == 2.0),
            "more than a pipe holds"
        );
        for (text, limit, why) in [
            (format!("{line}echo hello"), LIMIT, "it printed \"hello\""),
            (format!("{line}echo no memory >&2; exit 3"), LIMIT, "exit status: 3: no memory"),
            (String::from("exec tail -f /dev/null"), Duration::ZERO, "too long"),
        ] {
            let absence = run(&text, limit).unwrap_err();
            assert!(absence.why.contains(why) && absence.is_wrong(), "{absence:?}");
        }
        let missing = Launch { program: "/no/such/program".into(), ..crate::fixtures::launch() };
        let absence = results(&missing, 1, LIMIT, &Shutdown::new()).unwrap_err();
        assert!(!absence.is_wrong(), "{absence:?}");
        let stop = Shutdown::new();
        stop.begin(Instant::now());
        let endless = crate::fixtures::script("exec tail -f /dev/null", crate::launch::AddressFrom::Json);
        let absence = results(&endless, 1, LIMIT, &stop).unwrap_err();
        assert!(absence.why.contains("the run is over") && !absence.is_wrong(), "{absence:?}");
    }
}
