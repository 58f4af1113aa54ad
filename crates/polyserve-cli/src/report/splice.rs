//! Tables and charts in Markdown pages. They are written from records, so no figure is copied by hand.
//!
//! A marker is a line that names a table, the claims or a chart. The text between a marker and its end is rewritten:
//!
//! ```text
//! <!-- table NAME of PATH.jsonl -->
//! <!-- end -->
//! <!-- table NAME of PATH.jsonl | COLUMN | COLUMN -->
//! <!-- end -->
//! <!-- claims of PATH.jsonl PATH.jsonl | WORDS -->
//! <!-- end -->
//! <!-- chart NAME of PATH.jsonl | LINE | LINE -->
//! <!-- end -->
//! ```
//!
//! A table or a chart may name the columns or the lines that it shows; without names it shows all. Claims may be chosen by
//! words in their text. A page names the origin of a record below its first table or chart.
//! Paths are relative to the page's directory and have no white space. Markers in a fenced block of code are text. A chart is
//! a file in [`DIRECTORY`](super::chart::DIRECTORY), next to the page. Files there that no page shows are not changed.
//!
//! Invariant: text outside the markers stays the same, byte for byte. Splicing a second time changes nothing. Cost: the page,
//! its records and its charts in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Context as _;
use polyserve::files::{MAX_CONTENT, read_text};
use polyserve_bench::Misuse;
use polyserve_bench::report::figures::counted;
use polyserve_bench::report::{Claim, Table, counted_verdicts, in_markdown};
use serde_json::Value;

use super::chart::ChartFile;
use super::{Record, shown_command};

/// A page: its text, and its text with the tables and charts of the records.
#[derive(Debug, Default)]
pub(crate) struct SplicedPage {
    /// Its path.
    pub(crate) path: PathBuf,
    /// The text of the file.
    pub(crate) text: String,
    /// The text with the tables and charts of the records.
    pub(crate) spliced: String,
    /// The number of its tables from records.
    pub(crate) tables: usize,
    /// The charts that it shows.
    pub(crate) charts: Vec<ChartFile>,
    /// The tables and charts that differ from their records.
    pub(crate) differences: Vec<Difference>,
}

/// A table or a chart that differs from its record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The text of its marker.
    pub(crate) what: String,
    /// The wrong lines of the page, or of the chart's file.
    pub(crate) stale: Vec<String>,
    /// The lines of the record in their place.
    pub(crate) expected: Vec<String>,
}

/// The text between two markers, and the difference in the file of its chart.
#[derive(Debug)]
struct SplicedContent {
    text: String,
    file_difference: Option<Difference>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.stale.iter().try_for_each(|line| writeln!(f, "-{line}"))?;
        self.expected.iter().try_for_each(|line| writeln!(f, "+{line}"))
    }
}

const BEGIN: &str = "<!-- ";
const END: &str = "<!-- end -->";

/// A marker: the table, the claims or the chart that it names.
#[derive(Debug, PartialEq, Eq)]
enum PageMarker<'a> {
    Table(RecordPart<'a>),
    Chart(RecordPart<'a>),
    Claims { paths: Vec<&'a str>, words: &'a str },
}

/// A table or a chart of a record.
#[derive(Debug, PartialEq, Eq)]
struct RecordPart<'a> {
    name: &'a str,
    path: &'a str,
    /// The chosen columns of the table, or lines of the chart; all if there are none.
    chosen: Vec<&'a str>,
}

/// Parses a marker. Returns `None` if the line is no marker.
fn parse_marker(line: &str) -> Result<Option<PageMarker<'_>>, String> {
    let Some(text) = line.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix("-->")).map(str::trim) else {
        return Ok(None);
    };
    let invalid = |form: &str| format!("{line:?} is not <!-- {form} -->");
    if let Some(rest) = text.strip_prefix("table ") {
        let source = RecordPart::parse(rest).ok_or_else(|| invalid("table NAME of PATH | COLUMN..."))?;
        return Ok(Some(PageMarker::Table(source)));
    }
    if let Some(rest) = text.strip_prefix("chart ") {
        let source = RecordPart::parse(rest).ok_or_else(|| invalid("chart NAME of PATH | LINE..."))?;
        return Ok(Some(PageMarker::Chart(source)));
    }
    match text.strip_prefix("claims of ") {
        Some(rest) => {
            let (paths, words) = rest.split_once('|').unwrap_or((rest, ""));
            Ok(Some(PageMarker::Claims { paths: paths.split_whitespace().collect(), words: words.trim() }))
        }
        None if text.starts_with("claims") => Err(invalid("claims of PATH...")),
        None => Ok(None),
    }
}

impl<'a> RecordPart<'a> {
    /// Parses `NAME of PATH | CHOSEN | CHOSEN`.
    fn parse(rest: &'a str) -> Option<Self> {
        let mut parts = rest.split('|').map(str::trim);
        let (name, path) = parts.next()?.rsplit_once(" of ")?;
        let source = Self { name: name.trim(), path: path.trim(), chosen: parts.collect() };
        Some(source).filter(|Self { name, path, .. }| !name.is_empty() && !path.contains(char::is_whitespace))
    }
}

/// Reads pages and their records.
pub(crate) fn spliced(paths: &[PathBuf]) -> anyhow::Result<Vec<SplicedPage>> {
    let mut records = ReadRecords::new();
    let pages = paths.iter().map(|path| page(path, &mut records)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut files: BTreeMap<PathBuf, &ChartFile> = BTreeMap::new();
    for page in &pages {
        for chart in &page.charts {
            let file = chart.path(page.dir());
            let shown = file.display().to_string();
            if files.insert(file, chart).is_some_and(|other| other != chart) {
                return Err(Misuse(format!("{}: two charts have the same file {shown}", page.path.display())).into());
            }
        }
    }
    Ok(pages)
}

fn page(path: &Path, records: &mut ReadRecords) -> anyhow::Result<SplicedPage> {
    let text = read_text(path, MAX_CONTENT).map_err(|error| Misuse(format!("{}: {error}", path.display())))?;
    let mut page = SplicedPage { path: path.to_owned(), ..SplicedPage::default() };
    let (mut tables, mut charts, mut origins) = (0, Vec::new(), BTreeSet::new());
    let mut content = |marker: &PageMarker<'_>| {
        let (text, chart) = content(page.dir(), marker, records, &mut origins)?;
        let file_difference = chart.as_ref().map(|chart| chart_difference(page.dir(), chart)).transpose()?.flatten();
        match chart {
            Some(chart) => charts.push(chart),
            None => tables += 1,
        }
        Ok(SplicedContent { text, file_difference })
    };
    let (spliced, differences) = splice(&text, &mut content).map_err(|error| {
        let message = format!("{}: {error:#}", path.display());
        if error.is::<Misuse>() { Misuse(message).into() } else { anyhow::Error::msg(message) }
    })?;
    (page.text, page.spliced, page.differences) = (text, spliced, differences);
    (page.tables, page.charts) = (tables, charts);
    Ok(page)
}

impl SplicedPage {
    /// The directory of the page. Paths in the page are relative to this directory.
    fn dir(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// Writes the charts that differ, then the page if it differs.
    pub(crate) fn write(&self) -> anyhow::Result<()> {
        self.charts.iter().try_for_each(|chart| chart.write(self.dir()))?;
        if self.text == self.spliced {
            return Ok(());
        }
        fs::write(&self.path, &self.spliced).with_context(|| self.path.display().to_string())
    }
}

/// The records by their paths. Each is read once, although a page has several of its tables.
type ReadRecords = BTreeMap<PathBuf, Rc<Record>>;

type PageContent<'a> = &'a mut dyn FnMut(&PageMarker<'_>) -> anyhow::Result<SplicedContent>;

/// Returns the text with the result of `content` between its markers.
fn splice(text: &str, content: PageContent<'_>) -> anyhow::Result<(String, Vec<Difference>)> {
    let (mut spliced, mut differences) = (String::with_capacity(text.len()), Vec::new());
    let mut lines = text.split_inclusive('\n').zip(1..);
    let mut fence: Option<&str> = None;
    while let Some((full_line, number)) = lines.next() {
        spliced.push_str(full_line);
        let line = full_line.trim();
        fence = fenced(fence, line);
        if fence.is_some() {
            continue;
        }
        let at = |message: String| Misuse(format!("line {number}: {message}"));
        if line == END {
            return Err(at(format!("{END} ends nothing")).into());
        }
        let Some(marker) = parse_marker(line).map_err(at)? else { continue };
        let mut existing = String::new();
        loop {
            let Some((inner, inner_number)) = lines.next() else {
                return Err(at(format!("{line} has no {END}")).into());
            };
            if inner.trim() == END {
                let end = if full_line.ends_with("\r\n") { "\r\n" } else { "\n" };
                let SplicedContent { text, file_difference } =
                    content(&marker).with_context(|| format!("line {number}"))?;
                let expected = text.replace('\n', end);
                if existing != expected || file_difference.is_some() {
                    let what = line.strip_prefix(BEGIN).unwrap_or(line).trim_end_matches("-->").trim().to_owned();
                    differences.push(difference(what, &existing, &expected).and(file_difference));
                }
                spliced.push_str(&expected);
                spliced.push_str(inner);
                break;
            }
            if parse_marker(inner.trim()).map_err(at)?.is_some() {
                let inner = inner.trim();
                return Err(Misuse(format!("line {inner_number}: {inner} is inside {line} of line {number}")).into());
            }
            existing.push_str(inner);
        }
    }
    Ok((spliced, differences))
}

/// Returns the fence of the block of code that the next line is in, if any.
fn fenced<'a>(fence: Option<&'a str>, line: &'a str) -> Option<&'a str> {
    let ticks = line.bytes().take_while(|byte| *byte == b'`').count();
    let tildes = line.bytes().take_while(|byte| *byte == b'~').count();
    let mark = &line[..ticks.max(tildes)];
    match fence {
        None if mark.len() >= 3 => Some(mark),
        Some(fence) if mark.starts_with(fence) && mark == line => None,
        fence => fence,
    }
}

/// Returns the lines that differ, without the common lines at the start and the end.
fn difference(what: String, existing: &str, expected: &str) -> Difference {
    let (mut stale, mut expected): (Vec<&str>, Vec<&str>) = (existing.lines().collect(), expected.lines().collect());
    let common = stale.iter().zip(&expected).take_while(|(old, new)| old == new).count();
    stale.drain(..common);
    expected.drain(..common);
    while !stale.is_empty() && stale.last() == expected.last() {
        stale.pop();
        expected.pop();
    }
    let owned = |lines: Vec<&str>| lines.into_iter().map(str::to_owned).collect();
    Difference { what, stale: owned(stale), expected: owned(expected) }
}

impl Difference {
    /// Joins two differences under the first name.
    fn and(mut self, other: Option<Self>) -> Self {
        if let Some(other) = other {
            self.stale.extend(other.stale);
            self.expected.extend(other.expected);
        }
        self
    }
}

/// Returns the difference between a chart and its file, if any.
fn chart_difference(page_dir: &Path, chart: &ChartFile) -> anyhow::Result<Option<Difference>> {
    let existing = match chart.existing(page_dir)? {
        Some(bytes) if bytes == chart.svg.as_bytes() => return Ok(None),
        Some(bytes) => bytes,
        None => {
            let expected = format!("{}, {} lines", chart.link(), chart.svg.lines().count());
            return Ok(Some(Difference { what: chart.link(), stale: Vec::new(), expected: vec![expected] }));
        }
    };
    Ok(Some(difference(chart.link(), &String::from_utf8_lossy(&existing), &chart.svg)))
}

/// Returns the text between two markers, and the chart if the marker names a chart. The text is the table or the chart,
/// and its origin unless that is in `origins`.
fn content(
    page_dir: &Path,
    marker: &PageMarker<'_>,
    cache: &mut ReadRecords,
    origins: &mut BTreeSet<PathBuf>,
) -> anyhow::Result<(String, Option<ChartFile>)> {
    let (mut text, records, chart) = match marker {
        PageMarker::Table(RecordPart { name, path, chosen }) => {
            let record = record(page_dir, path, cache)?;
            let mut table = table(&record, name)?;
            if !chosen.is_empty() {
                let unknown = |column| Misuse(format!("the table {name:?} of {path} has no column {column:?}"));
                table = table.only(chosen).map_err(unknown)?;
            }
            (table.markdown(), vec![record], None)
        }
        PageMarker::Chart(RecordPart { name, path, chosen }) => {
            let record = record(page_dir, path, cache)?;
            let chart = ChartFile::of(&record, Path::new(path), name, chosen)?;
            (format!("{}\n", chart.markdown()), vec![record], Some(chart))
        }
        PageMarker::Claims { paths, words } => {
            let records = paths.iter().map(|path| record(page_dir, path, cache)).collect::<anyhow::Result<Vec<_>>>()?;
            (claims(&records, words)?.markdown(), records, None)
        }
    };
    text = format!("\n{text}\n");
    for record in records.iter().filter(|record| origins.insert(record.path.clone())) {
        let _ = writeln!(text, "{}\n", origin(record)); // a string takes all
    }
    Ok((text, chart))
}

fn record(page_dir: &Path, path: &str, cache: &mut ReadRecords) -> anyhow::Result<Rc<Record>> {
    let path = page_dir.join(path);
    if !path.is_file() {
        return Err(Misuse(format!("there is no record {}", path.display())).into());
    }
    if let Some(record) = cache.get(&path) {
        return Ok(Rc::clone(record));
    }
    let record = Rc::new(Record::read(&path)?);
    cache.insert(path, Rc::clone(&record));
    Ok(record)
}

fn table(record: &Record, name: &str) -> anyhow::Result<Table> {
    let tables = record.tables()?;
    let found = tables.iter().find(|(other, _)| other == name);
    found.map(|(_, table)| table.clone()).ok_or_else(|| {
        let path = record.path.display();
        let names: Vec<&str> = tables.iter().map(|(name, _)| name.as_str()).collect();
        Misuse(format!("there is no table {name:?} of {path}; there are: {}", names.join(", "))).into()
    })
}

/// The claims of these records with these words, each with the figure that decides it and the verdict. The last row counts
/// the verdicts.
fn claims(records: &[Rc<Record>], words: &str) -> anyhow::Result<Table> {
    let mut table = Table::of_texts(&["claim", "here", "verdict"]);
    let mut all: Vec<Claim> = Vec::new();
    for record in records {
        let claims = &record.recorded().with_context(|| record.path.display().to_string())?.summary.claims;
        if claims.is_empty() {
            let path = record.path.display();
            return Err(Misuse(format!("nothing was published that {path} could confirm or refute")).into());
        }
        for claim in claims.iter().filter(|claim| claim.claim.contains(words)) {
            table.row(vec![claim.claim.clone(), claim.first_figure().to_owned(), claim.verdict.to_string()]);
            all.push(claim.clone());
        }
    }
    let count = counted(all.len() as u64, "claim");
    table.row(vec!["in all".to_owned(), count, counted_verdicts(&all)]);
    Ok(table)
}

/// Returns the origin of a record: command, date, machine and commit; and whether the record is complete.
fn origin(record: &Record) -> String {
    let header = record.headers().next().unwrap_or(&Value::Null);
    let field = |name: &str| header[name].as_str().map_or("unknown".into(), in_markdown);
    let cores = match header["cores"].as_u64() {
        Some(1) => "1 core".to_owned(),
        Some(cores) => format!("{cores} cores"),
        None => "unknown cores".to_owned(),
    };
    let date = field("date");
    let day = date.split('T').next().unwrap_or(&date);
    let (cpu, kernel, commit) = (field("cpu"), field("kernel"), field("commit"));
    let command = in_code(&shown_command(header));
    let mut text = format!("{command}, {day}, {cpu}, {cores}, Linux {kernel}, commit {commit}");
    if let Some(why) = record.incomplete_reason() {
        let _ = write!(text, "; not complete: {}", in_markdown(&why)); // a string takes all
    }
    text
}

/// Returns a text as inline code in Markdown. It may contain any characters.
fn in_code(text: &str) -> String {
    let longest = text.split(|char| char != '`').map(str::len).max().unwrap_or(0);
    let ticks = "`".repeat(longest + 1);
    let space = if longest > 0 { " " } else { "" };
    format!("{ticks}{space}{}{space}{ticks}", text.replace(['\n', '\r'], " "))
}

#[cfg(test)]
mod tests;
