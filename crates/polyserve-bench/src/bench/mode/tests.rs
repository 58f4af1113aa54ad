use std::path::Path;

use super::*;

/// Each was accepted, and had no effect.
#[test]
fn what_a_mode_does_not_read_is_refused_with_its_line() {
    let slow = "kind = \"hold\", behaviour = \"slow-heads\"";
    for (mode, contestant, workload, sweep, why) in [
        ("kind = \"closed\"", "catalog:a/b", "", "held = [1]", "5: held: the mode closed does not sweep it"),
        ("kind = \"closed\"", "catalog:a/b", "", "source = [\"file\"]", "5: source: the mode closed does not"),
        (
            "kind = \"closed\"",
            "catalog:a/b@8",
            "",
            "keys = [1]",
            "2: contestants: the mode closed does not read a number",
        ),
        (
            "kind = \"rate\", rate = 9.0",
            "executor:a",
            "",
            "keys = [1]",
            "2: contestants: the contestants of this mode are",
        ),
        ("kind = \"search\", p99 = \"1ms\"", "catalog:a/b", "", "rate = [1]", "5: rate: the mode search does not"),
        (slow, "catalog:a/b", "mix = \"get=1\", keys = 1", "keys = [1]", "3: keys: the mode hold does not sweep it"),
        (
            slow,
            "catalog:a/b",
            "mix = \"get=1\", keys = 1, dist = \"hot\"",
            "held = [1]",
            "3: dist: the mode hold does not",
        ),
        (
            "kind = \"hold\"",
            "catalog:a/b",
            "mix = \"get=1\", keys = 1",
            "rate = [1]",
            "5: rate: the mode hold does not",
        ),
        (
            "kind = \"page\"",
            "catalog:a",
            "keys = 5",
            "workers = [1]",
            "3: keys: the mode page does not read it, only conn",
        ),
        ("kind = \"page\"", "catalog:a", "", "server_cores = [1]", "5: server_cores: the mode page does not sweep it"),
        ("kind = \"tasks\"", "executor:a", "connections = 5", "tasks = [1]", "3: connections: the mode tasks does not"),
        ("kind = \"tasks\"", "catalog:a", "", "tasks = [1]", "2: contestants: the contestants of this mode are exec"),
        ("kind = \"store\"", "repo:a@2", "", "keys = [1]", "2: contestants: the mode store does not read a number"),
        ("kind = \"store\"", "repo:a", "close = true", "keys = [1]", "3: close: the mode store does not read it"),
    ] {
        let text = format!(
            "name = \"tiny\"\ncontestants = [\"{contestant}\"]\nworkload = {{ {workload} }}\nmode = {{ {mode} }}\n\
             sweep = {{ {sweep} }}\n"
        );
        let Misuse(error) = Definition::parse(Path::new("tiny.toml"), &text, &[]).unwrap_err();
        assert!(error.starts_with(&format!("tiny.toml:{why}")), "{error}");
    }
}
