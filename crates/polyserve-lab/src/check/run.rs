//! One recording, and its check.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use polyserve::Shutdown;
use polyserve::server::panic_text;
use polyserve_conformance::history::{
    self, History, ReadError, Recording, RecordingControl, RecordingWorkload, check, record_http, record_in_process,
};
use serde_json::json;

use super::report::{Run, Verdict};
use super::subject::{Stage, Subject, Target};
use crate::progress::Progress;

/// What is recorded of each subject.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Operations of all clients together.
    pub operations: u64,
    /// Clients, at least 1; more than 100 of one key can be too much to check.
    pub clients: u32,
    /// Keys, at least 1.
    pub keys: u64,
    /// What operations and keys are drawn from.
    pub seed: u64,
}

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at how far a recording is.
const LOOK: Duration = Duration::from_millis(100);

/// Records `plan` of `subject` until it is done or `stop` begins, writes it to the file `out`, and checks it. `before` is how
/// many operations `progress` knows to be over.
///
/// # Errors
///
/// Where `out` cannot be written; what went wrong with the subject is in the run.
pub fn run(
    subject: &Subject,
    plan: &Plan,
    out: Option<&Path>,
    stop: &Shutdown,
    progress: &mut Progress,
    before: u64,
) -> anyhow::Result<Run> {
    let (server, repo) = subject.names();
    progress.begin(format!("{server} over {repo}"));
    let script = RecordingWorkload {
        operations: plan.operations,
        keys: plan.keys,
        first_key: subject.first_key(),
        seed: plan.seed,
    };
    let recorded = subject.start().and_then(|stage| {
        let recorded = watched(&stage, &script, plan.clients, stop, progress, before);
        let ended = stage.end();
        let mut recording = recorded?;
        // That it has died says more than that it does not answer.
        match (ended, recording.wrong.first_mut()) {
            (Err(error), None) => return Err(error),
            (Err(error), Some(wrong)) => wrong.0 = format!("{error:#}\n{wrong}"),
            (Ok(()), _) => {}
        }
        Ok(recording)
    });
    let mut run = Run::new(server, repo);
    let recording = match recorded {
        Ok(recording) => recording,
        Err(error) => return Ok(run.ended(Verdict::Failed, format!("{error:#}"))),
    };
    run.recorded_s = recording.took.as_secs_f64();
    // What was lost before is no client's.
    let done = recording.operations.iter().filter(|operation| operation.process < plan.clients).count();
    run.interrupted = (done as u64) < plan.operations && recording.wrong.is_empty();
    let history = match History::new(recording.operations) {
        Ok(history) => history,
        Err(invalid) => return Ok(run.ended(Verdict::Failed, invalid.to_string())),
    };
    run.count(&history);
    if let Some(path) = out {
        let about =
            json!({"server": server, "repo": repo, "clients": plan.clients, "keys": plan.keys, "seed": plan.seed});
        let written = File::create(path).and_then(|file| history.write(BufWriter::new(file), &about));
        written.with_context(|| format!("{} cannot be written", path.display()))?;
    }
    match recording.wrong.first() {
        Some(wrong) => Ok(run.ended(Verdict::WrongAnswer, wrong.to_string())),
        None => Ok(checked(run, &history)),
    }
}

/// Records, and shows how far it is. A repo that panics fails itself, not those after it.
fn watched(
    stage: &Stage,
    script: &RecordingWorkload,
    clients: u32,
    stop: &Shutdown,
    progress: &mut Progress,
    before: u64,
) -> anyhow::Result<Recording> {
    let watch = RecordingControl::default();
    let target = stage.target();
    let record = || match &target {
        Target::Repo(repo) => record_in_process(repo, script, clients, &watch),
        Target::Addr(addr) => record_http(*addr, script, clients, PATIENCE, &watch),
    };
    thread::scope(|scope| {
        let (over, wait) = channel::<()>();
        let recorder = scope.spawn(move || {
            let _over = over; // dropped however it ends
            record()
        });
        while let Err(RecvTimeoutError::Timeout) = wait.recv_timeout(LOOK) {
            if stop.is_begun() {
                watch.stop();
            }
            progress.reached(before + watch.done());
        }
        recorder.join().map_err(|panic| anyhow!("it panicked: {}", panic_text(panic.as_ref())))
    })
}

/// The verdict on a history, by one rule for recordings in this process, over HTTP and from a file: a history that has an
/// order and shows nothing about races is undecided.
fn checked(mut run: Run, history: &History) -> Run {
    let start = Instant::now();
    let verdict = check(history);
    run.checked_s = start.elapsed().as_secs_f64();
    match verdict {
        history::CheckVerdict::NotLinearizable(violation) => run.ended(Verdict::NotLinearizable, violation.to_string()),
        history::CheckVerdict::Undecided(key, why) => run.ended(Verdict::Undecided, format!("key {key}: {why}")),
        history::CheckVerdict::Linearizable => match history.shows_nothing() {
            Some(why) => run.ended(Verdict::Undecided, why),
            None => run.ended(Verdict::Linearizable, String::new()),
        },
    }
}

/// Reads the history in the file at `path`, and checks it.
///
/// # Errors
///
/// Where it cannot be read, or is no history.
pub fn check_file(path: &Path) -> Result<Run, ReadError> {
    let history = History::read(BufReader::new(File::open(path)?))?;
    let mut run = Run::new("recorded", &path.display().to_string());
    run.count(&history);
    Ok(checked(run, &history))
}
