//! Tables in Markdown pages, written there by the program that has the records: nobody copies a figure by hand.
//!
//! A page names what stands in it, on lines of their own, and everything between them is rewritten:
//!
//! ```text
//! <!-- table NAME of PATH.jsonl -->
//! <!-- end -->
//! <!-- claims of PATH.jsonl PATH.jsonl -->
//! <!-- end -->
//! ```
//!
//! Paths begin at the page's own directory and have no white space. What stands in a fenced block of code is text.
//!
//! Invariant: what stands outside such a pair stays as it is, byte for byte, its line ends too; splicing twice changes
//! nothing more. Cost: the page and its records in memory.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

use super::{Record, shown_command};
use crate::Misuse;
use crate::output::{Table, in_markdown};

/// A page as it is, and as its records say that it should be.
#[derive(Debug)]
pub struct Page {
    /// Where it is.
    pub path: PathBuf,
    /// As it is.
    pub text: String,
    /// As it should be.
    pub spliced: String,
    /// How many tables it has from records.
    pub tables: usize,
    /// What stands in it that is not as it should be.
    pub differences: Vec<Difference>,
}

/// A table that is not as its record says.
#[derive(Debug, PartialEq, Eq)]
pub struct Difference {
    /// What the page names it.
    pub what: String,
    /// The lines that stand there and should not.
    pub stale: Vec<String>,
    /// The lines that should stand there.
    pub due: Vec<String>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.stale.iter().try_for_each(|line| writeln!(f, "-{line}"))?;
        self.due.iter().try_for_each(|line| writeln!(f, "+{line}"))
    }
}

const BEGIN: &str = "<!-- ";
const END: &str = "<!-- end -->";

/// What is to stand between two markers.
#[derive(Debug, PartialEq, Eq)]
enum Wanted<'a> {
    Table { name: &'a str, path: &'a str },
    Claims { paths: Vec<&'a str> },
}

/// What a line asks for; `None` where it is no marker.
fn wanted(line: &str) -> Result<Option<Wanted<'_>>, String> {
    let Some(text) = line.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix("-->")).map(str::trim) else {
        return Ok(None);
    };
    if let Some(rest) = text.strip_prefix("table ") {
        return match rest.rsplit_once(" of ") {
            Some((name, path)) if !name.trim().is_empty() && !path.trim().contains(char::is_whitespace) => {
                Ok(Some(Wanted::Table { name: name.trim(), path: path.trim() }))
            }
            _ => Err(format!("{line:?} is not <!-- table NAME of PATH -->")),
        };
    }
    match text.strip_prefix("claims of ") {
        Some(paths) => Ok(Some(Wanted::Claims { paths: paths.split_whitespace().collect() })),
        None if text.starts_with("claims") => Err(format!("{line:?} is not <!-- claims of PATH... -->")),
        None => Ok(None),
    }
}

/// Reads a page and what its records say.
///
/// # Errors
///
/// [`Misuse`](crate) where a marker makes no sense, or names a record or a table that is not there; or where anything
/// cannot be read.
pub fn spliced(path: &Path) -> anyhow::Result<Page> {
    let text = fs::read_to_string(path).map_err(|error| Misuse(format!("{}: {error}", path.display())))?;
    let within = path.parent().unwrap_or(Path::new(""));
    let mut tables = 0;
    let mut count = |wanted: &Wanted<'_>| {
        tables += 1;
        content(within, wanted)
    };
    let (spliced, differences) = splice(&text, &mut count).map_err(|error| {
        let said = format!("{}: {error:#}", path.display());
        if error.is::<Misuse>() { Misuse(said).into() } else { anyhow::Error::msg(said) }
    })?;
    Ok(Page { path: path.to_owned(), text, spliced, tables, differences })
}

impl Page {
    /// Writes it as it should be, where it is not so.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn write(&self) -> anyhow::Result<()> {
        if self.text == self.spliced {
            return Ok(());
        }
        fs::write(&self.path, &self.spliced).with_context(|| self.path.display().to_string())
    }
}

type Content<'a> = &'a mut dyn FnMut(&Wanted<'_>) -> anyhow::Result<String>;

/// The text with what `content` gives between its markers.
fn splice(text: &str, content: Content<'_>) -> anyhow::Result<(String, Vec<Difference>)> {
    let (mut spliced, mut differences) = (String::with_capacity(text.len()), Vec::new());
    let mut lines = text.split_inclusive('\n').zip(1..);
    let mut fence: Option<&str> = None;
    while let Some((whole, number)) = lines.next() {
        spliced.push_str(whole);
        let line = whole.trim();
        fence = fenced(fence, line);
        if fence.is_some() {
            continue;
        }
        let at = |said: String| Misuse(format!("line {number}: {said}"));
        if line == END {
            return Err(at(format!("{END} ends nothing")).into());
        }
        let Some(asked) = wanted(line).map_err(at)? else { continue };
        let mut stands = String::new();
        loop {
            let Some((inner, place)) = lines.next() else {
                return Err(at(format!("{line} has no {END}")).into());
            };
            if inner.trim() == END {
                let end = if whole.ends_with("\r\n") { "\r\n" } else { "\n" };
                let due = content(&asked).with_context(|| format!("line {number}"))?.replace('\n', end);
                if stands != due {
                    let what = line.strip_prefix(BEGIN).unwrap_or(line).trim_end_matches("-->").trim().to_owned();
                    differences.push(difference(what, &stands, &due));
                }
                spliced.push_str(&due);
                spliced.push_str(inner);
                break;
            }
            if wanted(inner.trim()).map_err(at)?.is_some() {
                let inner = inner.trim();
                return Err(Misuse(format!("line {place}: {inner} stands within {line} of line {number}")).into());
            }
            stands.push_str(inner);
        }
    }
    Ok((spliced, differences))
}

/// The fence of the block of code that goes on after this line, if one does.
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

/// The lines that differ: those that both begin or end with are left out.
fn difference(what: String, stands: &str, due: &str) -> Difference {
    let (mut stale, mut due): (Vec<&str>, Vec<&str>) = (stands.lines().collect(), due.lines().collect());
    let common = stale.iter().zip(&due).take_while(|(one, other)| one == other).count();
    stale.drain(..common);
    due.drain(..common);
    while !stale.is_empty() && stale.last() == due.last() {
        stale.pop();
        due.pop();
    }
    let owned = |lines: Vec<&str>| lines.into_iter().map(str::to_owned).collect();
    Difference { what, stale: owned(stale), due: owned(due) }
}

/// What stands between two markers: the table, and below it what made it.
fn content(within: &Path, wanted: &Wanted<'_>) -> anyhow::Result<String> {
    let (table, records) = match wanted {
        Wanted::Table { name, path } => {
            let record = record(within, path)?;
            (table(&record, name)?, vec![record])
        }
        Wanted::Claims { paths } => {
            let records = paths.iter().map(|path| record(within, path)).collect::<anyhow::Result<Vec<_>>>()?;
            (claims(&records)?, records)
        }
    };
    let mut text = format!("\n{}\n", table.markdown());
    for record in &records {
        let _ = writeln!(text, "{}\n", origin(record)); // a string takes all
    }
    Ok(text)
}

fn record(within: &Path, path: &str) -> anyhow::Result<Record> {
    let path = within.join(path);
    if !path.is_file() {
        return Err(Misuse(format!("there is no record {}", path.display())).into());
    }
    Record::read(&path)
}

fn table(record: &Record, name: &str) -> anyhow::Result<Table> {
    let tables = record.tables()?;
    let names: Vec<String> = tables.iter().map(|(name, _)| name.clone()).collect();
    let found = tables.into_iter().find(|(other, _)| other == name);
    found.map(|(_, table)| table).ok_or_else(|| {
        let path = record.path.display();
        Misuse(format!("there is no table {name:?} of {path}; there are: {}", names.join(", "))).into()
    })
}

/// The claims of these records, each with its verdict and figure.
///
/// # Errors
///
/// [`Misuse`](crate) where one of them claims nothing; or where the lines are not as this program records them.
pub fn claims(records: &[Record]) -> anyhow::Result<Table> {
    let mut table = Table::of_texts(&["claim", "verdict", "figure"]);
    for record in records {
        let claims = record.claims()?;
        if claims.is_empty() {
            let path = record.path.display();
            return Err(Misuse(format!("nothing was published that {path} could confirm or refute")).into());
        }
        for claim in claims {
            table.row(vec![claim.claim, claim.verdict.to_string(), claim.figure]);
        }
    }
    Ok(table)
}

/// What made a record, when, where, from which commit; and whether it is all that there was to be.
fn origin(record: &Record) -> String {
    let header = record.headers().next().unwrap_or(&Value::Null);
    let said = |name: &str| header[name].as_str().map_or("unknown".into(), in_markdown);
    let cores = match header["cores"].as_u64() {
        Some(1) => "1 core".to_owned(),
        Some(cores) => format!("{cores} cores"),
        None => "unknown cores".to_owned(),
    };
    let date = said("date");
    let day = date.split('T').next().unwrap_or(&date);
    let (cpu, kernel, commit) = (said("cpu"), said("kernel"), said("commit"));
    let command = in_code(&shown_command(header));
    let mut text = format!("{command}, {day}, {cpu}, {cores}, Linux {kernel}, commit {commit}");
    if let Some(why) = record.is_short_of() {
        let _ = write!(text, "; not complete: {}", in_markdown(&why)); // a string takes all
    }
    text
}

/// A text as code in Markdown, whatever it says.
fn in_code(text: &str) -> String {
    let longest = text.split(|char| char != '`').map(str::len).max().unwrap_or(0);
    let ticks = "`".repeat(longest + 1);
    let space = if longest > 0 { " " } else { "" };
    format!("{ticks}{space}{}{space}{ticks}", text.replace(['\n', '\r'], " "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    use crate::report::experiments;

    fn known(wanted: &Wanted<'_>) -> anyhow::Result<String> {
        match wanted {
            Wanted::Table { name: "t", path: "x.jsonl" } => Ok("\n| a |\n\n".into()),
            Wanted::Claims { paths } if paths == &["x.jsonl", "y.jsonl"] => Ok("claims\n".into()),
            other => Err(Misuse(format!("{other:?}")).into()),
        }
    }

    fn done(text: &str) -> (String, Vec<Difference>) {
        splice(text, &mut known).unwrap()
    }

    fn refused(text: &str) -> String {
        let error = splice(text, &mut known).unwrap_err();
        assert!(error.is::<Misuse>(), "{error:#}");
        format!("{error:#}")
    }

    #[test]
    fn what_is_outside_stays_and_twice_is_as_once() {
        let page =
            "# Title \t\n<!-- a comment -->\n<!-- table t of x.jsonl -->\nold\n<!-- end -->\nafter, without an end";
        let (spliced, differences) = done(page);
        let due = "# Title \t\n<!-- a comment -->\n<!-- table t of x.jsonl -->\n\n| a |\n\n<!-- end -->\nafter, without an end";
        assert_eq!(spliced, due);
        assert_eq!((differences.len(), differences[0].what.as_str()), (1, "table t of x.jsonl"));
        assert_eq!(differences[0].to_string(), "-old\n+\n+| a |\n+\n");
        assert_eq!(done(&spliced), (spliced.clone(), Vec::new()));
        assert_eq!(done("nothing\nasked").0, "nothing\nasked");
    }

    #[test]
    fn lines_end_as_the_pages_do() {
        let page = "a\r\n<!-- claims of x.jsonl y.jsonl -->\r\n<!-- end -->\r\nb\r\n";
        let (spliced, differences) = done(page);
        assert_eq!(spliced, "a\r\n<!-- claims of x.jsonl y.jsonl -->\r\nclaims\r\n<!-- end -->\r\nb\r\n");
        assert_eq!(differences[0].to_string(), "+claims\n");
        assert_eq!(done(&spliced).1, []);
    }

    #[test]
    fn only_the_lines_that_differ_are_said() {
        let said = difference("t".into(), "same\nold\nlast\n", "same\nnew\nnewer\nlast\n").to_string();
        assert_eq!(said, "-old\n+new\n+newer\n");
    }

    /// A page that tells how this is done shows the markers.
    #[test]
    fn a_block_of_code_is_text() {
        for page in ["```text\n<!-- table no of no -->\n<!-- end -->\n```\n", "~~~~\n```\n<!-- end -->\n~~~~\n"] {
            assert_eq!(done(page), (page.to_owned(), Vec::new()));
        }
    }

    #[test]
    fn markers_that_make_no_sense_are_refused() {
        for (page, why) in [
            ("<!-- table t of x.jsonl -->\n", "line 1: <!-- table t of x.jsonl --> has no <!-- end -->"),
            ("<!-- end -->", "line 1: <!-- end --> ends nothing"),
            ("<!-- table t of x.jsonl -->\n<!-- table t of x.jsonl -->\n<!-- end -->", "line 2: "),
            ("\n<!-- table t -->\n<!-- end -->", "line 2: \"<!-- table t -->\" is not"),
            ("<!-- table t of a b -->\n<!-- end -->", "is not <!-- table NAME of PATH -->"),
            ("<!-- claims x -->\n<!-- end -->", "is not <!-- claims of PATH... -->"),
            ("<!-- table other of x.jsonl -->\n<!-- end -->", "line 1: Table"),
        ] {
            let said = refused(page);
            assert!(said.contains(why), "{page:?}: {said}");
        }
    }

    #[test]
    fn below_a_table_stands_what_made_it() {
        let header = json!({
            "kind": "environment", "command": ["/a/polyserve", "page", "--out=x", "`"], "date": "2026-11-21T18:00:00Z",
            "cpu": "One|Two", "cores": 1, "kernel": "6.1", "commit": "abc"
        });
        let lines = vec![header, json!({"kind": "cell", "server": "a", "n": 1.5})];
        let record =
            |lines| Record { path: "x.jsonl".into(), name: "x".into(), experiment: experiments::named("x"), lines };
        let whole = record(lines.clone());
        assert_eq!(origin(&whole), r"`` polyserve page '`' ``, 2026-11-21, One\|Two, 1 core, Linux 6.1, commit abc");
        let bare = record(lines[1..].to_vec());
        assert!(origin(&bare).ends_with("; not complete: nothing says where and with what it was measured"));
        assert_eq!(table(&whole, "cell").unwrap().rows()[1], ["a", "1.5"]);
        let said = table(&whole, "pools").unwrap_err().to_string();
        assert_eq!(said, "there is no table \"pools\" of x.jsonl; there are: cell");
        assert!(claims(&[whole]).unwrap_err().to_string().contains("nothing was published"));
    }
}
