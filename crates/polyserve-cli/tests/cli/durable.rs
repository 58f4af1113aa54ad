//! A durable store behind `polyserve serve`, and its check, repair and backup.

use std::fs;

use rustix::process::Signal;

use super::{Dir, Serving, array, ask, ended, has, interrupted, json, polyserve, printed, text};

fn serve(repo: &str, dir: &Dir) -> Serving {
    Serving::start(polyserve(&format!("serve --listen 127.0.0.1:0 --repo {repo}:{dir}")))
}

fn put(serving: &Serving, id: u32) {
    let body = format!("{{\"id\":{id},\"description\":\"number {id}\",\"value\":0.5}}");
    let head = "PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length:";
    let answer = ask(serving.addr, &format!("{head} {}\r\n\r\n{body}", body.len()));
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
}

fn get(serving: &Serving, id: u32) -> String {
    ask(serving.addr, &format!("GET /{id} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
}

#[test]
fn entities_survive_a_kill() {
    let dir = Dir::new("durable-kill");
    let serving = serve("durable", &dir);
    (1..=3).for_each(|id| put(&serving, id));
    serving.signal(Signal::KILL);
    serving.end();
    for repo in ["durable/packed", "durable"] {
        let serving = serve(repo, &dir);
        assert!(get(&serving, 2).ends_with("{\"id\":2,\"description\":\"number 2\",\"value\":0.5}"), "{repo}");
        serving.signal(Signal::TERM);
        let (status, rest) = serving.end();
        assert_eq!((status.code(), rest.as_str()), (Some(0), "answered 1, cut 0, stuck 0\n"), "{repo}");
    }
}

/// A store that has stopped writing, because its directory has another name, is not ready. Reads go on.
#[test]
fn a_store_that_takes_no_writes_is_not_ready() {
    let (dir, moved) = (Dir::new("durable-ready"), Dir::new("durable-ready-moved"));
    let serving =
        Serving::start(polyserve(&format!("serve --listen 127.0.0.1:0 --repo durable:{dir} --ready /readyz")));
    let ready = || ask(serving.addr, "GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    put(&serving, 1);
    assert!(ready().starts_with("HTTP/1.1 200 "));
    fs::rename(dir.path(""), moved.path("")).unwrap();
    let body = r#"{"id":2,"description":"","value":0.5}"#;
    let head = "PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length:";
    let refused = ask(serving.addr, &format!("{head} {}\r\n\r\n{body}", body.len()));
    assert!(refused.starts_with("HTTP/1.1 5"), "{refused}");
    has(&ready(), &["HTTP/1.1 503 ", "the repo takes no more writes"]);
    assert!(get(&serving, 1).starts_with("HTTP/1.1 200 "));
}

#[test]
fn one_process_uses_a_directory() {
    let dir = Dir::new("durable-lock");
    let serving = serve("durable", &dir);
    for command in ["serve --listen 127.0.0.1:0 --repo durable:", "durable check ", "durable repair "] {
        has(
            &text(&ended(1, &format!("{command}{dir}")).stderr),
            &["in use by process", &serving.child.id().to_string()],
        );
    }
}

#[test]
fn a_store_in_use_is_copied() {
    let (dir, copy) = (Dir::new("durable-source"), Dir::new("durable-copy"));
    let serving = serve("durable", &dir);
    (1..=4).for_each(|id| put(&serving, id));
    has(&printed(&format!("durable backup {dir} {copy}")), &["copied 1 file,"]);
    put(&serving, 5);
    let copied = serve("durable", &copy);
    assert!(get(&copied, 4).starts_with("HTTP/1.1 200 ") && get(&copied, 5).starts_with("HTTP/1.1 404 "));
    has(&text(&ended(1, &format!("durable backup {dir} {copy}")).stderr), &["exists"]);
}

#[test]
fn damage_is_refused_shown_and_repaired() {
    let dir = Dir::new("durable-damage");
    let serving = serve("durable", &dir);
    (1..=5).for_each(|id| put(&serving, id));
    serving.signal(Signal::TERM);
    serving.end();
    has(&printed(&format!("durable check {dir}")), &["1 file,", "5 records", "no damage"]);
    let log = dir.path("log-0000000000000001");
    let mut bytes = fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&log, bytes).unwrap();

    has(
        &text(&ended(1, &format!("serve --repo durable:{dir}")).stderr),
        &["damaged", "at byte", "polyserve durable repair"],
    );
    has(&text(&ended(1, &format!("durable check {dir}")).stdout), &["damage: log-0000000000000001 at byte", "repair"]);
    let repaired = json(&format!("durable repair {dir}"));
    assert_eq!(array(&repaired["damage"]).len(), 1, "{repaired}");
    assert!(array(&repaired["renamed"])[0].as_str().unwrap().ends_with("damaged-log-0000000000000001"), "{repaired}");

    let serving = serve("durable", &dir);
    let found = (1..=5).filter(|id| get(&serving, *id).starts_with("HTTP/1.1 200 ")).count();
    assert_eq!(found, 4, "one frame of one write is lost");
    has(&text(&ended(1, "durable check no-such-directory").stderr), &["no-such-directory"]);
}

#[test]
fn a_directory_without_a_store_is_refused_and_left_as_it_is() {
    let dir = Dir::new("durable-none");
    dir.write("notes", "text of others");
    for task in ["check", "repair"] {
        has(
            &text(&ended(1, &format!("durable {task} {dir}")).stderr),
            &["cannot find a store in", "the directory has no log and no snapshot"],
        );
    }
    assert_eq!(dir.files(), [dir.path("notes")]);
}

/// A comparison makes a store of its own at the location, and leaves nothing.
#[test]
fn a_measurement_leaves_nothing_at_the_location() {
    let dir = Dir::new("durable-check");
    printed(&format!("check --server tokio_tcp --repos durable:{dir},durable/std_mutex:{dir} --ops 400"));
    assert_eq!(dir.files(), Vec::<std::path::PathBuf>::new());
}

/// A measurement that is ended early leaves no store.
#[test]
fn an_interrupted_measurement_leaves_nothing() {
    for command in ["compare --no-latency", "recommend --time=30m"] {
        let dir = Dir::new("durable-interrupted");
        let small = "--servers=tokio_tcp --rounds=1000 --keys=10 --connections=2";
        let is_filled = |_| fs::read_dir(dir.path("")).is_ok_and(|entries| entries.count() > 0);
        let output = interrupted(&format!("{command} {small} --repos=durable:{dir}"), is_filled);
        assert!(output.status.success(), "{command}: {}", text(&output.stderr));
        assert_eq!(fs::read_dir(dir.path("")).unwrap().count(), 0, "{command}");
    }
}
