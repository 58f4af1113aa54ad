//! `routes`: several services under one server, by the prefix of the path.
//!
//! Cost of a request: a comparison with each prefix until one matches, and one virtual call. No allocation.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use http::header::ALLOW;
use http::{HeaderValue, Method, StatusCode};

use super::entity_service::options;
use super::ready::Ready;
use super::{EntityService, Head, Reply, Request, Service, path};
use crate::answer::Answer;
use crate::entity::Identifiable;
use crate::repo::EntityRepo;

/// A service that dispatches: the prefix of a path selects the service that answers.
///
/// The longest prefix that matches wins, in whatever order the services were added. A prefix matches whole segments: `/a`
/// matches `/a`, `/a/` and `/a/b`, but not `/ab`. The prefix is compared byte by byte: percent-encoded bytes are not decoded,
/// as in [`EntityService::at`]. The query does not count.
///
/// A service gets the request as it was sent, with the whole path. So a `Location` that it sends is right.
///
/// A path without a service is answered with 404 as `application/problem+json`; [`otherwise`](Self::otherwise) sets another
/// answer. `OPTIONS *` asks about the server as a whole. The answer lists the methods that the services list when they are asked by
/// [`Service::head`], or all methods if a service does not answer that.
///
/// ```
/// use polyserve_core::{EntityRepo, EntityService, InvalidRoute, Reply, Request, Routes};
///
/// fn routes(accounts: impl EntityRepo) -> Result<Routes, InvalidRoute> {
///     Routes::new()
///         .entities(EntityService::new(accounts).at("/accounts")?)?
///         .at("/health", |_: Request<'_>| Reply::text("well"))
/// }
/// ```
///
/// [`EntityService`]: super::EntityService
/// [`EntityService::at`]: super::EntityService::at
#[derive(Default)]
#[must_use]
pub struct Routes {
    /// Longer prefixes come first.
    routes: Vec<(String, Arc<dyn Service>)>,
    otherwise: Option<Arc<dyn Service>>,
}

impl Routes {
    /// Creates a service without routes. Every path is answered with 404.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a service for all paths under `prefix`, which has the form of [`EntityService::at`], such as `/accounts`.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidRoute`] if `prefix` does not begin with `/`, ends with `/`, has a byte that may not stand in a path as
    /// it is, or already has a service. The empty prefix is an error too: [`otherwise`](Self::otherwise) takes all other paths.
    ///
    /// [`EntityService::at`]: super::EntityService::at
    pub fn at(mut self, prefix: impl Into<String>, service: impl Service) -> Result<Self, InvalidRoute> {
        let prefix = prefix.into();
        if prefix.is_empty() || !path::is_prefix(&prefix) {
            return Err(InvalidRoute::Malformed { prefix });
        }
        if self.routes.iter().any(|(other, _)| *other == prefix) {
            return Err(InvalidRoute::Duplicate { prefix });
        }
        let place = self.routes.partition_point(|(other, _)| other.len() >= prefix.len());
        self.routes.insert(place, (prefix, service.into_shared()));
        Ok(self)
    }

    /// Adds a service of entities for all paths under its own prefix.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidRoute`] as [`at`](Self::at) does; a service without a prefix is an error.
    pub fn entities<R, E>(self, service: EntityService<R, E>) -> Result<Self, InvalidRoute>
    where
        R: EntityRepo<E>,
        E: Identifiable,
    {
        self.at(service.prefix().to_owned(), service)
    }

    /// Adds the answer to a health check at `path`, such as `/readyz`: 200 if the server takes requests and the store takes
    /// writes, else 503. In a drain it is 503.
    ///
    /// The store is asked by [`EntityRepo::status`], once at a time. If it does not answer within [`MAX_STATUS_WAIT`], the answer is
    /// 503, and the store's late answer is not used.
    ///
    /// [`MAX_STATUS_WAIT`]: crate::repo::MAX_STATUS_WAIT
    ///
    /// # Errors
    ///
    /// Returns [`InvalidRoute`] as [`at`](Self::at) does.
    ///
    /// ```
    /// use polyserve_core::{EntityRepo, EntityService, InvalidRoute, Routes};
    /// use std::sync::Arc;
    ///
    /// fn routes(store: Arc<dyn EntityRepo>) -> Result<Routes, InvalidRoute> {
    ///     Ok(Routes::new().ready("/readyz", Arc::clone(&store))?.otherwise(EntityService::new(store)))
    /// }
    /// ```
    pub fn ready<E: Identifiable>(
        self,
        path: impl Into<String>,
        store: impl EntityRepo<E>,
    ) -> Result<Self, InvalidRoute> {
        let path = path.into();
        self.at(path.clone(), Ready::new(path, store))
    }

    /// Sets the service for all paths that no prefix matches. It replaces the answer 404, or an earlier service.
    ///
    /// ```
    /// use polyserve_core::{Reply, Request, Routes, Service};
    /// let routes = Routes::new().otherwise(|request: Request<'_>| Reply::text(format!("no {}", request.head.path())));
    /// # let _: &dyn Service = &routes;
    /// ```
    pub fn otherwise(mut self, service: impl Service) -> Self {
        self.otherwise = Some(service.into_shared());
        self
    }

    /// Returns the service of a request, or the answer to a request that has none.
    fn route(&self, head: &Head<'_>) -> Result<&dyn Service, Reply> {
        let path = head.path();
        if path == "*" {
            return Err(match *head.method {
                Method::OPTIONS => Reply::empty(StatusCode::NO_CONTENT).with_field(ALLOW, self.methods(head)),
                _ => options(head.method, "OPTIONS"),
            });
        }
        let found = self.routes.iter().find(|(prefix, _)| {
            path.strip_prefix(prefix.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        match found.map(|(_, service)| service).or(self.otherwise.as_ref()) {
            Some(service) => Ok(&**service),
            None => Err(Reply::problem(StatusCode::NOT_FOUND, "There is nothing at this path.")),
        }
    }

    /// Returns the methods of all services, given the head of `OPTIONS *`.
    fn methods(&self, head: &Head<'_>) -> HeaderValue {
        const ALL: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"];
        let services = self.routes.iter().map(|(_, service)| service).chain(&self.otherwise);
        let listed: Vec<Option<Reply>> = services.map(|service| service.head(head)).collect();
        let lists = |reply: &Option<Reply>, method: &str| {
            let allow = reply.as_ref().and_then(|reply| reply.headers().find(|(name, _)| **name == ALLOW));
            let allow = allow.and_then(|(_, value)| value.to_str().ok());
            allow.is_none_or(|allow| allow.split(',').any(|listed| listed.trim() == method))
        };
        let is_listed = |method: &&str| *method == "OPTIONS" || listed.iter().any(|reply| lists(reply, method));
        let methods: Vec<_> = ALL.into_iter().filter(is_listed).collect();
        HeaderValue::try_from(methods.join(", ")).unwrap_or(HeaderValue::from_static("OPTIONS"))
    }
}

impl Service for Routes {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        match self.route(&request.head) {
            Ok(service) => service.call(request, body),
            Err(reply) => Answer::Now(reply),
        }
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        match self.route(head) {
            Ok(service) => service.head(head),
            Err(reply) => Some(reply),
        }
    }

    fn sees_peers(&self) -> bool {
        self.routes.iter().map(|(_, service)| service).chain(&self.otherwise).any(Service::sees_peers)
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefixes: Vec<_> = self.routes.iter().map(|(prefix, _)| prefix).collect();
        f.debug_struct("Routes")
            .field("prefixes", &prefixes)
            .field("otherwise", &self.otherwise.is_some())
            .finish_non_exhaustive()
    }
}

/// The error for a prefix that [`Routes`] does not accept.
///
/// ```
/// use polyserve_core::{Echo, InvalidRoute, Routes};
/// assert!(matches!(Routes::new().at("accounts", Echo), Err(InvalidRoute::Malformed { .. })));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidRoute {
    /// It is no prefix of a path.
    Malformed {
        /// The prefix.
        prefix: String,
    },
    /// It already has a service.
    Duplicate {
        /// The prefix.
        prefix: String,
    },
}

impl fmt::Display for InvalidRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { prefix } if prefix.is_empty() || prefix == "/" => write!(
                f,
                "the prefix {prefix:?} matches every path: set the service of all other paths by `Routes::otherwise`"
            ),
            Self::Malformed { prefix } => write!(
                f,
                "{prefix:?} is no prefix of a path: it begins with a slash and ends without one, such as /accounts"
            ),
            Self::Duplicate { prefix } => write!(f, "the prefix {prefix:?} already has a service"),
        }
    }
}

impl Error for InvalidRoute {}

#[cfg(test)]
mod tests {
    use super::super::{Body, Headers, known_method};
    use super::*;
    use http::Version;

    /// Answers with a name, by its head alone if its name begins with `!`.
    struct Named(&'static str);

    impl Service for Named {
        fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
            body.extend_from_slice(request.head.target.as_bytes());
            Answer::Now(Reply::new(StatusCode::OK, self.0, Body::InPlace))
        }
        fn head(&self, _: &Head<'_>) -> Option<Reply> {
            self.0.starts_with('!').then(|| Reply::new(StatusCode::OK, self.0, Body::Static(b"")))
        }
    }

    fn head<'a>(method: &'a Method, target: &'a str) -> Head<'a> {
        Head { method, target, version: Version::HTTP_11, headers: Headers::new(&[]), certificate: None }
    }

    /// Returns the answer and the bytes in the buffer.
    fn call(routes: &Routes, method: &Method, target: &str) -> (Reply, Vec<u8>) {
        let mut body = Vec::new();
        let answer = routes.call(Request::new(head(method, target), b""), &mut body);
        (answer.wait(), body)
    }

    fn routes() -> Routes {
        let add = |routes: Routes, prefix: &'static str| routes.at(prefix, Named(prefix)).unwrap();
        ["/a", "/a/b/c", "/ab", "/a/b", "/z"].into_iter().fold(Routes::new(), add)
    }

    #[test]
    fn the_longest_prefix_of_whole_segments_wins() {
        let routes = routes();
        for (target, service) in [
            ("/a", "/a"),
            ("/a/", "/a"),
            ("/a/x", "/a"),
            ("/a?b=/a/b", "/a"),
            ("/a/bc", "/a"),
            ("/a/%62", "/a"),
            ("/a//b", "/a"),
            ("/a/b", "/a/b"),
            ("/a/b/?/c", "/a/b"),
            ("/a/b/cd", "/a/b"),
            ("/a/b/c/d", "/a/b/c"),
            ("/ab/c", "/ab"),
            ("http://host:1/a/b?q", "/a/b"),
            ("http://host/z", "/z"),
        ] {
            let (reply, body) = call(&routes, &Method::GET, target);
            assert_eq!(
                (reply.status(), reply.content_type().unwrap()),
                (StatusCode::OK, &HeaderValue::from_static(service)),
                "{target}"
            );
            assert_eq!(body, target.as_bytes(), "the service gets the whole target");
        }
        for target in ["/", "/abc", "/b", "/A", "//a", "/%61", "/?/a", "http://host", "http://a/b/a"] {
            let (reply, _) = call(&routes, &Method::PUT, target);
            assert_eq!(reply.status(), StatusCode::NOT_FOUND, "{target}");
            assert_eq!(reply.content_type().unwrap(), "application/problem+json");
            assert_eq!(routes.head(&head(&Method::PUT, target)).unwrap().status(), StatusCode::NOT_FOUND);
        }
    }

    #[test]
    fn the_head_reaches_the_same_service() {
        let routes = Routes::new().at("/a", Named("!a")).unwrap().at("/a/b", Named("b")).unwrap();
        assert_eq!(routes.head(&head(&Method::PUT, "/a/c")).unwrap().content_type().unwrap(), "!a");
        assert!(routes.head(&head(&Method::PUT, "/a/b")).is_none());
        let routes = routes.otherwise(Named("!rest"));
        assert_eq!(routes.head(&head(&Method::PUT, "/c")).unwrap().content_type().unwrap(), "!rest");
        assert_eq!(call(&routes, &Method::GET, "/c").0.content_type().unwrap(), "!rest");
    }

    #[test]
    fn the_server_as_a_whole_is_no_path() {
        for routes in [routes(), routes().otherwise(Named("rest"))] {
            let (reply, _) = call(&routes, &Method::OPTIONS, "*");
            assert_eq!(reply.status(), StatusCode::NO_CONTENT);
            let allow = reply.headers().find(|(name, _)| **name == ALLOW).unwrap().1.to_str().unwrap();
            assert!(allow.split(", ").all(|name| known_method(name).is_some()), "{allow}");
            assert!(["GET", "POST", "PATCH"].iter().all(|name| allow.contains(name)), "{allow}");
            assert_eq!(call(&routes, &Method::GET, "*").0.status(), StatusCode::METHOD_NOT_ALLOWED);
        }
    }

    /// Regression test: `OPTIONS *` listed POST, which neither the entities nor the health check take.
    #[test]
    fn the_server_as_a_whole_has_the_methods_of_its_services() {
        let allow = |routes: &Routes| {
            let (reply, _) = call(routes, &Method::OPTIONS, "*");
            assert_eq!(reply.status(), StatusCode::NO_CONTENT);
            reply.headers().find(|(name, _)| **name == ALLOW).unwrap().1.to_str().unwrap().to_owned()
        };
        struct Listed(&'static str);
        impl Service for Listed {
            fn call(&self, request: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
                Answer::Now(self.head(&request.head).unwrap())
            }
            fn head(&self, head: &Head<'_>) -> Option<Reply> {
                Some(options(head.method, self.0))
            }
        }
        let of = |lists: &[&'static str]| {
            let add = |routes: Routes, (number, list): (usize, &&'static str)| {
                routes.at(format!("/{number}"), Listed(list)).unwrap()
            };
            allow(&lists.iter().enumerate().fold(Routes::new(), add))
        };
        assert_eq!(of(&[]), "OPTIONS");
        assert_eq!(of(&["GET, HEAD, OPTIONS", "OPTIONS,PUT"]), "GET, HEAD, PUT, OPTIONS");
        let with_any = Routes::new().at("/a", Listed("GET, OPTIONS")).unwrap().otherwise(Named("rest"));
        assert!(allow(&with_any).contains("POST"));
    }

    #[test]
    fn a_wrong_prefix_is_an_error_that_names_it() {
        for prefix in ["", "/", "a", "/a/", "//a", "/a b", "/a%20", "/..", "/a?b", "/a#b", "/\u{e4}"] {
            let error = routes().at(prefix, Named("x")).unwrap_err();
            assert_eq!(error, InvalidRoute::Malformed { prefix: prefix.into() });
            assert!(error.to_string().contains(&format!("{prefix:?}")), "{error}");
        }
        for prefix in ["/a/b-c", "/v1.0/x"] {
            assert!(routes().at(prefix, Named("x")).is_ok(), "{prefix}");
        }
        let error = routes().at("/a/b", Named("x")).unwrap_err();
        assert_eq!(error.to_string(), r#"the prefix "/a/b" already has a service"#);
    }
}
