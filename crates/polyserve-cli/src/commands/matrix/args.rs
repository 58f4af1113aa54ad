//! The arguments of `polyserve matrix`.

use std::path::PathBuf;

use polyserve_bench::experiment::RecordArgs;
use polyserve_bench::matrix::CellMethod;

use crate::commands::cores::CoresArgs;
use crate::config_args::ConfigArgs;

/// The arguments of `polyserve matrix`. A pool's size is the server's number of workers.
#[derive(Debug, clap::Args)]
#[command(mut_arg("workers", |arg| arg.hide(true)))]
pub(crate) struct MatrixArgs {
    /// The servers, separated by commas; also go/twin-rwmutex, go/twin-syncmap, go/nethttp and go/fasthttp, and the published
    /// listings: twin/entity-debug-printing and go/entity-rwmutex-printing as they were run then, twin/entity, twin/entity-printing,
    /// twin/entity-debug, go/entity-rwmutex and go/entity-syncmap. The prefix
    /// unoptimised/ builds a built-in server without optimisation; the prefix debug/ also prints a line for each request, as
    /// published. Variants of the Go server: go/twin-rwmutex-printing prints these lines, go/twin-rwmutex-gc-off has no
    /// garbage collector, and go/twin-rwmutex-old-gc has the garbage collector of Go 1.25. [default: all of the catalog, both twins, debug/pool_classic/mpsc_pool and
    /// go/twin-rwmutex-printing; quick: five]
    #[arg(long, value_name = "S,...", value_delimiter = ',')]
    pub(super) servers: Vec<String>,
    /// The stores of the servers in Rust, separated by commas.
    #[arg(long, value_name = "R,...", value_delimiter = ',', default_value = "two_level")]
    pub(super) repos: Vec<String>,
    /// Pool sizes, separated by commas. A server without a setting for its workers is measured once for each number of
    /// connections. [default: 2,4,8,16,32,64; quick: 2,8,32]
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    pub(super) pools: Vec<usize>,
    /// Numbers of concurrent connections, separated by commas. Each connection serves one request. [default: 10,100,1000]
    #[arg(long, short, value_name = "C,...", value_delimiter = ',')]
    pub(super) connections: Vec<usize>,
    /// Requests of each cell. [default: 100000, quick: 20000]
    #[arg(long, short = 'n', value_name = "R", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(super) requests: Option<u64>,
    /// Methods, separated by commas.
    #[arg(long, value_enum, value_name = "M,...", value_delimiter = ',', default_value = "get,put")]
    pub(super) methods: Vec<CellMethod>,
    /// The number of rounds: each measures the whole matrix.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: u32,
    /// Fewer contestants, pool sizes and requests: about one minute, less than three.
    #[arg(long)]
    pub(super) quick: bool,
    /// The sources of the programs in Go. [default: benches/peers/go of this command's sources]
    #[arg(long, value_name = "DIR")]
    pub(super) peers_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(super) cores: CoresArgs,
    #[command(flatten)]
    pub(super) record: RecordArgs,
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}
