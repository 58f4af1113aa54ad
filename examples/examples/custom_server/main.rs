//! A server of your own, in a program of your own. Without arguments, the conformance kit tells whether it keeps the
//! contract, drains, timeouts and limits included:
//!
//! ```sh
//! cargo run --release --example custom_server
//! ```
//!
//! With arguments it is the `polyserve` command over a catalog that has this server too, under the name `custom`: it
//! serves it, puts it under stress, and ranks it among the others.
//!
//! ```sh
//! cargo run --release --example custom_server -- compare --quick --servers custom,sequential,pool_server
//! ```
#![forbid(unsafe_code)]

mod one_by_one;

use std::process::ExitCode;

use polyserve::catalog::Entry;
use polyserve::prelude::*;
use polyserve_conformance::property;
use polyserve_conformance::server::{self, ServerSubject};

use one_by_one::OneByOne;

fn main() -> anyhow::Result<ExitCode> {
    if std::env::args_os().len() > 1 {
        return Ok(polyserve_lab::main(catalog()));
    }
    check()?;
    Ok(ExitCode::SUCCESS)
}

/// What polyserve has, and this server.
fn catalog() -> Catalog {
    let promises = &["one connection at a time", "drains"];
    Catalog::builtin().with_server(Entry::server(
        "custom",
        "one thread that looks up all the time",
        promises,
        |config| Ok(Box::new(OneByOne::new(config.clone())?)),
    ))
}

fn check() -> anyhow::Result<()> {
    // Some properties let a service panic on purpose; what a broken one saw is in the report.
    std::panic::set_hook(Box::new(|_| {}));
    let report = property::check("one_by_one", &ServerSubject::new(OneByOne::new), server::PROPERTIES);
    drop(std::panic::take_hook());
    print!("{report}");
    anyhow::ensure!(report.conforms(), "the server does not keep the contract");

    let running = OneByOne::new(ServerConfig::default())?
        .serve(([127, 0, 0, 1], 0).into(), EntityService::shared(TwoLevel::default()))?;
    println!("it conforms, and listened on http://{}: {}", running.local_addr(), running.shutdown()?);
    Ok(())
}
