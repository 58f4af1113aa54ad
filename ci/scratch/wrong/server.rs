//~ ServerConfig` is not a `Server`
//~ a server is made from a `ServerConfig`
use polyserve::prelude::*;

fn start(_: impl Server) {}

fn main() {
    start(ServerConfig::default());
}
