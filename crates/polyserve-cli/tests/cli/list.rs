use std::fs::File;

use super::{array, ended, has, json, misused, polyserve, printed, text, texts};

#[test]
fn as_json() {
    let listing = json("list");
    let kinds: Vec<&String> = listing.as_object().unwrap().keys().collect();
    assert_eq!(
        kinds,
        [
            "executors",
            "located_repos",
            "overload_policies",
            "references",
            "repos",
            "servers",
            "services",
            "short_server_names"
        ]
    );
    for entry in listing.as_object().unwrap().values().flat_map(array) {
        assert_eq!(entry.as_object().unwrap().len(), 5, "{entry:?}");
        assert!(["name", "summary", "promises", "tags"].iter().all(|field| entry[*field].is_string()), "{entry:?}");
    }
    for kind in ["servers", "repos", "executors"] {
        assert!(array(&listing[kind]).iter().all(|entry| entry["code"]["expression"].is_string()), "{listing}");
    }
    let names = |kind: &str| texts(array(&listing[kind]), "name");
    assert!(names("servers").contains(&"pool_server/stealing_pool"));
    assert!(names("repos").contains(&"two_level"));
    for name in ["mpsc_pool", "tokio_tasks", "tokio_blocking", "smol_tasks", "futures_tasks"] {
        assert!(names("executors").contains(&name), "{name}");
        assert!(names("servers").contains(&format!("pool_server/{name}").as_str()), "{name}");
    }
    let short_names: &[&str] = if cfg!(target_os = "linux") { &["pool_server", "per_core"] } else { &["pool_server"] };
    assert_eq!(names("short_server_names"), short_names);
    assert_eq!(names("services"), ["entity", "echo", "page", "welcome"]);
    // The tests are built with the default features; `etcd` is not among them, but another package may select it.
    let located = names("located_repos");
    for name in ["durable[/REPO]:PATH", "redis_cluster:URL,...", "postgres:URL"] {
        assert!(located.contains(&name), "{located:?}");
    }
    let references: &[&str] =
        if cfg!(target_os = "linux") { &["null_epoll", "null_deferred", "null_uring", "null_accept"] } else { &[] };
    assert_eq!(names("references"), references);
}

/// An entry starts with its name and its summary. The lines below have the rest and the promises. No line is longer
/// than 120 characters.
#[test]
fn for_people() {
    let listed = printed("list");
    let lines: Vec<&str> = listed.lines().collect();
    for (name, summary, promises) in [
        ("sequential", "one thread, one connection at a time", "one connection at a time, later answers hold a worker"),
        ("dashmap", "the sharded map of the dashmap crate", "linearizable, answers now, volatile"),
        (
            "durable[/REPO]:PATH",
            "a log with group commit",
            "linearizable, answers now, or later, durable, scans if its repo does",
        ),
        ("welcome", "GET / is Welcome!", "answers now"),
    ] {
        let place = lines.iter().position(|line| line.split_whitespace().next() == Some(name));
        let place = place.unwrap_or_else(|| panic!("{name} is not in\n{listed}"));
        has(lines[place], &[summary]);
        assert!(lines[place + 1].starts_with("   ") && lines[place + 1].trim_start().starts_with(promises), "{listed}");
    }
    has(
        &listed,
        &["short names of servers:\npool_server ", "\nper_core ", "io_uring if the system allows it, else epoll"],
    );
    has(&listed, &["servers:\n", "\n\nrepos:\n", "\n\nrepos that need a location:\n", "\n\nexecutors:\n"]);
}

/// A store over an engine is in the list whether its feature is on or not.
#[test]
fn a_repo_that_is_not_built_in_is_named_with_its_feature() {
    let located = json("list")["located_repos"].clone();
    let is_built = texts(array(&located), "name").contains(&"etcd:URL,...");
    let listed = printed("list");
    let hint = "build with `--features etcd`";
    assert_eq!(
        listed.contains(hint) && listed.contains("\nrepos that are not built in:\netcd "),
        !is_built,
        "{listed}"
    );
    let run = ended(0, "check --in-process --repos all --ops 200");
    let left_out = text(&run.stderr);
    assert_eq!(left_out.contains(&format!("not built in, so left out: etcd ({hint})\n")), !is_built, "{left_out}");
    assert_eq!(left_out.contains("not configured, so left out: etcd:URL,..."), is_built, "{left_out}");
    if !is_built {
        has(&misused("check --in-process --repos etcd:http://127.0.0.1:9 --ops 200"), &["needs the feature `etcd`"]);
    }
}

#[test]
fn help_and_version() {
    has(&printed("--help"), &["list", "serve", "data", "bench"]);
    has(&printed("--version"), &[env!("CARGO_PKG_VERSION")]);
    let settings = ["--max-connections", "POLYSERVE_MAX_CONNECTIONS", "--head-timeout", "--defer-accept"];
    let short_names = ["pool_server (pool_server/mpsc_pool)", "per_core (io_uring"];
    let help = printed("serve --help");
    has(&help, &[&settings[..], &["TCP_ADDRESS", "THREAD_POOL_SIZE"]].concat());
    has(&help.split_whitespace().collect::<Vec<_>>().join(" "), &short_names);
    let unknown = misused("serve --listen 127.0.0.1:0 --server per_cor");
    has(&unknown, &["did you mean \"per_core\"?", "; there are: sequential", ", pool_server, per_core"]);
}

/// Regression test: the help and the version that could not be written were a success.
#[test]
fn what_cannot_be_written_is_an_error() {
    for line in ["--version", "serve --help", "list", "list --json"] {
        let mut command = polyserve(line);
        command.stdout(File::options().write(true).open("/dev/full").expect("the system has it"));
        let output = command.output().expect("the command runs");
        assert_eq!(output.status.code(), Some(1), "{line}");
        has(&text(&output.stderr), &["error: No space left on device"]);
    }
}
