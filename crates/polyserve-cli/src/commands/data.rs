//! `polyserve data`: entity test data, as CSV or as JSON lines.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use polyserve_bench::Misuse;
use polyserve_bench::data::{Data, EntityVersion, Row};
use polyserve_bench::output::ignore_broken_pipe;

use super::seed::SeedArgs;

/// The arguments of `polyserve data`.
#[derive(Debug, clap::Args)]
pub(crate) struct DataArgs {
    /// The number of ids.
    #[arg(long, value_name = "N")]
    count: u64,
    #[command(flatten)]
    random: SeedArgs,
    /// The first id. The other ids follow it.
    #[arg(long, value_name = "ID", default_value_t = 0, allow_negative_numbers = true)]
    first_id: i64,
    /// Write updates instead of new entities: two lines for each id.
    #[arg(long)]
    updates: bool,
    /// Omit the header line `id,description,value`.
    #[arg(long)]
    no_header: bool,
    /// Write to this file instead of standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &DataArgs, json: bool) -> anyhow::Result<ExitCode> {
    let last = i64::try_from(args.count).ok().and_then(|count| args.first_id.checked_add(count));
    let end = last.ok_or_else(|| Misuse("--count ids from --first-id on go past the largest id".into()))?;
    match &args.out {
        None => {
            // A reader that closes its end, such as `head`, is no error.
            ignore_broken_pipe(write(args, end, json, &mut BufWriter::new(io::stdout().lock())))?;
        }
        Some(path) => {
            let context = || format!("{} cannot be written", path.display());
            let file = File::create(path).with_context(context)?;
            write(args, end, json, &mut BufWriter::new(file)).with_context(context)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write(args: &DataArgs, end: i64, json: bool, out: &mut impl Write) -> io::Result<()> {
    let (data, line): (_, fn(&Row) -> String) =
        (Data::new(args.random.seed), if json { Row::to_json } else { Row::to_csv });
    let versions: &[EntityVersion] =
        if args.updates { &[EntityVersion::FirstUpdate, EntityVersion::SecondUpdate] } else { &[EntityVersion::New] };
    if !json && !args.no_header {
        out.write_all(b"id,description,value\n")?;
    }
    for id in args.first_id..end {
        for version in versions {
            writeln!(out, "{}", line(&data.row(id, *version)))?;
        }
    }
    out.flush()
}
