//! The HTML page: for each record its answer, claims and charts, and its tables behind a click.
//!
//! Invariants: the page makes no requests, and its content security policy allows none. It runs one script, which sorts
//! tables. Texts of a record are escaped, so a server may have any name. The same records make the same page, to the byte.
//! Writing to a string does not fail. Cost: the records' summaries.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use polyserve_bench::report::svg::escaped;
use polyserve_bench::report::{Claim, Summary, Table, counted_verdicts};
use serde_json::Value;

use super::{Record, shown_command};

const STYLE: &str = include_str!("../../assets/report/report.css");
const SORT: &str = include_str!("../../assets/report/sort.js");

/// The kinds of lines of contestants without figures.
const WITHOUT_FIGURES: [&str; 3] = ["not_run", "refusal", "failure"];

/// Returns the page of these records. Records with an answer in words are first.
pub(crate) fn page(records: &[Record]) -> String {
    let mut sections: Vec<(bool, String)> = records.iter().map(section).collect();
    sections.sort_by_key(|(has_answer, _)| !has_answer);
    let sections: String = sections.into_iter().map(|(_, section)| section).collect();
    // The policy allows only the script with this nonce. It is a hash of the content, so no text of a record can contain it.
    let mut hasher = DefaultHasher::new();
    sections.hash(&mut hasher);
    let nonce = format!("{:016x}", hasher.finish());
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'nonce-{nonce}'; \
         style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>polyserve: measurements</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>polyserve: measurements</h1>\n\
         <p>Figures of one machine: compare ratios and shapes, and measure on your own.</p>\n\
         {sections}<script nonce=\"{nonce}\">\n{SORT}</script>\n</body>\n</html>\n"
    )
}

/// The section of a record, and whether it has an answer in words.
fn section(record: &Record) -> (bool, String) {
    let (summary, error) = match record.recorded() {
        Ok(recorded) => (recorded.summary.clone(), None),
        Err(error) => (Summary::default(), Some(format!("no result: {error:#}"))),
    };
    let Summary { answer, tables, charts, claims, .. } = summary;
    let title = if record.experiment.name.is_empty() { &record.name } else { record.experiment.title };
    let mut html = format!("<section>\n<h2>{}</h2>\n", escaped(title));
    for (place, line) in answer.iter().enumerate() {
        let class = if place == 0 { " class=\"answer\"" } else { "" };
        let _ = writeln!(html, "<p{class}>{}</p>", escaped(line));
    }
    let incomplete = record.incomplete_reason().map(|reason| format!("not complete: {reason}"));
    for warning in incomplete.into_iter().chain(error) {
        let _ = writeln!(html, "<p class=\"warning\">{}</p>", escaped(&warning));
    }
    for (_, chart) in &charts {
        let _ = writeln!(html, "<div class=\"chart\">{}</div>", chart.to_svg());
    }
    html.push_str(&claim_list(&claims));
    for (place, (name, table)) in tables.iter().enumerate() {
        let is_answer = place == 0 && !answer.is_empty();
        html.push_str(&table_details(name, table, is_answer));
    }
    html.push_str(&without_figures(record));
    html.push_str(&origin(record));
    html.push_str("</section>\n");
    (!answer.is_empty(), html)
}

fn table_details(name: &str, table: &Table, is_open: bool) -> String {
    let open = if is_open { " open" } else { "" };
    let rows = table.rows().len().saturating_sub(1);
    let name = escaped(name);
    format!(
        "<details{open}><summary>{name} ({rows})</summary>\n<div class=\"scroll\">{}</div></details>\n",
        table.html()
    )
}

/// The number of claims of each verdict, and a line for each claim. Its figures are behind a click.
fn claim_list(claims: &[Claim]) -> String {
    if claims.is_empty() {
        return String::new();
    }
    let mut html = format!("<h3>Published claims: {}</h3>\n", counted_verdicts(claims));
    for Claim { claim, published, verdict, figure, .. } in claims {
        let published = published.as_ref().map(|published| format!("<p>published: {}</p>", escaped(published)));
        let _ = writeln!(
            html,
            "<details><summary><span class=\"verdict {verdict}\">{verdict}</span> {}</summary><p>{}</p>{}</details>",
            escaped(claim),
            escaped(figure),
            published.unwrap_or_default()
        );
    }
    html
}

/// The contestants without figures, with the reasons.
fn without_figures(record: &Record) -> String {
    let is_one = |line: &&Value| WITHOUT_FIGURES.iter().any(|kind| line["kind"] == *kind);
    let text = |value: &Value| value.as_str().map(String::from);
    let mut reasons: Vec<String> = record
        .lines
        .iter()
        .filter(is_one)
        .map(|line| {
            let name = ["name", "contestant", "server"].iter().find_map(|field| text(&line[*field]));
            let why = text(&line["why"]).unwrap_or_default();
            format!("<li>{}: {}</li>\n", escaped(&name.unwrap_or_default()), escaped(&why))
        })
        .collect();
    reasons.sort();
    reasons.dedup();
    match reasons.len() {
        0 => String::new(),
        count => {
            let list = reasons.concat();
            format!("<details><summary>without figures ({count})</summary>\n<ul>\n{list}</ul></details>\n")
        }
    }
}

/// The command, the machine, and all else that the headers say.
fn origin(record: &Record) -> String {
    let mut html = String::new();
    let _ = writeln!(html, "<p class=\"origin\">record: {}</p>", escaped(&short_path(&record.path)));
    for header in record.headers() {
        let command = escaped(&shown_command(header));
        let _ = writeln!(html, "<details class=\"origin\"><summary><code>{command}</code></summary><dl>");
        for (field, value) in header.as_object().into_iter().flatten().filter(|(field, _)| *field != "command") {
            let value = value.as_str().map_or_else(|| value.to_string(), String::from);
            let _ = writeln!(html, "<dt>{}</dt><dd>{}</dd>", escaped(field), escaped(&value));
        }
        html.push_str("</dl></details>\n");
    }
    html
}

/// Returns the names of a record's file and its directory, without the rest of the machine's path.
fn short_path(path: &Path) -> String {
    let names: Vec<_> = path.iter().rev().take(2).map(|name| name.to_string_lossy()).collect();
    names.into_iter().rev().collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::json;

    use super::*;

    fn record(name: &str, lines: Vec<Value>) -> Record {
        Record::new(Path::new("dir/file.jsonl"), name, lines)
    }

    #[test]
    fn the_page_does_not_tell_where_its_records_are() {
        let header = json!({"kind": "environment", "command": ["/a/machine/polyserve", "page", "--out", "/a/machine"]});
        let mut record = record("page", vec![header, json!({"kind": "cell", "server": "a"})]);
        record.path = PathBuf::from("/a/machine/results/page.jsonl");
        let page = page(&[record]);
        assert!(page.contains("results/page.jsonl") && !page.contains("/machine"), "{page}");
    }

    /// A user can choose any name for a server.
    #[test]
    fn a_name_cannot_break_the_page() {
        let name = "</script><script>alert(1)</script><!-- \u{2028} &\"'";
        let lines = vec![
            json!({"kind": "environment", "command": [name], "cpu": name}),
            json!({"kind": "not_run", "name": name, "why": name}),
        ];
        let page = page(&[record(name, lines)]);
        assert_eq!(page.matches("<script").count(), 1, "{page}");
        assert!(!page.contains("<!--"), "{page}");
        assert!(page.matches("&lt;/script&gt;&lt;script&gt;alert(1)").count() >= 4, "{page}");
    }

    #[test]
    fn the_same_records_give_the_same_page_which_asks_for_nothing() {
        let sample = || record("page", vec![json!({"kind": "environment"}), json!({"kind": "cell", "server": "a"})]);
        let page = page(&[sample()]);
        assert_eq!(page, super::page(&[sample()]));
        for asking in [" src=", "<link", "@import", "url("] {
            assert!(!page.contains(asking), "{asking}");
        }
        assert!(page.contains("default-src 'none'"));
    }
}
