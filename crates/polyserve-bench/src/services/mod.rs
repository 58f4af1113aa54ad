//! The services of the published experiments: `page` and `welcome`.
//!
//! Invariant: a program's own service of the same name stays in its catalog.

mod page;
mod welcome;

use std::sync::Arc;

use polyserve::catalog::{Catalog, Entry, Promise, ServiceEntry};

pub use page::Page;
pub use welcome::Welcome;

/// Adds the services of this crate to `catalog`. An entry of the same name stays as it is.
///
/// ```
/// use polyserve::catalog::Catalog;
///
/// let catalog = polyserve_bench::services::with_services(Catalog::builtin());
/// assert!(catalog.service("page").is_ok() && catalog.service("welcome").is_ok());
/// ```
#[must_use]
pub fn with_services(catalog: Catalog) -> Catalog {
    entries().into_iter().fold(catalog, |catalog, entry| match catalog.service(&entry.name) {
        Ok(_) => catalog,
        Err(_) => catalog.with_service(entry),
    })
}

fn entries() -> [ServiceEntry; 2] {
    [
        Entry::service(
            "page",
            "GET / is a small page; every 10th request waits 2 s first",
            &[Promise::AnswersNowOrLater],
            |_| Arc::new(Page::default()),
        ),
        Entry::service("welcome", "GET / is Welcome!", &[Promise::AnswersNow], |_| Arc::new(Welcome)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_own_service_stays() {
        let mine = Entry::service("page", "mine", &[], |_| Arc::new(polyserve::Echo));
        let catalog = with_services(Catalog::builtin().with_service(mine));
        assert_eq!(catalog.service("page").unwrap().summary, "mine");
        let names: Vec<_> = catalog.services().iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["entity", "echo", "page", "welcome"]);
    }
}
