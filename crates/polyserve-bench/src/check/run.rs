//! One recording, and its check.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use polyserve::Shutdown;
use polyserve::panics::panic_text;
use polyserve_conformance::history::{
    self, EntityForm, History, ReadError, Recording, RecordingControl, RecordingWorkload, check, record_http,
    record_in_process,
};
use serde_json::json;

use super::report::{CheckRun, RecordingVerdict};
use super::subject::{CheckSubject, CheckTarget, Stage};
use crate::progress::Progress;

/// The settings of a recording.
#[derive(Clone, Copy, Debug)]
pub struct CheckPlan {
    /// Operations of all clients together.
    pub operations: u64,
    /// The number of clients, at least 1. A history of more than 100 clients on one key can be too large to check.
    pub clients: u32,
    /// Keys, at least 1.
    pub keys: u64,
    /// The seed of the operations and their keys.
    pub seed: u64,
}

/// The longest wait of a client for an answer.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// The time between two updates of the progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Records `plan` of `subject` until all operations are done or `stop` begins, writes the history to the file `out`, and
/// checks it. `before` is the number of operations that `progress` has counted already.
///
/// # Errors
///
/// Returns an error if `out` cannot be written. A failure of the subject is part of the returned run.
pub fn run(
    subject: &CheckSubject,
    plan: &CheckPlan,
    out: Option<&Path>,
    stop: &Shutdown,
    progress: &mut Progress,
    before: u64,
) -> anyhow::Result<CheckRun> {
    let (server, repo) = subject.names();
    progress.begin(format!("{server} over {repo}"));
    let workload = RecordingWorkload {
        operations: plan.operations,
        keys: plan.keys,
        first_key: subject.first_key(),
        seed: plan.seed,
        conditions: subject.takes_conditions(),
    };
    let recorded = subject.start().and_then(|stage| {
        let recorded = record_watched(&stage, &workload, plan.clients, stop, progress, before);
        let ended = stage.end();
        let mut recording = recorded?;
        // The end of the process is the better reason than a missing answer.
        match (ended, recording.wrong.first_mut()) {
            (Err(error), None) => return Err(error),
            (Err(error), Some(wrong)) => wrong.0 = format!("{error:#}\n{wrong}"),
            (Ok(()), _) => {}
        }
        Ok(recording)
    });
    let mut run = CheckRun::new(server, repo);
    let recording = match recorded {
        Ok(recording) => recording,
        Err(error) => return Ok(run.ended(RecordingVerdict::Failed, format!("{error:#}"))),
    };
    run.recorded_s = recording.took.as_secs_f64();
    // A removal before the recording belongs to no client. It is in the history if its answer was lost.
    let done = recording.operations.iter().filter(|operation| operation.process < plan.clients).count();
    run.interrupted = (done as u64) < plan.operations && recording.wrong.is_empty();
    let history = match History::new(recording.operations) {
        Ok(history) => history,
        Err(invalid) => return Ok(run.ended(RecordingVerdict::Failed, invalid.to_string())),
    };
    run.count(&history);
    if let Some(path) = out {
        let about =
            json!({"server": server, "repo": repo, "clients": plan.clients, "keys": plan.keys, "seed": plan.seed});
        let written = File::create(path).and_then(|file| history.write(BufWriter::new(file), &about));
        written.with_context(|| format!("{} cannot be written", path.display()))?;
    }
    match recording.wrong.first() {
        Some(wrong) => Ok(run.ended(RecordingVerdict::WrongAnswer, wrong.to_string())),
        None => Ok(checked(run, &history)),
    }
}

/// Records, and shows the progress. A panic of a repo fails its own recording only.
fn record_watched(
    stage: &Stage,
    workload: &RecordingWorkload,
    clients: u32,
    stop: &Shutdown,
    progress: &mut Progress,
    before: u64,
) -> anyhow::Result<Recording> {
    let watch = RecordingControl::default();
    let target = stage.target();
    let record = || match &target {
        CheckTarget::Repo(repo) => record_in_process(repo, workload, clients, &watch),
        CheckTarget::Http(target) => {
            record_http(std::slice::from_ref(target), EntityForm::Published, workload, clients, MAX_WAIT, &watch)
        }
    };
    thread::scope(|scope| {
        let (over, wait) = channel::<()>();
        let recorder = scope.spawn(move || {
            let _over = over; // dropped on return and on panic
            record()
        });
        while let Err(RecvTimeoutError::Timeout) = wait.recv_timeout(PROGRESS_INTERVAL) {
            if stop.is_begun() {
                watch.stop();
            }
            progress.reached(before + watch.done());
        }
        recorder.join().map_err(|panic| anyhow!("it panicked: {}", panic_text(panic.as_ref())))
    })
}

/// Checks a history, and adds the verdict to `run`. A history that is linearizable but shows nothing about races is undecided.
fn checked(mut run: CheckRun, history: &History) -> CheckRun {
    let start = Instant::now();
    let verdict = check(history);
    run.checked_s = start.elapsed().as_secs_f64();
    match verdict {
        history::CheckVerdict::NotLinearizable(violation) => {
            run.ended(RecordingVerdict::NotLinearizable, violation.to_string())
        }
        history::CheckVerdict::Undecided(key, why) => {
            run.ended(RecordingVerdict::Undecided, format!("key {key}: {why}"))
        }
        history::CheckVerdict::Linearizable => match history.shows_nothing() {
            Some(why) => run.ended(RecordingVerdict::Undecided, why),
            None => run.ended(RecordingVerdict::Linearizable, String::new()),
        },
    }
}

/// Reads the history in the file at `path`, and checks it.
///
/// # Errors
///
/// Returns [`ReadError`] if the file cannot be read or is not a history.
pub fn check_file(path: &Path) -> Result<CheckRun, ReadError> {
    let history = History::read(BufReader::new(File::open(path)?))?;
    let mut run = CheckRun::new("recorded", &path.display().to_string());
    run.count(&history);
    Ok(checked(run, &history))
}
