//! `polyserve report`: a page of recorded runs, and tables and charts of them in Markdown pages.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use polyserve_bench::output::{print, print_json};
use polyserve_bench::report::{Claim, counted_verdicts};
use serde::Serialize;

use crate::report::chart::ChartFile;
use crate::report::splice::{self, SplicedPage};
use crate::report::{self, Record, html};

/// The arguments of `polyserve report`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// Directories of recorded runs, or single records.
    #[arg(value_name = "DIR", required_unless_present = "splice")]
    records: Vec<PathBuf>,
    /// The file of the page. An existing file is replaced. [default: report.html]
    #[arg(long, value_name = "FILE", requires = "records")]
    html: Option<PathBuf>,
    /// Markdown pages. The text between `<!-- table NAME of PATH -->`, `<!-- claims of PATH... -->` or
    /// `<!-- chart NAME of PATH -->` and `<!-- end -->` is rewritten from the records. `PATH | COLUMN | COLUMN` chooses
    /// columns of a table, `PATH | LINE | LINE` lines of a chart, and `PATH | WORDS` claims with these words. Charts are files
    /// in `charts` in the directory of the page; other files there stay.
    #[arg(long, value_name = "PAGE", num_args = 1..)]
    splice: Vec<PathBuf>,
    /// Change no page and no chart. Print the differences from the records, and exit with 1 if there is one.
    #[arg(long, requires = "splice")]
    check: bool,
}

/// The JSON of the command.
#[derive(Debug, Default, Serialize)]
struct ReportOutput {
    /// The path of the written page.
    html: Option<String>,
    records: Vec<RecordSummary>,
    pages: Vec<Spliced>,
}

#[derive(Debug, Serialize)]
struct RecordSummary {
    file: String,
    experiment: String,
    lines: usize,
    short_of: Option<String>,
    claims: Vec<Claim>,
    tables: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Spliced {
    page: String,
    /// The number of its tables from records.
    tables: usize,
    /// The files of its charts.
    charts: Vec<String>,
    /// The tables and charts that differ from their records.
    differences: Vec<String>,
}

pub(crate) fn run(args: &ReportArgs, json: bool) -> anyhow::Result<ExitCode> {
    let mut output = ReportOutput::default();
    let mut text = String::new();
    if !args.records.is_empty() {
        let path = args.html.clone().unwrap_or_else(|| PathBuf::from("report.html"));
        let records = report::read(&args.records)?;
        output.records = records.iter().map(RecordSummary::of).collect();
        fs::write(&path, html::page(&records)).with_context(|| format!("{} cannot be written", path.display()))?;
        for record in &output.records {
            text.push_str(&record.to_string());
        }
        text.push_str(&format!("{}\n", path.display()));
        output.html = Some(path.display().to_string());
    }
    // All pages are read before one is written.
    let pages = splice::spliced(&args.splice)?;
    let mut code = ExitCode::SUCCESS;
    for page in &pages {
        let path = page.path.display();
        for difference in &page.differences {
            let verb = if args.check { "differs from its record" } else { "rewritten" };
            text.push_str(&format!("{path}: {}: {verb}\n", difference.what));
            if args.check {
                text.push_str(&difference.to_string());
                code = ExitCode::FAILURE;
            }
        }
        text.push_str(&format!("{path}: {}\n", status(page)));
        if !args.check {
            page.write()?;
        }
        let differences = page.differences.iter().map(|difference| difference.what.clone()).collect();
        let charts = page.charts.iter().map(ChartFile::link).collect();
        output.pages.push(Spliced { page: path.to_string(), tables: page.tables, charts, differences });
    }
    if json { print_json(&output) } else { print(&text) }?;
    Ok(code)
}

/// The number of tables and charts that agree with their records, in words.
fn status(page: &SplicedPage) -> String {
    let what = if page.charts.is_empty() { "tables" } else { "tables and charts" };
    let all = page.tables + page.charts.len();
    match (all, all - page.differences.len()) {
        (0, _) => "no table from a record".into(),
        (all, up_to_date) if all == up_to_date => format!("{what} up to date: {all}"),
        (all, up_to_date) => format!("{what} that were up to date: {up_to_date} of {all}"),
    }
}

impl RecordSummary {
    fn of(record: &Record) -> Self {
        Self {
            file: record.path.display().to_string(),
            experiment: record.name.clone(),
            lines: record.lines.len(),
            short_of: record.incomplete_reason(),
            // The page has the error of a record that has no result.
            claims: record.recorded().map(|recorded| recorded.summary.claims.clone()).unwrap_or_default(),
            tables: record.tables().unwrap_or_default().iter().map(|(name, _)| name.clone()).collect(),
        }
    }
}

impl std::fmt::Display for RecordSummary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { file, experiment, lines, short_of, claims, .. } = self;
        write!(f, "{file}: {experiment}, {lines} lines")?;
        if !claims.is_empty() {
            write!(f, "; claims: {}", counted_verdicts(claims))?;
        }
        if let Some(why) = short_of {
            write!(f, "; not complete: {why}")?;
        }
        writeln!(f)
    }
}
