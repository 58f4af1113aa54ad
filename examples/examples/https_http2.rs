//! An entity server over TLS. It speaks HTTP/2 to clients that ask for it by ALPN, and HTTP/1.1 to the others.
//!
//! ```sh
//! cargo run --release --example https_http2 --features http2 -- cert.pem key.pem
//! ```
#![forbid(unsafe_code)]

use std::path::Path;

use anyhow::Context as _;
use polyserve::TlsConfig;
use polyserve::prelude::*;

fn main() -> anyhow::Result<()> {
    // First, so that an early Ctrl-C is not lost.
    let signals = Signals::register()?;
    let mut args = std::env::args_os().skip(1);
    let (certificate, key) =
        args.next().zip(args.next()).context("usage: https_http2 CERTIFICATE KEY, two files in PEM form")?;
    let config = ServerConfig::default().http2(true).tls(TlsConfig::new(Path::new(&certificate), Path::new(&key))?);
    let server = TokioHyper::new(config)?;
    let running = server.serve(([127, 0, 0, 1], 0), EntityService::new(Sharded::new()).etags(true))?;
    println!("listening on https://{}", running.local_addr());
    println!("{}", signals.drain(running)?);
    Ok(())
}
