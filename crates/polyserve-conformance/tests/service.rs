//! The entity service has every property that no server decides.

use libtest_mimic::{Arguments, Trial};
use polyserve_conformance::service::{PROPERTIES, ServiceProperty};

fn main() {
    let trial = |property: &'static ServiceProperty| {
        Trial::test(format!("entity_service::{}", property.name), || {
            property.check();
            Ok(())
        })
    };
    libtest_mimic::run(&Arguments::from_args(), PROPERTIES.iter().map(trial).collect()).exit();
}
