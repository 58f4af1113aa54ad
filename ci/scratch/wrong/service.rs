//~ Sharded` is not a `Service`
//~ a repo becomes a service by `EntityService::new(repo)`
use polyserve::prelude::*;

fn serve(server: &dyn Server) -> std::io::Result<Running> {
    server.serve("127.0.0.1:0", Sharded::new())
}

fn main() {}
