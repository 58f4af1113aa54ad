//! Article D, the page in warp: one filter for any path, two headers, under `warp::serve` on tokio's default runtime.
//!
//! Deviations from the listing, besides those of the crate: warp 0.4 on hyper 1, and the article had hyper 0.14; the
//! listener is bound before it is handed to warp, because warp 0.4 does not tell its port; the pool's size sets
//! `TOKIO_WORKER_THREADS` only if it is given in the environment, so `--workers` is ignored. Answers are not counted, because
//! the listing has nowhere to count them, so the last line is that of a server without requests.

use std::io;

use polyserve_twins::{Args, announce};
use warp::Filter as _;
use warp::reply::with_header;

#[tokio::main]
async fn main() -> io::Result<()> {
    let args = Args::read("[--listen 127.0.0.1:0] [--until-stdin-ends]", |_, _| None)?;
    args.exit_at_end()?;
    let listener = tokio::net::TcpListener::bind(args.listen).await?;
    announce(&mut io::stdout(), listener.local_addr()?)?;
    let welcome = warp::any()
        .map(|| "Welcome!")
        .map(|reply| with_header(reply, "Content-Type", "application/json"))
        .map(|reply| with_header(reply, "Server", "rust-warp"));
    warp::serve(welcome).incoming(listener).run().await;
    Ok(())
}
