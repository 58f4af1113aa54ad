use super::{array, has, json, printed, texts};

#[test]
fn as_json() {
    let listing = json("list");
    let kinds: Vec<&String> = listing.as_object().unwrap().keys().collect();
    assert_eq!(kinds, ["executors", "located_repos", "references", "repos", "servers", "services"]);
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
    assert_eq!(names("services"), ["entity", "echo", "page", "welcome"]);
    // The tests are built with the default features; `etcd` is not among them, but another package may select it.
    let located = names("located_repos");
    for name in ["durable[/REPO]:PATH", "redis_cluster:URL,...", "postgres:URL"] {
        assert!(located.contains(&name), "{located:?}");
    }
    let references: &[&str] = if cfg!(target_os = "linux") { &["null_epoll", "null_accept"] } else { &[] };
    assert_eq!(names("references"), references);
}

#[test]
fn for_people() {
    has(&printed("list"), &["pool_server/mpsc_pool", "dashmap", "durable[/REPO]:PATH", "linearizable", "welcome"]);
}

#[test]
fn help_and_version() {
    has(&printed("--help"), &["list", "serve", "data", "stress"]);
    has(&printed("--version"), &[env!("CARGO_PKG_VERSION")]);
    let settings = ["--max-connections", "POLYSERVE_MAX_CONNECTIONS", "--head-timeout", "--defer-accept"];
    has(&printed("serve --help"), &[&settings[..], &["TCP_ADDRESS", "THREAD_POOL_SIZE"]].concat());
}
