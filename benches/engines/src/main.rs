//! Measures the durable store next to embedded engines with one transaction per PUT, and the stores over engines.
//!
//! * `polyserve-engine-benches PART [WRITERS]` measures one part: `writes`, `delay`, `reads`, `start` or `all`.
//! * `polyserve-engine-benches cluster [DIRECTORY]` measures the stores over etcd, Redis Cluster and PostgreSQL.
//! * `polyserve-engine-benches model DIRECTORY [--check]` writes the tables of docs/SCALING.md, or checks them.
//!
//! Temporary files are in a new directory below `target`, which is removed at the end. Without the feature `measure`,
//! the program builds in a moment and has only `model`.
//!

#[cfg(feature = "measure")]
mod measure;
// A build with only the model does not write records.
#[cfg_attr(not(feature = "measure"), allow(dead_code))]
mod figures;
mod model;

use std::error::Error;
use std::path::Path;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["model", directory] => model::splice(Path::new(directory), false),
        ["model", directory, "--check"] => model::splice(Path::new(directory), true),
        ["model", ..] => Err("model needs the directory of a recorded measurement, and takes --check".into()),
        #[cfg(feature = "measure")]
        _ => measure::run(&args),
        #[cfg(not(feature = "measure"))]
        _ => Err("built without the feature `measure`: there is model alone".into()),
    }
}
