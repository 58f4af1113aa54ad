// The documentation of `Service` quotes this error: rustc offers no other text for it.
//~ implementation of `FnOnce` is not general enough
use polyserve::prelude::*;

fn main() -> std::io::Result<()> {
    let server = PoolServer::mpsc(ServerConfig::default())?;
    server.serve("127.0.0.1:0", |_| Reply::text("hello")).map(drop)
}
