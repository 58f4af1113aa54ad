//! The prelude has no name of `http` or axum for another item. If two glob imports have the same name for two items, its use is a
//! compile error. So this file compiles only if the prelude has none of the names that are used here, or has the same item.
#![cfg(feature = "memory")]
#![allow(dead_code, reason = "compiling is the test")]

use std::any::TypeId;

mod http_names {
    use axum::http::*;
    use polyserve::prelude::*;

    type Names = (
        Error,
        Extensions,
        HeaderMap,
        HeaderName,
        HeaderValue,
        Method,
        Request<()>,
        Response<()>,
        StatusCode,
        Uri,
        Version,
    );

    fn both(request: &Request<()>, store: Sharded) -> (Method, EntityService<Sharded>) {
        (request.method().clone(), EntityService::new(store))
    }
}

mod axum_names {
    use axum::*;
    use polyserve::prelude::*;

    type Names = (BoxError, Error, Extension<()>, Router);

    fn both(store: Sharded) -> (Router, EntityService<Sharded>) {
        (Router::new(), EntityService::new(store))
    }
}

mod axum_module_names {
    use axum::body::*;
    use axum::extract::*;
    use axum::middleware::*;
    use axum::response::*;
    use axum::routing::*;
    use polyserve::prelude::*;

    type Names = (Body, BodyDataStream, Html<()>, Next, Redirect, Response, MethodRouter, Path<()>, Request);

    fn both(store: Sharded) -> (MethodRouter, EntityService<Sharded>) {
        (get(|| async { "Hello!" }), EntityService::new(store))
    }
}

#[test]
fn the_types_of_http_are_those_of_axum() {
    assert_eq!(TypeId::of::<axum::http::Method>(), TypeId::of::<polyserve::http::Method>());
    assert_eq!(TypeId::of::<axum::http::StatusCode>(), TypeId::of::<polyserve::prelude::StatusCode>());
}
