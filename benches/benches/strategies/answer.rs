//! The cost of the seam: virtual calls, a visit instead of a copy, and deferred answers.
//!
//! * `call`: one GET, from a parsed head to the JSON body. The service and the repo are each called statically or
//!   through a virtual table. The difference is the cost of the virtual table.
//! * `get`: the `get` of a repo, for a map of 1 024 entities behind one lock. It returns the entity by a visit under
//!   the lock, as a clone, or as a shared pointer. Every figure includes the copy of the description into an answer.
//!   One thread runs: the `repos` benchmarks show the cost of the lock for other threads.
//! * `answer`: an immediate value, a completed promise, and a boxed future.
//!
//! Every result is checked inside the timed loop.

use std::collections::HashMap;
use std::future::ready;
use std::hint::black_box;
use std::sync::{Arc, Mutex, RwLock};

use criterion::BatchSize;
use polyserve::http::{Method, StatusCode, Version};
use polyserve::memory::Sharded;
use polyserve::sync::{lock, read};
use polyserve::{
    Answer, Entity, EntityRef, EntityRepo, EntityService, Head, Header, Headers, Lookup, Put, RepoAnswer, RepoError,
    Request, Service, Visit, promise,
};

use crate::suite::{BenchSettings, Suite};

const SHORT: Option<BenchSettings> = Some(BenchSettings::short(500));
const LONG: BenchSettings = BenchSettings::long(100, 1000, 3000);

const ENTITY: &str = r#"{"id":1,"description":"aZ09bY18cX27dW3","value":60.750847}"#;

fn repo_with_entity() -> Sharded {
    let repo = Sharded::new();
    assert!(matches!(repo.put(Entity::new(1, "aZ09bY18cX27dW3", 60.750847)), Answer::Now(Ok(Put::Created))));
    repo
}

/// Sends one GET to the service. This function is not inlined, like the call in a server's loop.
#[inline(never)]
fn ask<S: Service + ?Sized>(service: &S, fields: &[Header<'_>], body: &mut Vec<u8>) {
    let head = Head {
        method: &Method::GET,
        target: "/1",
        version: Version::HTTP_11,
        headers: Headers::new(fields),
        certificate: None,
    };
    body.clear();
    let answer = service.call(Request::new(black_box(head), b""), body);
    assert!(matches!(&answer, Answer::Now(reply) if reply.status() == StatusCode::OK) && body == ENTITY.as_bytes());
}

fn calls(suite: &mut Suite) {
    let fields = [Header { name: "Host", value: b"127.0.0.1:8001" }, Header { name: "Accept", value: b"*/*" }];
    let own_own = EntityService::new(repo_with_entity());
    let own_dyn: EntityService<Arc<dyn EntityRepo>> = EntityService::new(Arc::new(repo_with_entity()));
    let dyn_own: Arc<dyn Service> = Arc::new(EntityService::new(repo_with_entity()));
    let dyn_dyn: Arc<dyn Service> = Arc::new(EntityService::new(Arc::new(repo_with_entity()) as Arc<dyn EntityRepo>));
    let mut body = Vec::with_capacity(256);
    let mut group = suite.group("call", SHORT, LONG);
    group.bench("own_service/own_repo", |b| b.iter(|| ask(black_box(&own_own), &fields, &mut body)));
    group.bench("own_service/dyn_repo", |b| b.iter(|| ask(black_box(&own_dyn), &fields, &mut body)));
    group.bench("dyn_service/own_repo", |b| b.iter(|| ask(&**black_box(&dyn_own), &fields, &mut body)));
    group.bench("dyn_service/dyn_repo", |b| b.iter(|| ask(&**black_box(&dyn_dyn), &fields, &mut body)));
}

/// The number of entities. The map fits in the cache, so the figures show the cost of returning an entity.
const KEYS: i64 = 1024;

fn entities(length: usize) -> impl Iterator<Item = (i64, Entity)> {
    (0..KEYS).map(move |id| (id, Entity::new(id, "x".repeat(length), 0.5)))
}

/// Copies the entity into an answer, as a service does.
fn write_answer(entity: EntityRef<'_>, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(entity.description.as_bytes());
    out.extend_from_slice(&entity.value.to_le_bytes());
}

/// Benchmarks `get` over all keys in turn, and checks the entities.
fn bench_get(suite: &mut Suite, name: &str, length: usize, mut get: impl FnMut(i64, &mut Vec<u8>)) {
    let mut out = Vec::with_capacity(length + 8);
    let mut key = 0;
    suite.group("get", SHORT, LONG).bench(format!("{name}/{length}"), |b| {
        b.iter(|| {
            key = (key + 389) % KEYS; // 389 and KEYS are coprime, so every key is read
            get(black_box(key), &mut out);
            assert!(out.len() == length + 8 && out.ends_with(&0.5_f64.to_le_bytes()));
        });
    });
}

/// Runs `visit` on the entity, as [`EntityRepo::get`] does, for a map behind any lock.
fn visit_found(found: Option<&Entity>, visit: Visit<'_>) -> RepoAnswer<Lookup> {
    Answer::Now(Ok(found.map_or(Lookup::Absent, |entity| visit.show(entity))))
}

fn gets(suite: &mut Suite) {
    for length in [15, 1024] {
        let mutex: Mutex<HashMap<i64, Entity>> = Mutex::new(entities(length).collect());
        let rwlock: RwLock<HashMap<i64, Entity>> = RwLock::new(entities(length).collect());
        let shared: Mutex<HashMap<i64, Arc<Entity>>> =
            Mutex::new(entities(length).map(|(id, entity)| (id, Arc::new(entity))).collect());
        bench_get(suite, "mutex_visit", length, |key, out| {
            let answer = visit_found(
                lock(&mutex).get(&key),
                Visit::new(&mut |shown| write_answer(shown.fields().expect("it is there"), out)),
            );
            assert!(matches!(answer, Answer::Now(Ok(Lookup::Visited(_)))));
        });
        bench_get(suite, "mutex_clone", length, |key, out| {
            let found: RepoAnswer<Option<Entity>> = Answer::Now(Ok(lock(&mutex).get(&key).cloned()));
            let Answer::Now(Ok(Some(entity))) = black_box(found) else { panic!("{key} is there") };
            write_answer(entity.as_ref(), out);
        });
        bench_get(suite, "mutex_arc", length, |key, out| {
            let found: RepoAnswer<Option<Arc<Entity>>> = Answer::Now(Ok(lock(&shared).get(&key).cloned()));
            let Answer::Now(Ok(Some(entity))) = black_box(found) else { panic!("{key} is there") };
            write_answer(entity.as_ref().as_ref(), out);
        });
        bench_get(suite, "rwlock_visit", length, |key, out| {
            let answer = visit_found(
                read(&rwlock).get(&key),
                Visit::new(&mut |shown| write_answer(shown.fields().expect("it is there"), out)),
            );
            assert!(matches!(answer, Answer::Now(Ok(Lookup::Visited(_)))));
        });
        bench_get(suite, "rwlock_clone", length, |key, out| {
            let found: RepoAnswer<Option<Entity>> = Answer::Now(Ok(read(&rwlock).get(&key).cloned()));
            let Answer::Now(Ok(Some(entity))) = black_box(found) else { panic!("{key} is there") };
            write_answer(entity.as_ref(), out);
        });
    }
}

/// The answer of a repo's `get`.
type GetAnswer = RepoAnswer<Lookup>;

fn answers(suite: &mut Suite) {
    let check = |found: Result<Lookup, RepoError>| assert!(matches!(found, Ok(Lookup::Absent)));
    let mut group = suite.group("answer", SHORT, LONG);
    group.bench("now", |b| {
        b.iter(|| check(black_box(GetAnswer::Now(Ok(Lookup::Absent))).wait()));
    });
    group.bench("now_mapped", |b| {
        b.iter(|| {
            let status = black_box(GetAnswer::Now(Ok(Lookup::Absent))).map(|found| found.is_ok());
            assert!(status.wait());
        });
    });
    group.bench("boxed_ready", |b| {
        b.iter(|| check(black_box(GetAnswer::later(ready(Ok(Lookup::Absent)))).wait()));
    });
    group.bench("promise_kept", |b| {
        b.iter(|| {
            let (completer, answer): (_, GetAnswer) = promise(Err(RepoError::Closed));
            assert!(completer.complete(Ok(Lookup::Absent)).is_ok());
            check(black_box(answer).wait());
        });
    });
    group.bench("promise_kept_mapped", |b| {
        b.iter_batched(
            || promise::<Result<Lookup, RepoError>>(Err(RepoError::Closed)),
            |(completer, answer)| {
                let mapped = answer.map(|found| found.is_ok());
                assert!(completer.complete(Ok(Lookup::Absent)).is_ok());
                assert!(black_box(mapped).wait());
            },
            BatchSize::SmallInput,
        );
    });
}

pub(crate) fn benches(suite: &mut Suite) {
    calls(suite);
    gets(suite);
    answers(suite);
}
