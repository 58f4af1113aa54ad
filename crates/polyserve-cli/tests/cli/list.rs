use super::{printed, run, text};
use serde_json::Value;

#[test]
fn as_json() {
    let listing: Value = serde_json::from_str(&printed(&["list", "--json"])).unwrap();
    let kinds: Vec<&String> = listing.as_object().unwrap().keys().collect();
    let mut wanted = ["servers", "repos", "executors", "services", "references"];
    wanted.sort_unstable();
    assert_eq!(kinds, wanted);
    for entry in listing.as_object().unwrap().values().flat_map(|entries| entries.as_array().unwrap()) {
        let entry = entry.as_object().unwrap();
        assert_eq!(entry.len(), 5, "{entry:?}");
        assert!(["name", "summary", "promises", "tags"].iter().all(|field| entry[*field].is_string()), "{entry:?}");
    }
    for kind in ["servers", "repos", "executors"] {
        for entry in listing[kind].as_array().unwrap() {
            assert!(entry["code"]["expression"].is_string(), "{entry:?}");
        }
    }
    let names = |kind: &str| -> Vec<String> {
        let entries = listing[kind].as_array().unwrap().iter();
        entries.map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
    };
    assert!(names("servers").contains(&"pool_server/stealing_pool".to_owned()));
    assert!(names("repos").contains(&"two_level".to_owned()));
    for name in ["mpsc_pool", "tokio_tasks", "tokio_blocking", "smol_tasks", "futures_tasks"] {
        assert!(names("executors").contains(&name.to_owned()), "{name}");
        assert!(names("servers").contains(&format!("pool_server/{name}")), "{name}");
    }
    assert_eq!(names("services"), ["entity", "echo", "page", "welcome"]);
    let references: &[&str] = if cfg!(target_os = "linux") { &["null_epoll", "null_accept"] } else { &[] };
    assert_eq!(names("references"), references);
}

#[test]
fn for_people() {
    let listing = printed(&["list"]);
    for part in ["pool_server/mpsc_pool", "dashmap", "linearizable", "welcome"] {
        assert!(listing.contains(part), "{listing}");
    }
}

#[test]
fn help_and_version() {
    for word in ["list", "serve", "data", "stress"] {
        assert!(printed(&["--help"]).contains(word));
    }
    assert!(printed(&["--version"]).contains(env!("CARGO_PKG_VERSION")));
    let help = printed(&["serve", "--help"]);
    for part in [
        "--max-connections",
        "POLYSERVE_MAX_CONNECTIONS",
        "--head-timeout",
        "TCP_ADDRESS",
        "THREAD_POOL_SIZE",
        "--defer-accept",
    ] {
        assert!(help.contains(part), "{help}");
    }
    let output = run(&["lisst"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("list"));
}
