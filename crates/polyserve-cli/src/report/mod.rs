//! What recorded runs say, for people: one page with charts, and tables and charts spliced into Markdown.
//!
//! A record is read with tolerance, for it may be of an older program, of a run that was ended early, or of an experiment
//! that this program does not know: what is not known is shown as plain tables, what is missing as a gap. What a record
//! says is text wherever it is shown, never a part of the page.
//!
//! Invariant: nothing is measured here and no figure is made up; the same records give the same page, byte for byte.
//! Cost: all records in memory, read from [`MOST_BYTES`] at most.

mod benches;
pub(crate) mod chart;
pub(crate) mod experiments;
pub(crate) mod html;
mod packing;
pub(crate) mod plain;
pub(crate) mod splice;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::Context as _;
use serde_json::Value;

use polyserve_lab::Misuse;
use polyserve_lab::experiment::KnownExperiment;
use polyserve_lab::experiment::known::Recorded;
use polyserve_lab::journal::{self, EXTENSION, Header};
use polyserve_report::Table;

/// The max bytes of all records together. This bounds what is read, not the page: the page also has the tables and the
/// libraries, and is larger.
pub(crate) const MOST_BYTES: u64 = 64 << 20;

/// One file of a recorded run.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Its path, as given.
    pub(crate) path: PathBuf,
    /// The experiment's name, known or not.
    pub(crate) name: String,
    /// What is known of the experiment.
    pub(crate) experiment: &'static KnownExperiment,
    /// Its lines, the first of them where and with what it was measured.
    pub(crate) lines: Vec<Value>,
    /// What [`recorded`](Self::recorded) has computed.
    recorded: OnceLock<Result<Recorded, String>>,
}

impl Record {
    /// Reads one. Its experiment is what its first line says, or else what its file is called.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let lines = journal::read(path)?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let said = lines.first().and_then(|line| line["experiment"].as_str());
        let name = said.unwrap_or_else(|| stem.split(['-', '.']).next().unwrap_or(&stem)).to_owned();
        Ok(Self::new(path, &name, lines))
    }

    /// A record of these lines, of the experiment of this name.
    pub(crate) fn new(path: &Path, name: &str, lines: Vec<Value>) -> Self {
        let experiment = experiments::named(name);
        Self { path: path.to_owned(), name: name.to_owned(), experiment, lines, recorded: OnceLock::new() }
    }

    /// Where and with what it was measured: a line for each time that the run was begun or gone on with.
    pub(crate) fn headers(&self) -> impl Iterator<Item = &Value> {
        self.lines.iter().filter(|line| line["kind"] == Header::KIND)
    }

    /// Why this is not all that there was to be, if it is not.
    pub(crate) fn is_short_of(&self) -> Option<String> {
        if self.headers().next().is_none() {
            return Some("nothing says where and with what it was measured".into());
        }
        let results = self.lines.iter().filter(|line| line["kind"] != Header::KIND);
        if results.clone().next().is_none() {
            return Some("nothing was recorded".into());
        }
        if self.lines.last().is_some_and(|last| last["interrupted"] == true) {
            return Some("the run was ended early".into());
        }
        self.recorded().ok()?.incomplete.clone()
    }

    /// The experiment's result of these lines. It is computed once.
    pub(crate) fn recorded(&self) -> anyhow::Result<&Recorded> {
        let recorded =
            self.recorded.get_or_init(|| self.experiment.read(&self.lines).map_err(|error| format!("{error:#}")));
        recorded.as_ref().map_err(|error| anyhow::Error::msg(error.clone()))
    }

    /// All tables, by their names: the experiment's own, then one for each kind of line.
    pub(crate) fn tables(&self) -> anyhow::Result<Vec<(String, Table)>> {
        let recorded = self.recorded().with_context(|| self.path.display().to_string())?;
        Ok(plain::with_plain_tables(recorded.summary.tables.clone(), &self.lines))
    }
}

/// All records under these paths: files, and directories' files that end as a record's does, in the order of their names.
pub(crate) fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<Record>> {
    let mut files = Vec::new();
    for path in paths {
        let within = || path.display().to_string();
        let metadata = fs::metadata(path).map_err(|error| Misuse(format!("{}: {error}", path.display())))?;
        if !metadata.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut found = Vec::new();
        for entry in fs::read_dir(path).with_context(within)? {
            let file = entry.with_context(within)?.path();
            if file.extension().is_some_and(|extension| extension == EXTENSION) {
                found.push(file);
            }
        }
        if found.is_empty() {
            return Err(Misuse(format!("there is no record in {}: no file *.{EXTENSION}", path.display())).into());
        }
        found.sort();
        files.append(&mut found);
    }
    let mut bytes = 0;
    for file in &files {
        bytes += fs::metadata(file).with_context(|| file.display().to_string())?.len();
    }
    if bytes > MOST_BYTES {
        let most = MOST_BYTES >> 20;
        return Err(Misuse(format!("these records have {} MiB; a page is made of {most} at most", bytes >> 20)).into());
    }
    let mut records = files.iter().map(|file| Record::read(file)).collect::<anyhow::Result<Vec<_>>>()?;
    // As the articles are told; those of one experiment in the order in which they were found.
    records.sort_by_key(|record| experiments::position(&record.name));
    Ok(records)
}

/// A command line as people type it: the program by its name alone, without the path of the record.
pub(crate) fn shown_command(header: &Value) -> String {
    let mut words = header["command"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let program = words.next().map(|program| program.rsplit('/').next().unwrap_or(program)).unwrap_or("unknown");
    let mut shown = String::from(program);
    while let Some(word) = words.next() {
        if word == "--out" {
            let _ = words.next();
            continue;
        }
        if word.starts_with("--out=") {
            continue;
        }
        shown.push(' ');
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=.,/:%+@".contains(&byte);
        match !word.is_empty() && word.bytes().all(is_plain) {
            true => shown.push_str(word),
            false => shown.push_str(&format!("'{}'", word.replace('\'', r"'\''"))),
        }
    }
    shown
}

#[cfg(test)]
mod tests;
