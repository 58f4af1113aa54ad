//! The arguments of the program.

use std::process::{Command, Output};

fn run(argument: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_polyserve-engines");
    Command::new(program).arg(argument).output().expect("the program starts")
}

/// Regression test: `--help` was taken for the name of an engine.
#[test]
fn help_is_printed() {
    for flag in ["--help", "-h"] {
        let output = run(flag);
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!((output.status.code(), &*stderr), (Some(0), ""), "{flag}");
        for part in ["Usage: polyserve-engines [ENGINE...]", "etcd, redis_cluster, postgres", "SIGTERM"] {
            assert!(stdout.contains(part), "{part}: {stdout}");
        }
    }
}

#[test]
fn an_unknown_engine_is_an_error_with_the_names() {
    for name in ["mysql", "--version"] {
        let output = run(name);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{error}");
        let expected = format!("error: there is no engine {name:?}; there are: etcd, redis_cluster, postgres\n");
        assert_eq!(error, expected);
    }
}
