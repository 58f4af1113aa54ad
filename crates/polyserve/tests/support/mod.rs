//! What the tests over all servers share.

use std::io::{Write as _, stderr};

use polyserve::catalog::{Catalog, ServerEntry};

/// Returns the servers that the system allows. Prints that `test` is not run on the others, past the capture of the test harness.
pub(crate) fn servers(test: &str) -> Vec<ServerEntry> {
    let catalog = Catalog::builtin();
    for (server, reason) in catalog.servers_not_allowed() {
        let _ = writeln!(stderr(), "not run: {test}: {}: {reason}", server.name);
    }
    catalog.servers().to_vec()
}
