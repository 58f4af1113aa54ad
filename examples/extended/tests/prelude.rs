//! The prelude has no name of `http` or axum. If two glob imports have the same name, its use is a compile error. So
//! this file compiles only if the prelude has none of the names that are used here.

#![allow(dead_code, reason = "compiling is the test")]

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
fn the_prelude_has_no_name_of_http_or_axum() {
    let compiled = (std::any::type_name::<axum::http::Method>(), std::any::type_name::<polyserve::Method>());
    assert_ne!(compiled.0, compiled.1);
}
