//! Notes for the records of measurements: the compiler, the profile and the commit of this build. Unknown values are
//! left unset, and records have "unknown".
//!
//! This script runs again after every change in a crate, and then its own crate is built again. So it belongs to the crate that
//! no other crate of the command depends on.

use std::process::Command;

fn main() {
    let note = |name: &str, text: Option<String>| {
        if let Some(text) = text {
            println!("cargo:rustc-env={name}={text}");
        }
    };
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    note("POLYSERVE_BUILT_BY", output_of(Command::new(rustc).arg("--version")));
    note("POLYSERVE_BUILT_AS", profile());
    // The last commit that changed the sources. A commit of the docs does not change the program.
    let git_in_sources = |args: &[&str]| git(&[args, &["--", "..", "../../Cargo.toml", "../../Cargo.lock"]].concat());
    let mark = if git_in_sources(&["status", "--porcelain", "--untracked-files=no"]).is_some() { "+" } else { "" };
    let commit = git_in_sources(&["log", "-1", "--abbrev=12", "--format=%h"]);
    note("POLYSERVE_BUILT_FROM", commit.map(|commit| format!("{commit}{mark}")));
    println!("cargo:rerun-if-changed=build.rs");
    // The note on the commit depends on all crates.
    println!("cargo:rerun-if-changed=..");
    // A commit moves one of these.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]).filter(|path| std::path::Path::new(path).exists()) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
}

/// Returns the name of the cargo profile, from the path TARGET/PROFILE/build/PACKAGE/out. The variable PROFILE is no use: it
/// has the name of the parent profile.
fn profile() -> Option<String> {
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR")?);
    out.ancestors().nth(3)?.file_name()?.to_str().map(String::from)
}

fn git(args: &[&str]) -> Option<String> {
    output_of(Command::new("git").args(args))
}

/// The output of a command; `None` if it fails or prints nothing.
fn output_of(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}
