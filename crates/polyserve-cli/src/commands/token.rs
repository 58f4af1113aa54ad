//! `polyserve token`: a new random token, and its line for the file of `serve --tokens`.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use polyserve::access::{Scopes, token_line};
use polyserve_bench::Misuse;
use polyserve_bench::output::{print, print_json};
use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::json;

/// The arguments of `polyserve token`.
#[derive(Debug, clap::Args)]
pub(crate) struct TokenArgs {
    /// The name of the user, as the access log shows it: letters, digits, and `._@/:-`.
    name: String,
    /// What the user may do: `read` (GET, HEAD and OPTIONS), `write` (all else), or both with a comma between them.
    #[arg(long, value_name = "SCOPES", default_value = "read", value_parser = scopes)]
    scopes: Scopes,
}

fn scopes(text: &str) -> Result<Scopes, String> {
    Scopes::parse(text).ok_or_else(|| String::from("the scopes are read, write, or read,write"))
}

pub(crate) fn run(args: &TokenArgs, json: bool) -> anyhow::Result<ExitCode> {
    let mut random = [0_u8; 32];
    let filled = getrandom(&mut random, GetRandomFlags::empty()).context("there are no random numbers")?;
    anyhow::ensure!(filled == random.len(), "there are too few random numbers");
    let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let line = token_line(&args.name, args.scopes, &token);
    let line =
        line.map_err(|_| Misuse(format!("{:?} is not 1 to 64 letters, digits, or characters of ._@/:-", args.name)))?;
    if json {
        print_json(&json!({ "token": token, "line": line }))?;
    } else {
        // The line may be appended to the file, and the token must not be.
        writeln!(std::io::stderr(), "the token of {}, which is shown only now: {token}", args.name)?;
        print(&format!("{line}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
