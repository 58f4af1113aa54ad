//! The requests of a load: from flags, or from a file.
//!
//! A file has one request in each line, as a JSON object:
//!
//! ```text
//! {"url": "/1"}
//! {"url": "http://127.0.0.1:8001/", "method": "PUT", "headers": {"Content-Type": "application/json"}, "body": "{}", "weight": 3}
//! {"url": "/", "method": "PUT", "body_file": "entity.json"}
//! {"url": "/products/{id}", "id": "1-1000", "status": [200, 404], "weight": 9}
//! ```
//!
//! `url` is the only field that is needed. `method` is GET by default, POST with a body. `body_file` is relative to the file.
//! A header field that is sent several times has a list of values: `{"Cookie": ["a=1", "b=2"]}`. `weight` is how often a request is
//! sent in relation to the others, 1 by default. `id` is a range, both ends included: an id of the range replaces `{id}` in the url
//! and in the body. `status` is the expected status, or a list; without it, any 2xx and a 304 is right. `check` is what of the answer
//! is compared at most: `body`, `length` or `status`. Empty lines, lines that begin with `#`, perhaps after blanks, and a byte order mark
//! are skipped.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use polyserve::files::{MAX_CONTENT, read_all, read_bounded, read_text};
use polyserve_bench::Misuse;
use polyserve_load::{AnswerCheck, Exchange, Traffic};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

use super::url::Url;

/// A line of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRequest {
    url: String,
    method: Option<String>,
    #[serde(default)]
    headers: FileHeaders,
    body: Option<String>,
    body_file: Option<PathBuf>,
    weight: Option<u32>,
    id: Option<String>,
    status: Option<Statuses>,
    check: Option<FileCheck>,
}

/// What of the answer is compared.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FileCheck {
    Body,
    Length,
    Status,
}

/// The expected statuses.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "status is neither a number nor a list of numbers")]
enum Statuses {
    One(u16),
    Several(Vec<u16>),
}

/// Header fields, as a JSON object.
#[derive(Debug, Default)]
struct FileHeaders(Vec<(String, String)>);

impl<'de> Deserialize<'de> for FileHeaders {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FileHeadersVisitor)
    }
}

/// Reads [`FileHeaders`]. A map type of the standard library would keep the last of two equal names.
struct FileHeadersVisitor;

/// The values of a field.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a value of headers is neither a text nor a list of texts")]
enum Values {
    One(String),
    Several(Vec<String>),
}

impl<'de> Visitor<'de> for FileHeadersVisitor {
    type Value = FileHeaders;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of header fields")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<FileHeaders, M::Error> {
        let (mut names, mut fields) = (Vec::<String>::new(), Vec::new());
        while let Some((name, values)) = map.next_entry::<String, Values>()? {
            if names.iter().any(|other| other.eq_ignore_ascii_case(&name)) {
                return Err(M::Error::custom(format!("the field {name} stands twice: use one list of its values")));
            }
            let values = match values {
                Values::One(value) => vec![value],
                Values::Several(values) => values,
            };
            fields.extend(values.into_iter().map(|value| (name.clone(), value)));
            names.push(name);
        }
        Ok(FileHeaders(fields))
    }
}

/// The method of a request without one.
fn default_method(body: Option<&[u8]>) -> &'static str {
    if body.is_some() { "POST" } else { "GET" }
}

/// Returns one request for each URL.
pub(super) fn of_urls(
    urls: &[Url],
    method: Option<&str>,
    headers: &[(String, String)],
    body: Option<&[u8]>,
) -> Vec<Exchange> {
    let method = method.unwrap_or(default_method(body));
    let request = |url: &Url| {
        Exchange::new(method, url.path()).with(|request| {
            (request.headers, request.body) = (headers.to_vec(), body.map(<[u8]>::to_vec));
        })
    };
    urls.iter().map(request).collect()
}

/// The server of the requests in a file.
pub(crate) enum FileServer<'a> {
    /// The server of URLs without a host. If it is `None`, the first URL with a host sets it.
    Named(&'a mut Option<Url>),
    /// Servers that are started later: no URL has a host.
    Started,
}

/// Reads the requests of a file.
///
/// # Errors
///
/// Returns [`Misuse`], which names the file and the line.
pub(crate) fn of_file(path: &Path, mut server: FileServer<'_>) -> Result<Vec<Exchange>, Misuse> {
    let text = read_text(path, MAX_CONTENT).map_err(|error| Misuse(format!("{}: {error}", path.display())))?;
    let mut requests = Vec::new();
    for (line, number) in text.strip_prefix('\u{feff}').unwrap_or(&text).lines().zip(1..) {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let wrong = |why: String| Misuse(format!("{}:{number}: {why}", path.display()));
        requests.push(request(line, path, &mut server).map_err(wrong)?);
    }
    if requests.is_empty() {
        return Err(Misuse(format!("{} has no request", path.display())));
    }
    Ok(requests)
}

/// Returns the request of a line.
fn request(line: &str, path: &Path, server: &mut FileServer<'_>) -> Result<Exchange, String> {
    let line: FileRequest = serde_json::from_str(line).map_err(|error| json_error(&error))?;
    let target = if line.url.starts_with('/') || line.url == "*" {
        line.url
    } else {
        let url: Url = line.url.parse()?;
        let FileServer::Named(server) = server else {
            return Err(format!(
                "{url} names a server, and the servers are started here: use a path such as {}",
                url.path()
            ));
        };
        let first = server.get_or_insert_with(|| url.clone());
        if first.origin() != url.origin() {
            return Err(format!("{url} is not on the server {}: a load has one", first.origin()));
        }
        url.path().to_owned()
    };
    let body = match (line.body, line.body_file) {
        (Some(_), Some(_)) => return Err(String::from("a request has body or body_file, not both")),
        (body, None) => body.map(String::into_bytes),
        (None, Some(file)) => {
            let file = path.parent().unwrap_or(Path::new("")).join(file);
            Some(read_bounded(&file, MAX_CONTENT).map_err(|error| format!("{}: {error}", file.display()))?)
        }
    };
    let ids = line.id.as_deref().map(range).transpose()?;
    if ids.is_none() && target.contains("{id}") {
        return Err(String::from("the url has {id}, and the line has no range: add \"id\": \"1-1000\""));
    }
    let method = line.method.unwrap_or_else(|| default_method(body.as_deref()).to_owned());
    let is_safe = ["GET", "HEAD", "OPTIONS"].contains(&method.as_str());
    let is_judged_by_status = !is_safe && matches!(server, FileServer::Started);
    let request = Exchange::new(&method, &target).with(|request| {
        (request.headers, request.body) = (line.headers.0, body);
        request.weight = line.weight.unwrap_or(1);
        request.ids = ids;
        request.has_given_status = line.status.is_some();
        request.judged = match line.check {
            None if is_judged_by_status => AnswerCheck::Status,
            None | Some(FileCheck::Body) => AnswerCheck::Body,
            Some(FileCheck::Length) => AnswerCheck::Length,
            Some(FileCheck::Status) => AnswerCheck::Status,
        };
        match line.status {
            Some(Statuses::One(status)) => request.statuses = vec![status],
            Some(Statuses::Several(statuses)) => request.statuses = statuses,
            None => {}
        }
    });
    if request.statuses.is_empty() || request.statuses.iter().any(|status| !(200..600).contains(status)) {
        return Err(String::from("status is not from 200 to 599"));
    }
    // The error names the line.
    Traffic::discovering(vec![request.clone()]).map_err(|error| error.to_string())?;
    Ok(request)
}

/// Reads a range of ids, both ends included.
fn range(text: &str) -> Result<RangeInclusive<u64>, String> {
    let ends = text.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    match ends {
        Some((first, last)) if first <= last => Ok(first..=last),
        _ => Err(format!("id {text:?} is no range of numbers such as \"1-1000\"")),
    }
}

/// The error of a line of JSON. serde counts lines from the start of the text, which is a line here.
fn json_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let why = text.rsplit_once(" at line ").map_or(&*text, |(why, _)| why);
    format!("{why}, at column {}", error.column())
}

/// Reads a method of the command line.
pub(super) fn method(text: &str) -> Result<String, String> {
    Traffic::one(text, "/", None, None).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

/// Reads a header field of the command line: `Name: value`, or `Name;` for a field without a value.
pub(crate) fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = match text.split_once(':') {
        Some((name, value)) if value.trim().is_empty() => {
            return Err(format!(
                "'{name};' sends the field without a value; there is no field that '{name}:' could remove"
            ));
        }
        Some((name, value)) => (name, value.trim()),
        None => (text.strip_suffix(';').ok_or("a header field is NAME: VALUE")?, ""),
    };
    let field = (name.to_owned(), value.to_owned());
    let request = Exchange::new("GET", "/").with(|request| request.headers = vec![field.clone()]);
    Traffic::discovering(vec![request]).map_err(|error| error.to_string())?;
    Ok(field)
}

/// Reads the parts of a body of the command line, and joins them by `&`. A part is the text, `@FILE`, or `@-` for standard input.
pub(super) fn body(parts: &[String]) -> Result<Option<Vec<u8>>, Misuse> {
    let part = |text: &String| match text.strip_prefix('@') {
        Some("-") => {
            let read = read_all(io::stdin().lock(), MAX_CONTENT);
            read.map_err(|error| Misuse(format!("--data @-: standard input: {error}")))
        }
        Some(file) => read_bounded(file, MAX_CONTENT).map_err(|error| Misuse(format!("--data @{file}: {error}"))),
        None => Ok(text.as_bytes().to_vec()),
    };
    let parts = parts.iter().map(part).collect::<Result<Vec<_>, _>>()?;
    Ok(if parts.is_empty() { None } else { Some(parts.join(&b'&')) })
}
