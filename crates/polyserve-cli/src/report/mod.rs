//! Reports of recorded runs: one HTML page with charts, and tables and charts spliced into Markdown.
//!
//! A record may be of a run that was ended early, or of an unknown experiment, which has no tables. Missing cells are shown as gaps.
//! Texts of a record are always shown as text.
//!
//! Invariant: nothing is measured here. The same records make the same page, byte for byte. Cost: all records in memory, at
//! most [`MAX_BYTES`].

mod benches;
pub(crate) mod chart;
pub(crate) mod experiments;
pub(crate) mod html;
pub(crate) mod splice;

use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::Context as _;
use serde_json::Value;

use polyserve_bench::Misuse;
use polyserve_bench::experiment::KnownExperiment;
use polyserve_bench::experiment::Recorded;
use polyserve_bench::journal::{self, EXTENSION, Header};
use polyserve_bench::report::Table;

/// The max size of all records together, in bytes. The page also has the tables and the libraries, and can be larger.
pub(crate) const MAX_BYTES: u64 = 64 << 20;

/// One file of a recorded run.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Its path, as given.
    pub(crate) path: PathBuf,
    /// The experiment's name, known or not.
    pub(crate) name: String,
    /// The experiment.
    pub(crate) experiment: &'static KnownExperiment,
    /// The lines of the record; the first is its header.
    pub(crate) lines: Vec<Value>,
    /// The result of [`recorded`](Self::recorded).
    recorded: OnceLock<Result<Recorded, String>>,
}

impl Record {
    /// Reads a record. Its first line or else its file's name determines the experiment.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let lines = journal::read(path)?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let recorded_name = lines.first().and_then(|line| line["experiment"].as_str());
        let name = recorded_name.unwrap_or_else(|| stem.split(['-', '.']).next().unwrap_or(&stem)).to_owned();
        Ok(Self::new(path, &name, lines))
    }

    /// A record of these lines, of the experiment of this name.
    pub(crate) fn new(path: &Path, name: &str, lines: Vec<Value>) -> Self {
        let experiment = experiments::named(name);
        Self { path: path.to_owned(), name: name.to_owned(), experiment, lines, recorded: OnceLock::new() }
    }

    /// The headers: one of the first run, and one of each run that continued it.
    pub(crate) fn headers(&self) -> impl Iterator<Item = &Value> {
        self.lines.iter().filter(|line| line["kind"] == Header::KIND)
    }

    /// Returns why the record is not complete; `None` if it is.
    pub(crate) fn incomplete_reason(&self) -> Option<String> {
        if self.headers().next().is_none() {
            return Some("it has no header with the machine and the command".into());
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

    /// Returns the experiment's result. It is computed once.
    pub(crate) fn recorded(&self) -> anyhow::Result<&Recorded> {
        let recorded =
            self.recorded.get_or_init(|| (self.experiment.read)(&self.lines).map_err(|error| format!("{error:#}")));
        recorded.as_ref().map_err(|error| anyhow::Error::msg(error.clone()))
    }

    /// All tables, by their names.
    pub(crate) fn tables(&self) -> anyhow::Result<&[(String, Table)]> {
        let recorded = self.recorded().with_context(|| self.path.display().to_string())?;
        Ok(&recorded.summary.tables)
    }
}

/// Reads the records at these paths. A path is a file, or a directory: its files with a record's extension, sorted by name,
/// then those of its directories.
pub(crate) fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<Record>> {
    let mut files = Vec::new();
    for path in paths {
        let context = || path.display().to_string();
        let metadata = fs::metadata(path).map_err(|error| Misuse(format!("{}: {error}", path.display())))?;
        if !metadata.is_dir() {
            files.push(path.clone());
            continue;
        }
        let before = files.len();
        find(path, &mut files).with_context(context)?;
        if files.len() == before {
            return Err(Misuse(format!("there is no record in {}: no file *.{EXTENSION}", path.display())).into());
        }
    }
    let mut bytes = 0;
    for file in &files {
        bytes += fs::metadata(file).with_context(|| file.display().to_string())?.len();
    }
    if bytes > MAX_BYTES {
        let max = MAX_BYTES >> 20;
        return Err(Misuse(format!("these records have {} MiB; the max for a page is {max} MiB", bytes >> 20)).into());
    }
    let mut records = files.iter().map(|file| Record::read(file)).collect::<anyhow::Result<Vec<_>>>()?;
    // The order of the experiments; the sort is stable, so records of one experiment keep their order.
    records.sort_by_key(|record| experiments::position(&record.name));
    Ok(records)
}

/// Adds the records in `directory` to `files`, then those in its directories.
fn find(directory: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let mut entries: Vec<DirEntry> = fs::read_dir(directory)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(DirEntry::path);
    let is_record = |path: &PathBuf| path.extension().is_some_and(|extension| extension == EXTENSION);
    files.extend(entries.iter().map(DirEntry::path).filter(is_record));
    for entry in entries {
        // A link to a directory is not followed, so the search ends.
        if entry.file_type()?.is_dir() {
            find(&entry.path(), files)?;
        }
    }
    Ok(())
}

/// Returns the command line with the name of the program in place of its path, and without the path of the record.
pub(crate) fn shown_command(header: &Value) -> String {
    let words = || header["command"].as_array().into_iter().flatten().filter_map(Value::as_str);
    // `cargo bench -p polyserve-benches` starts a program with a hash in its name, and adds this flag.
    let is_bench = words().any(|word| word == "--bench");
    let mut words = words().filter(|word| *word != "--bench").peekable();
    let program = words.next().map(|program| program.rsplit('/').next().unwrap_or(program)).unwrap_or("unknown");
    let mut shown = String::from(if is_bench { "cargo bench -p polyserve-benches" } else { program });
    if is_bench && words.peek().is_some() {
        shown.push_str(" --");
    }
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
