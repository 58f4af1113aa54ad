//! Article A, the entity server in Rust: an accept loop with a termination flag, and one boxed job per connection,
//! which goes through one unbounded channel. The receiver is behind a mutex. Each worker locks it, receives, prints a
//! line and runs the job. A job reads the request by lines, answers with `Connection: close` and ends its connection.
//!
//! The store is a map of entries, with a lock around the map and one around each entry. A PUT looks for the id under
//! the read lock, and then takes the lock that it needs. Two first PUTs of an id can both find it missing. Both then
//! insert, and the later one remains: the race is published.
//!
//! Deviations from the listing, besides those of the crate:
//! * The value is an `f64`; the listing has an `f32`, which loses digits that the clients verify.
//! * A PUT of a new id is answered with 201 and `Location`, the status line has no space at its end, and each answer has
//!   a `Content-Length`. The listing answers 200 to every PUT, without a length. The clients check all three.
//! * Every answer has `Connection: close`. In the listing, errors lack it.
//! * The signal handler ends with the accept loop: the pool is dropped and joins its workers, as the article describes.
//!   The listing calls `exit(0)` in the handler, which races with that.
//! * A request that ends early is answered with 400. The listing reads on forever, or panics in its worker. A failed
//!   write ends the job; the listing panics, which ends the worker.
//! * An accept error is skipped. The listing panics.
//! * Lines are printed with `--print FILE` only, into that file. The listing always prints them, on the terminal.
//! * Signals come through signal-hook; the listing uses ctrlc.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, RwLock};

use polyserve_twins::pool::ThreadPool;
use polyserve_twins::{Args, announce, answered, print_counts};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Deserialize, Serialize)]
struct StoredEntity {
    id: i64,
    description: String,
    value: f64,
}

type Repo = RwLock<HashMap<i64, Arc<RwLock<StoredEntity>>>>;

fn main() -> io::Result<()> {
    let mut lines = None;
    let args =
        Args::read("[--workers N] [--listen 127.0.0.1:0] [--print FILE] [--until-stdin-ends]", |flag, value| {
            (flag == "--print").then(|| {
                lines = OpenOptions::new().append(true).create(true).open(value).ok();
                lines.is_some()
            })
        })?;
    // The instrument reads the address and the counts. Where lines are printed, standard output becomes their file.
    let mut control = std::fs::File::from(rustix::io::dup(io::stdout())?);
    let prints = lines.is_some();
    if let Some(file) = lines {
        rustix::stdio::dup2_stdout(file)?;
    }

    let listener = TcpListener::bind(args.listen)?;
    let addr = listener.local_addr()?;
    let repo = Arc::new(Repo::default());
    let pool = ThreadPool::new(args.workers, prints);
    let terminated = Arc::new(Mutex::new(false));
    let flag = Arc::clone(&terminated);
    args.at_end(move || {
        *flag.lock().expect("no holder of the flag panics") = true;
        let _ = TcpStream::connect(addr); // wakes the accept loop; fails if the loop has ended
    })?;
    announce(&mut control, addr)?;
    for stream in listener.incoming() {
        let terminate = terminated.lock().expect("no holder of the flag panics"); // held for the turn, as published
        if *terminate {
            break;
        }
        let Ok(stream) = stream else { continue };
        let repo = Arc::clone(&repo);
        pool.execute(move || {
            let _ = handle(stream, &repo); // the client has disconnected
        });
    }
    drop(pool);
    print_counts(&mut control)
}

/// A request: its method and path, and its body if that is an entity.
struct ParsedRequest {
    method: String,
    path: String,
    body: Option<StoredEntity>,
}

fn handle(mut stream: TcpStream, repo: &Repo) -> io::Result<()> {
    let answer = match read_request(&stream)? {
        None => return Ok(()), // closed without a request, as the wake of the accept loop is
        Some(Err(why)) => answer("400 Bad Request", "", &why),
        Some(Ok(request)) => match request.method.as_str() {
            "GET" => get(&request, repo),
            "PUT" => put(request, repo),
            _ => answer("501 Not Implemented", "", ""),
        },
    };
    stream.write_all(answer.as_bytes())?;
    answered();
    Ok(())
}

/// Reads the head line by line, and then the body. Returns `None` if the client closes before it sends a byte.
fn read_request(stream: &TcpStream) -> io::Result<Option<Result<ParsedRequest, String>>> {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        match reader.read_line(&mut line) {
            Ok(0) if head.is_empty() => return Ok(None),
            Ok(0) => return Ok(Some(Err("the head ends early".into()))),
            Ok(_) if line == "\r\n" => break,
            Ok(_) => head.push(line.trim().to_owned()),
            Err(error) => return Ok(Some(Err(error.to_string()))),
        }
    }
    let Some((request_line, fields)) = head.split_first() else { return Ok(Some(Err("no request line".into()))) };
    let mut parts = request_line.split(' ').map(str::trim);
    let (Some(method), Some(path)) = (parts.next(), parts.next()) else {
        return Ok(Some(Err("the request line has no path".into())));
    };
    let mut length = 0;
    for field in fields {
        if field.to_lowercase().contains("content-length") {
            match field.split(':').nth(1).and_then(|value| value.trim().parse().ok()) {
                Some(value) => length = value,
                None => return Ok(Some(Err("the Content-Length is no number".into()))),
            }
        }
    }
    let mut request = ParsedRequest { method: method.into(), path: path.into(), body: None };
    if length > 0 {
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        match serde_json::from_str(&String::from_utf8_lossy(&body)) {
            Ok(entity) => request.body = Some(entity),
            Err(error) => return Ok(Some(Err(error.to_string()))),
        }
    }
    Ok(Some(Ok(request)))
}

fn get(request: &ParsedRequest, repo: &Repo) -> String {
    let Some(id) = request.path.strip_prefix('/').and_then(|id| id.parse::<i64>().ok()) else {
        return answer("400 Bad Request", "", "");
    };
    let map = repo.read().expect("no holder of the map panics"); // held while the answer is made, as published
    let Some(entry) = map.get(&id) else { return answer("404 Not Found", "", "") };
    let entity = entry.read().expect("no holder of an entry panics").clone();
    match serde_json::to_string(&entity) {
        Ok(json) => answer("200 OK", "Content-Type: application/json\r\n", &json),
        Err(error) => answer("500 Internal Server Error", "", &error.to_string()),
    }
}

fn put(request: ParsedRequest, repo: &Repo) -> String {
    let Some(entity) = request.body.filter(|_| request.path == "/") else {
        return answer("400 Bad Request", "", "");
    };
    let id = entity.id;
    let exists = repo.read().expect("no holder of the map panics").contains_key(&id);
    if exists {
        let map = repo.read().expect("no holder of the map panics");
        // Nothing is ever removed, so the entry is still there.
        let Some(entry) = map.get(&id) else { return answer("500 Internal Server Error", "", "") };
        *entry.write().expect("no holder of an entry panics") = entity;
        return answer("200 OK", "", "");
    }
    let mut map = repo.write().expect("no holder of the map panics");
    map.insert(id, Arc::new(RwLock::new(entity))); // the race: another PUT may have inserted the id meanwhile
    drop(map);
    answer("201 Created", &format!("Location: /{id}\r\n"), "")
}

fn answer(status: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{fields}Connection: close\r\n\r\n{body}")
}
