//! The requests of a load: from flags, or from a file.
//!
//! A file has one request in each line, as a JSON object:
//!
//! ```text
//! {"url": "/1"}
//! {"url": "http://127.0.0.1:8001/", "method": "PUT", "headers": {"Content-Type": "application/json"}, "body": "{}", "weight": 3}
//! {"url": "/", "method": "PUT", "body_file": "entity.json"}
//! ```
//!
//! `url` is the only field that is needed. `method` is GET by default, POST with a body. `body_file` is relative to the file.
//! A header field that is sent several times has a list of values: `{"Cookie": ["a=1", "b=2"]}`. `weight` is how often a request is
//! sent in relation to the others, 1 by default. Empty lines, lines that begin with `#`, perhaps after blanks, and a byte order mark
//! are skipped.

use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use polyserve_lab::Misuse;
use polyserve_load::{Exchange, Traffic};
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

/// Reads the requests of a file. `server` is the server of URLs without a host; the first URL with one decides if it is `None`.
/// Returns the server, and the requests.
///
/// # Errors
///
/// Returns [`Misuse`], which names the file and the line.
pub(super) fn of_file(path: &Path, mut server: Option<Url>) -> Result<(Url, Vec<Exchange>), Misuse> {
    let text = fs::read_to_string(path).map_err(|error| Misuse(format!("{}: {error}", path.display())))?;
    let mut requests = Vec::new();
    for (line, number) in text.strip_prefix('\u{feff}').unwrap_or(&text).lines().zip(1..) {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let wrong = |why: String| Misuse(format!("{}:{number}: {why}", path.display()));
        requests.push(request(line, path, &mut server).map_err(wrong)?);
    }
    match server {
        Some(server) if !requests.is_empty() => Ok((server, requests)),
        Some(_) => Err(Misuse(format!("{} has no request", path.display()))),
        None => {
            Err(Misuse(format!("{} has no request with http://HOST:PORT: add the URL of the server", path.display())))
        }
    }
}

/// Returns the request of a line.
fn request(line: &str, path: &Path, server: &mut Option<Url>) -> Result<Exchange, String> {
    let line: FileRequest = serde_json::from_str(line).map_err(|error| json_error(&error))?;
    let target = if line.url.starts_with('/') || line.url == "*" {
        line.url
    } else {
        let url: Url = line.url.parse()?;
        let first = server.get_or_insert_with(|| url.clone());
        if first.host() != url.host() {
            return Err(format!("{url} is not on the server {}: a load has one", first.host()));
        }
        url.path().to_owned()
    };
    let body = match (line.body, line.body_file) {
        (Some(_), Some(_)) => return Err(String::from("a request has body or body_file, not both")),
        (body, None) => body.map(String::into_bytes),
        (None, Some(file)) => {
            let file = path.parent().unwrap_or(Path::new("")).join(file);
            Some(fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?)
        }
    };
    let method = line.method.unwrap_or_else(|| default_method(body.as_deref()).to_owned());
    let request = Exchange::new(&method, &target).with(|request| {
        (request.headers, request.body) = (line.headers.0, body);
        request.weight = line.weight.unwrap_or(1);
    });
    // The error names the line.
    Traffic::discovering(vec![request.clone()]).map_err(|error| error.to_string())?;
    Ok(request)
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
pub(super) fn header(text: &str) -> Result<(String, String), String> {
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
            let mut body = Vec::new();
            let read = io::stdin().lock().read_to_end(&mut body);
            read.map_err(|error| Misuse(format!("--data @-: standard input: {error}")))?;
            Ok(body)
        }
        Some(file) => fs::read(file).map_err(|error| Misuse(format!("--data @{file}: {error}"))),
        None => Ok(text.as_bytes().to_vec()),
    };
    let parts = parts.iter().map(part).collect::<Result<Vec<_>, _>>()?;
    Ok(if parts.is_empty() { None } else { Some(parts.join(&b'&')) })
}
