//! Models of the count of requests in work: threads are admitted and leave at the same time.

use std::sync::Arc;
use std::time::Instant;

use http::{Method, Version};

use crate::overload::{Overload, RequestAdmission};
use crate::service::{Head, Headers};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::model::{Bounds, check};
use crate::sync::thread;

/// Asks for admission, and leaves. Returns whether it was admitted.
fn pass(admission: &Arc<RequestAdmission>, inside: &AtomicUsize, limit: usize) -> bool {
    let (method, headers) = (Method::GET, Headers::new(&[]));
    let head = Head { method: &method, target: "/", version: Version::HTTP_11, headers, certificate: None };
    let Ok(permit) = admission.admit(&head, None::<Instant>) else { return false };
    assert!(inside.fetch_add(1, Ordering::SeqCst) < limit, "more are in work than the limit");
    inside.fetch_sub(1, Ordering::SeqCst);
    drop(permit);
    true
}

#[test]
fn a_limit_is_exact() {
    fn body() {
        let (admission, inside) = (RequestAdmission::new(&Overload::static_limit(1)), Arc::new(AtomicUsize::new(0)));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (admission, inside) = (Arc::clone(&admission), Arc::clone(&inside));
                thread::spawn(move || pass(&admission, &inside, 1))
            })
            .collect();
        let here = pass(&admission, &inside, 1);
        let admitted = threads.into_iter().map(|thread| thread.join().unwrap()).filter(|admitted| *admitted).count();
        assert!(here || admitted > 0, "a request was refused although none was in work");
        assert_eq!(admission.in_work(), 0);
        assert!(pass(&admission, &inside, 1), "a request that has left still counts");
    }
    check("overload: three requests at a limit of one", Bounds::new(2, 3), body);
}
