//! `polyserve durable`: check, repair and backup of a durable store.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use polyserve::durable::maintenance::{self, RepairReport, StoreReport};
use polyserve::durable::{Damage, TornTail};
use polyserve_bench::output::{print, print_json};
use polyserve_bench::report::figures::{bytes, counted};
use serde_json::{Value, json};

/// The arguments of `polyserve durable`.
#[derive(Debug, clap::Args)]
pub(crate) struct DurableArgs {
    #[command(subcommand)]
    command: DurableCommand,
}

#[derive(Debug, clap::Subcommand)]
enum DurableCommand {
    /// Read all files of a store that is not in use, and list the damage. Exits with 1 if there is any.
    Check {
        /// The directory of the store.
        directory: PathBuf,
    },
    /// Make a damaged store open again with all records that are whole. The damaged files stay, under new names.
    Repair {
        /// The directory of the store.
        directory: PathBuf,
    },
    /// Copy a store, also while it is in use.
    Backup {
        /// The directory of the store.
        directory: PathBuf,
        /// The directory to create.
        to: PathBuf,
    },
}

pub(crate) fn run(args: &DurableArgs, json: bool) -> anyhow::Result<ExitCode> {
    match &args.command {
        DurableCommand::Check { directory } => {
            let report = maintenance::check(directory)
                .with_context(|| format!("the store {} cannot be checked", directory.display()))?;
            if json { print_json(&check_json(&report)) } else { print(&check_text(&report)) }?;
            Ok(if report.damage.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        DurableCommand::Repair { directory } => {
            let report = maintenance::repair(directory)
                .with_context(|| format!("the store {} cannot be repaired", directory.display()))?;
            if json { print_json(&repair_json(&report)) } else { print(&repair_text(&report)) }?;
            Ok(ExitCode::SUCCESS)
        }
        DurableCommand::Backup { directory, to } => {
            let report = maintenance::backup(directory, to)
                .with_context(|| format!("the store {} cannot be copied", directory.display()))?;
            let (files, bytes) = (report.files, report.bytes);
            if json {
                print_json(&json!({ "files": files, "bytes": bytes }))
            } else {
                print(&format!("copied {}, {}, to {}\n", counted(files, "file"), size(bytes), to.display()))
            }?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn size(number: u64) -> String {
    bytes(number as f64)
}

fn places(damage: &[Damage]) -> Vec<Value> {
    let place = |damage: &Damage| json!({ "file": damage.file, "offset": damage.offset, "reason": damage.reason });
    damage.iter().map(place).collect()
}

fn check_json(report: &StoreReport) -> Value {
    let torn = |torn: &TornTail| json!({ "file": torn.file, "offset": torn.offset, "bytes": torn.bytes });
    json!({
        "files": report.files,
        "bytes": report.bytes,
        "records": report.records,
        "torn": report.torn.as_ref().map(torn),
        "damage": places(&report.damage),
    })
}

fn check_text(report: &StoreReport) -> String {
    let StoreReport { files, bytes, records, torn, damage, .. } = report;
    let mut text = format!("{}, {}, {}\n", counted(*files, "file"), size(*bytes), counted(*records, "record"));
    if let Some(TornTail { file, offset: 0, .. }) = torn {
        text.push_str(&format!("no header: {file}; the next start begins with an empty store\n"));
    } else if let Some(TornTail { file, offset, bytes, .. }) = torn {
        text.push_str(&format!("torn end: {file} at byte {offset}, {bytes} bytes; the next start drops it\n"));
    }
    for damage in damage {
        text.push_str(&format!("damage: {damage}\n"));
    }
    text.push_str(if damage.is_empty() { "no damage\n" } else { "`polyserve durable repair` keeps what is whole\n" });
    text
}

fn repair_json(report: &RepairReport) -> Value {
    json!({ "damage": places(&report.damage), "renamed": report.renamed })
}

fn repair_text(report: &RepairReport) -> String {
    if report.damage.is_empty() {
        return "no damage, nothing to repair\n".to_owned();
    }
    let mut text = String::new();
    for damage in &report.damage {
        text.push_str(&format!("damage: {damage}\n"));
    }
    for file in &report.renamed {
        text.push_str(&format!("kept: {}\n", file.display()));
    }
    text
}
