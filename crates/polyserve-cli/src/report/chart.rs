//! The files of charts in Markdown pages: their names, and whether their content agrees with the record.
//!
//! Invariant: the same record and name make the same file, to the byte. A file is in [`DIRECTORY`], next to the page. Cost:
//! the record's summary, once.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use polyserve::files::{MAX_CONTENT, read_bounded};
use polyserve_bench::Misuse;
use polyserve_bench::report::in_markdown;

use super::Record;

/// The directory of the charts, in the page's directory.
pub(crate) const DIRECTORY: &str = "charts";

/// A drawn chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChartFile {
    /// Its file's name.
    pub(crate) file: String,
    /// A description for screen readers.
    pub(crate) about: String,
    /// The content of the file.
    pub(crate) svg: String,
}

impl ChartFile {
    /// Returns the record's chart of this name, with these `lines` only if there are some. The file's name is made from
    /// `path_in_page`, the path of the record.
    pub(crate) fn of(record: &Record, path_in_page: &Path, name: &str, lines: &[&str]) -> anyhow::Result<Self> {
        let path = record.path.display();
        let charts = &record.recorded().with_context(|| path.to_string())?.summary.charts;
        let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
        let Some((_, chart)) = charts.iter().find(|(title, _)| *title == name) else {
            let names: Vec<&str> = charts.iter().map(|(name, _)| name.as_str()).collect();
            let names = names.join(", ");
            return Err(Misuse(format!("there is no chart {name:?} of {path}; there are: {names}")).into());
        };
        if lines.is_empty() {
            return Ok(Self { file: file(path_in_page, &name), about: chart.about.clone(), svg: chart.to_svg() });
        }
        let chart = chart.clone().only(lines).map_err(|why| Misuse(format!("{name:?} of {path}: {why}")))?;
        let file = file(path_in_page, &format!("{name} chosen"));
        Ok(Self { file, about: chart.about.clone(), svg: chart.to_svg() })
    }

    /// The path from the page that shows the chart.
    pub(crate) fn link(&self) -> String {
        format!("{DIRECTORY}/{}", self.file)
    }

    /// Returns the line of Markdown that shows the chart.
    pub(crate) fn markdown(&self) -> String {
        format!("![{}]({})", in_markdown(&self.about), self.link())
    }

    /// The path of the file, for a page in the directory `page_dir`.
    pub(crate) fn path(&self, page_dir: &Path) -> PathBuf {
        page_dir.join(DIRECTORY).join(&self.file)
    }

    /// Returns the content of the existing file; `None` if there is no file.
    pub(crate) fn existing(&self, page_dir: &Path) -> anyhow::Result<Option<Vec<u8>>> {
        let path = self.path(page_dir);
        match read_bounded(&path, MAX_CONTENT) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    /// Writes its file, if the content differs.
    pub(crate) fn write(&self, page_dir: &Path) -> anyhow::Result<()> {
        if self.existing(page_dir)?.is_some_and(|bytes| bytes == self.svg.as_bytes()) {
            return Ok(());
        }
        let path = self.path(page_dir);
        let written = fs::create_dir_all(page_dir.join(DIRECTORY)).and_then(|()| fs::write(&path, &self.svg));
        written.with_context(|| path.display().to_string())
    }
}

/// The name of a file: `DATE-RECORD-CHART.svg`, with characters that are valid in every file system and link.
fn file(record: &Path, name: &str) -> String {
    let of = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
    let date = record.parent().and_then(|parent| of(parent.file_name()));
    let parts = date.into_iter().chain(of(record.file_stem())).chain([name.to_owned()]).collect::<Vec<_>>();
    let plain = |char: char| if char.is_ascii_alphanumeric() || "-_.".contains(char) { char } else { '-' };
    format!("{}.svg", parts.join("-").chars().map(plain).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ladder() -> Record {
        let [low, high] = ["a<b>", "a<b>+lto"];
        let plan = json!({
            "name": "ladder", "about": "", "workload": "", "mode": "closed", "compared": "requests_per_s", "axes": [],
            "contestants": [low, high], "baseline": low, "charts": [{"kind": "ratios", "y": "requests_per_s"}],
            "quick": false, "rounds": 10, "definition": {}, "settings": {}
        });
        let header = json!({
            "kind": "environment", "experiment": "bench", "format": 3, "plan": plan, "cpu": "", "cores": 1, "server_cores": "",
            "client_cores": "", "kernel": "", "rustc": "", "profile": "", "allocator": "", "commit": "", "seed": 0,
            "command": [], "date": ""
        });
        let row = |contestant: &str, role: &str, round: u32, requests_per_s: f64| {
            let figures = json!({"requests_per_s": requests_per_s});
            json!({
                "kind": "row", "contestant": contestant, "cell": {}, "round": round, "role": role, "figures": figures
            })
        };
        let rows = |round| [row(low, "baseline", round, 1.0), row(high, "ranked", round, 2.0)];
        let lines = [header].into_iter().chain((1..=10).flat_map(rows)).collect();
        Record::new(Path::new("results/2026-11-22/ladder x.jsonl"), "bench", lines)
    }

    #[test]
    fn a_chart_is_found_by_its_name() {
        let chart = ChartFile::of(&ladder(), &ladder().path, " req/s ", &[]).unwrap();
        assert_eq!(chart.file, "2026-11-22-ladder-x-req-s.svg");
        assert!(chart.svg.contains(">a&lt;b&gt;+lto</text>"), "{}", chart.svg);
        assert_eq!(chart.markdown(), format!("![{}](charts/{})", in_markdown(&chart.about), chart.file));
        assert_eq!(ChartFile::of(&ladder(), &ladder().path, "req/s", &[]).unwrap(), chart);
        let error = ChartFile::of(&ladder(), &ladder().path, "req/s", &["a"]).unwrap_err();
        assert!(error.to_string().ends_with("its chart has no lines to choose from"), "{error:#}");
        let error = ChartFile::of(&ladder(), &ladder().path, "keys read", &[]).unwrap_err();
        assert!(error.is::<Misuse>(), "{error:#}");
        let expected = "there is no chart \"keys read\" of results/2026-11-22/ladder x.jsonl; there are: req/s";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_file_is_named_by_its_record_and_stays_in_its_directory() {
        for (record, name, expected) in [
            (
                "results/2026-11-22/stores-workers.jsonl",
                "workers 95/5 zipf:0.99",
                "2026-11-22-stores-workers-workers-95-5-zipf-0.99.svg",
            ),
            ("x.jsonl", "keys churn", "x-keys-churn.svg"),
            ("../a (b).jsonl", "keys churn", "a--b--keys-churn.svg"),
        ] {
            assert_eq!(file(Path::new(record), name), expected);
        }
    }
}
