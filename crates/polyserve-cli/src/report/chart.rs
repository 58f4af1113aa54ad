//! Charts of records for Markdown pages: what is drawn, what its file is called, and whether that is as it should be.
//!
//! A chart is of a run of stores without a server: operations a second along an axis under a workload, medians over
//! rounds, a line for each store. A repo has its colour in all charts of a record; the bare map that it is made of has the
//! same, with dashes and empty marks.
//!
//! Invariant: the same record and name give the same file, to the byte; a file is a page's neighbour in [`DIRECTORY`],
//! whatever its record is called. Cost: all of the record's medians, for each chart.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use polyserve_lab::Misuse;
use polyserve_lab::scale::Axis;
use polyserve_lab::stores::bare::PREFIX;
use polyserve_lab::stores::experiment::medians;
use polyserve_lab::stores::report::{AGAIN, StorePoint};
use polyserve_lab::stores::{self, table::rate};
use polyserve_report::in_markdown;
use polyserve_report::svg::{LineChart, Marker, Series, Style, count, drawn};

use super::Record;

/// The directory of the charts, in the page's directory.
pub(crate) const DIRECTORY: &str = "charts";

/// A chart, drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chart {
    /// Its file's name.
    pub(crate) file: String,
    /// A description for screen readers.
    pub(crate) about: String,
    /// What the file is to hold.
    pub(crate) svg: String,
}

impl Chart {
    /// The chart of this name: `AXIS WORKLOAD`, or `AXIS WORKLOAD DIST` where ids are drawn. Its file is called after the
    /// record as a page calls it, `said`.
    pub(crate) fn of(record: &Record, said: &Path, name: &str) -> anyhow::Result<Self> {
        let path = record.path.display();
        if record.name != stores::NAME {
            let why = "charts are drawn of runs of stores without a server";
            return Err(Misuse(format!("there is no chart {name:?} of {path}: {why}")).into());
        }
        let points = medians(&record.lines).with_context(|| path.to_string())?;
        let is_shown =
            |point: &&StorePoint| !point.name.ends_with(AGAIN) && point.per_s > 0.0 && point.per_s.is_finite();
        let all: Vec<&StorePoint> = points.iter().filter(is_shown).collect();
        let name_of = |point: &StorePoint| format!("{} {}", point.axis, point.load);
        let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
        let own: Vec<&StorePoint> = all.iter().copied().filter(|point| name_of(point) == name).collect();
        let Some(first) = own.first() else {
            let mut names: Vec<String> = all.iter().map(|point| name_of(point)).collect();
            names.dedup();
            let names = names.join(", ");
            return Err(Misuse(format!("there is no chart {name:?} of {path}; there are: {names}")).into());
        };
        let title = format!("{}: operations a second, medians of {} rounds", first.load, rounds(&own));
        let about = about(&own, first);
        let axis = unit(first.axis).to_owned();
        let chart = LineChart { title, about: about.clone(), axis, lines: lines(&own, &styles(&all)) };
        Ok(Self { file: file(said, &name), about, svg: drawn(&chart) })
    }

    /// The path from the page that shows the chart.
    pub(crate) fn link(&self) -> String {
        format!("{DIRECTORY}/{}", self.file)
    }

    /// The line of Markdown that shows it.
    pub(crate) fn markdown(&self) -> String {
        format!("![{}]({})", in_markdown(&self.about), self.link())
    }

    /// The path of the file, for a page in the directory `within`.
    pub(crate) fn path(&self, within: &Path) -> PathBuf {
        within.join(DIRECTORY).join(&self.file)
    }

    /// The content of its file; `None` if there is no file.
    pub(crate) fn stands(&self, within: &Path) -> anyhow::Result<Option<Vec<u8>>> {
        let path = self.path(within);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    /// Writes its file, if the content differs.
    pub(crate) fn write(&self, within: &Path) -> anyhow::Result<()> {
        if self.stands(within)?.is_some_and(|bytes| bytes == self.svg.as_bytes()) {
            return Ok(());
        }
        let path = self.path(within);
        let written = fs::create_dir_all(within.join(DIRECTORY)).and_then(|()| fs::write(&path, &self.svg));
        written.with_context(|| path.display().to_string())
    }
}

/// `DATE-RECORD-CHART.svg`, of letters and digits that are the same in every file system and link.
fn file(record: &Path, name: &str) -> String {
    let of = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
    let date = record.parent().and_then(|parent| of(parent.file_name()));
    let parts = date.into_iter().chain(of(record.file_stem())).chain([name.to_owned()]).collect::<Vec<_>>();
    let plain = |char: char| if char.is_ascii_alphanumeric() || "-_.".contains(char) { char } else { '-' };
    format!("{}.svg", parts.join("-").chars().map(plain).collect::<String>())
}

fn rounds(points: &[&StorePoint]) -> usize {
    points.iter().map(|point| point.rounds).max().unwrap_or(0)
}

/// What an axis counts, of a store without a server.
fn unit(axis: Axis) -> &'static str {
    match axis {
        Axis::Connections => "connections",
        Axis::Keys => "stored entities",
        Axis::Workers => "threads",
        Axis::Payload => "bytes of a description",
    }
}

/// The drawn lines, and the names with the most and the least at the end.
fn about(points: &[&StorePoint], first: &StorePoint) -> String {
    let names: BTreeSet<&str> = points.iter().map(|point| point.name.as_str()).collect();
    let last = points.iter().map(|point| point.x).max().unwrap_or(first.x);
    let from = points.iter().map(|point| point.x).min().unwrap_or(first.x);
    let there = || points.iter().filter(|point| point.x == last);
    let most = there().max_by(|one, other| one.per_s.total_cmp(&other.per_s)).unwrap_or(&points[0]);
    let least = there().min_by(|one, other| one.per_s.total_cmp(&other.per_s)).unwrap_or(&points[0]);
    let said = |point: &StorePoint| format!("{} ({})", point.name, rate(point.per_s));
    let (stores, load, unit, rounds) = (names.len(), &first.load, unit(first.axis), rounds(points));
    let (from, to, most, least) = (count(from), count(last), said(most), said(least));
    format!(
        "Chart: operations a second of {stores} stores, {load}, at {from} to {to} {unit}, medians of {rounds} rounds; \
         at {to} the most by {most}, the least by {least}"
    )
}

/// A line for each store, by names.
fn lines(points: &[&StorePoint], styles: &BTreeMap<&str, Style>) -> Vec<Series> {
    let mut by: BTreeMap<&str, Vec<(u64, f64)>> = BTreeMap::new();
    for point in points {
        by.entry(&point.name).or_default().push((point.x, point.per_s));
    }
    let line = |(name, mut points): (&str, Vec<(u64, f64)>)| {
        points.sort_by_key(|(x, _)| *x);
        Series { name: name.to_owned(), style: styles[name], points }
    };
    by.into_iter().map(line).collect()
}

/// Colours on white that stay apart with colour blindness: those of Okabe and Ito without yellow, which is too bright, then
/// three of Paul Tol's. Markers change with them.
const COLOURS: [&str; 10] =
    ["#000000", "#E69F00", "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#882255", "#999933", "#332288"];
/// Of a bare map that no repo here is made of.
const OTHER: &str = "#777777";
/// Of a bare map, and of one with something that its repo has not: `bare/NAME+WHAT`.
const DASHES: [&str; 2] = ["7 4", "2 3"];

/// How each store looks.
fn styles<'a>(points: &[&'a StorePoint]) -> BTreeMap<&'a str, Style> {
    let names: BTreeSet<&str> = points.iter().map(|point| point.name.as_str()).collect();
    let repos: Vec<&str> = names.iter().copied().filter(|name| !name.starts_with(PREFIX)).collect();
    let style = |name: &str| {
        let bare = name.strip_prefix(PREFIX);
        let own = bare.map_or(name, |bare| bare.split('+').next().unwrap_or(bare));
        let place = repos.iter().position(|repo| *repo == own);
        let mark = place.unwrap_or(0);
        Style {
            colour: place.map_or(OTHER, |place| COLOURS[place % COLOURS.len()]),
            dashes: bare.map(|bare| DASHES[usize::from(bare != own)]),
            // Lines of one colour have different markers.
            mark: Marker::ALL[(mark + mark / COLOURS.len()) % Marker::ALL.len()],
            is_hollow: bare.is_some(),
        }
    };
    names.iter().map(|name| (*name, style(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const PATH: &str = "results/2026-11-22/stores x.jsonl";

    fn of(record: &Record, name: &str) -> anyhow::Result<Chart> {
        Chart::of(record, Path::new(PATH), name)
    }

    fn cell(x: u64, name: &str, dist: Option<&str>, per_s: f64) -> Value {
        let workload = if dist.is_some() { "read" } else { "churn" };
        json!({
            "kind": "cell", "axis": "workers", "x": x, "name": name, "round": 1, "keys": 10, "threads": x,
            "payload_bytes": 15, "workload": workload, "dist": dist, "operations": 1, "elapsed_s": 1.0, "per_s": per_s
        })
    }

    fn record(name: &str, cells: &[Value]) -> Record {
        let header = json!({
            "kind": "environment", "experiment": name, "plan": {"baseline": "a"}, "cpu": "", "cores": 1,
            "server_cores": "", "client_cores": "", "kernel": "", "rustc": "", "profile": "", "allocator": "",
            "commit": "", "seed": 0, "command": [], "date": ""
        });
        let lines = [&[header][..], cells].concat();
        Record::new(Path::new(PATH), name, lines)
    }

    fn stores() -> Record {
        let uniform = Some("uniform");
        let cells = [
            cell(1, "a", uniform, 1e6),
            cell(2, "a", uniform, 2e6),
            cell(1, "a (again)", uniform, 1e6),
            cell(1, "b<c>", uniform, 3e6),
            cell(2, "b<c>", uniform, 5e6),
            cell(1, "bare/a", uniform, 4e6),
            cell(2, "bare/a", uniform, 3e6),
            cell(1, "bare/a+x", uniform, 4e6),
            cell(1, "bare/map", uniform, 9e6),
            cell(2, "a", None, 9e6),
        ];
        record("stores", &cells)
    }

    #[test]
    fn a_line_for_each_store_and_none_for_the_second_entry() {
        let chart = of(&stores(), "workers  read uniform").unwrap();
        assert_eq!(chart.svg.matches("<polyline ").count(), 5, "{}", chart.svg);
        for name in [">a</text>", ">b&lt;c&gt;</text>", ">bare/a</text>", ">bare/a+x (at 1)</text>", ">threads</text>"]
        {
            assert!(chart.svg.contains(name), "{name}: {}", chart.svg);
        }
        assert!(!chart.svg.contains("again"), "{}", chart.svg);
        assert_eq!(chart.file, "2026-11-22-stores-x-workers-read-uniform.svg");
        let said = "Chart: operations a second of 5 stores, read uniform, at 1 to 2 threads, medians of 1 rounds; \
                    at 2 the most by b<c> (5.00 M), the least by a (2.00 M)";
        assert_eq!(chart.about, said);
        let markdown = format!("![{}](charts/{})", said.replace('<', "&lt;"), chart.file);
        assert_eq!(chart.markdown(), markdown);
        assert_eq!(of(&stores(), "workers read uniform").unwrap(), chart);
        assert!(of(&stores(), "workers churn").unwrap().svg.contains(">a</text>"));
    }

    #[test]
    fn a_bare_map_looks_like_its_repo_with_dashes() {
        let points = medians(&stores().lines).unwrap();
        let styles = styles(&points.iter().collect::<Vec<_>>());
        let looks = |name: &str| (styles[name].colour, styles[name].dashes);
        assert_eq!(looks("a"), (COLOURS[0], None));
        assert_eq!(looks("bare/a"), (COLOURS[0], Some(DASHES[0])));
        assert_eq!(looks("bare/a+x"), (COLOURS[0], Some(DASHES[1])));
        assert_eq!(looks("bare/map"), (OTHER, Some(DASHES[0])));
        assert!(styles["bare/a"].is_hollow && !styles["a"].is_hollow);
    }

    #[test]
    fn a_chart_that_is_not_there_is_refused_by_its_name() {
        let refused = |record: &Record, name: &str| {
            let error = of(record, name).unwrap_err();
            assert!(error.is::<Misuse>(), "{error:#}");
            error.to_string()
        };
        let said = refused(&stores(), "keys read");
        assert!(said.contains("there is no chart \"keys read\" of results/2026-11-22/stores x.jsonl"), "{said}");
        assert!(said.ends_with("; there are: workers read uniform, workers churn"), "{said}");
        let said = refused(&record("page", &[]), "workers read");
        assert!(said.contains("\"workers read\"") && said.contains("stores without a server"), "{said}");
        // What nothing was done of has no logarithm.
        let idle = record("stores", &[cell(1, "a", None, 0.0)]);
        assert!(refused(&idle, "workers churn").ends_with("there are: "));
    }

    #[test]
    fn a_file_is_named_by_its_record_and_stays_in_its_directory() {
        for (record, name, due) in [
            (
                "results/2026-11-22/stores-workers.jsonl",
                "workers 95/5 zipf:0.99",
                "2026-11-22-stores-workers-workers-95-5-zipf-0.99.svg",
            ),
            ("x.jsonl", "keys churn", "x-keys-churn.svg"),
            ("../a (b).jsonl", "keys churn", "a--b--keys-churn.svg"),
        ] {
            assert_eq!(file(Path::new(record), name), due);
        }
    }
}
