//! The entity service has every property that no server decides.

use polyserve_conformance::service::Unconnected;

polyserve_conformance::service_conformance!(entity_service, Unconnected::default());
