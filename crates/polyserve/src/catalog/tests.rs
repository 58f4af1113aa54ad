use std::sync::Arc;

use super::*;

#[test]
fn the_services_are_always_there() {
    let names: Vec<_> = Catalog::builtin().services().iter().map(|entry| entry.name.clone()).collect();
    assert_eq!(names, ["entity", "echo"]);
    assert!(Catalog::builtin().references().is_empty());
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    let error = Catalog::builtin().service("ecko").err().unwrap();
    assert_eq!(error.to_string(), "there is no service \"ecko\", did you mean \"echo\"?; there are: entity, echo");
    let error = Catalog::new().reference("null").err().unwrap();
    assert_eq!(error.to_string(), "there is no reference \"null\"; this program has none");
}

#[test]
fn an_entry_replaces_its_namesake_in_place() {
    use polyserve_core::Echo;
    let mine = Entry::service("echo", "mine", &[], |_| Arc::new(Echo));
    let catalog = Catalog::builtin().with_service(mine);
    assert_eq!(catalog.services().len(), Catalog::builtin().services().len());
    assert_eq!(catalog.service("echo").unwrap().summary, "mine");
}

#[cfg(feature = "memory")]
#[test]
fn every_repo_is_made_new_and_empty() {
    use polyserve_core::Entity;
    for entry in Catalog::builtin().repos() {
        let repo = entry.build().unwrap();
        let _ = repo.put(Entity::new(1, "one", 1.0)).wait().unwrap();
        assert_eq!(repo.len().wait().unwrap(), 1, "{}", entry.name);
        assert_eq!(entry.build().unwrap().len().wait().unwrap(), 0, "{}", entry.name);
    }
}

/// Regression test: `durable/ordered` could be scanned and did not promise it, as `durable` over any other repo.
#[cfg(feature = "memory")]
#[test]
fn a_repo_promises_scans_if_it_can_be_scanned() {
    let catalog = Catalog::builtin();
    let over = |name: &str| [name.to_owned(), format!("durable/{name}:{}", std::env::temp_dir().display())];
    let names = catalog.repos().iter().map(|entry| entry.name.as_str()).chain(["ordered/std_mutex"]).flat_map(over);
    let is_built = |name: &String| cfg!(feature = "durable") || !name.starts_with("durable/");
    for name in names.filter(is_built) {
        let entry = catalog.repo(&name).unwrap();
        assert_eq!(entry.promises(Promise::Scans), name.contains("ordered"), "{name}: {:?}", entry.promises);
        assert_eq!(entry.build().unwrap().can_scan(), entry.promises(Promise::Scans), "{name}");
    }
}

#[cfg(feature = "threadpool")]
mod threadpool {
    use super::*;
    use polyserve_core::{ServerConfig, Shape};

    #[test]
    fn a_server_over_an_executor_carries_its_name() {
        let catalog = Catalog::builtin();
        let names: Vec<_> = catalog.servers().iter().map(|entry| entry.name.as_str()).collect();
        let pools = ["mpsc_pool", "crossbeam_pool", "stealing_pool"]
            .map(|pool| [format!("pool_server/{pool}"), format!("pool_classic/{pool}")]);
        let over_pools = pools.concat();
        let listed: Vec<_> = names.iter().filter(|name| over_pools.iter().any(|pool| pool == *name)).collect();
        assert_eq!(listed, over_pools.iter().collect::<Vec<_>>());
        for executor in catalog.executors() {
            for server in ["pool_server", "pool_classic"] {
                assert!(names.contains(&format!("{server}/{}", executor.name).as_str()), "{names:?}");
            }
        }
        assert_eq!(catalog.server("pool_server").unwrap().name, "pool_server/mpsc_pool");
        let error = catalog.server("pool_servre").err().unwrap().to_string();
        assert!(error.contains("did you mean \"pool_server\"?"), "{error}");
        assert!(error.contains("leader_followers") && error.contains("pool_server/stealing_pool"), "{error}");
    }

    #[test]
    fn an_executor_of_ones_own_gets_a_server() {
        let mpsc = Catalog::builtin().executor("mpsc_pool").unwrap().clone();
        let mine = Entry::executor("mine", "my own", &[], move |config| mpsc.build(config));
        let catalog = Catalog::new().with_executor(mine);
        let server = catalog.server("pool_server/mine").unwrap().build(&ServerConfig::default()).unwrap();
        let running = polyserve::ServerExt::serve(&server, ([127, 0, 0, 1], 0), polyserve_core::Echo).unwrap();
        assert_ne!(running.local_addr().port(), 0);
        assert_eq!(running.shutdown().unwrap(), polyserve_core::Drain::default());
    }

    #[test]
    fn the_first_promise_is_the_servers_shape() {
        for entry in Catalog::builtin().servers() {
            let server = entry.build(&ServerConfig::default()).unwrap();
            assert_eq!(entry.promises[0], Promise::Shape(server.shape()), "{}", entry.name);
            let bounded = server.shape() != Shape::Multiplexed;
            assert_eq!(server.max_concurrent().is_some(), bounded, "{}", entry.name);
        }
    }

    /// Regression test: `--queue` was ignored by every server without a queue.
    #[test]
    fn a_queue_is_promised_or_refused() {
        let config = ServerConfig::default().queue(1);
        for entry in Catalog::builtin().servers() {
            let refused = entry.build(&config).err().map(|error| error.unsupported_setting());
            let promised = entry.promises(Promise::BoundedQueue);
            assert_eq!(refused, (!promised).then_some(Some("queue")), "{}: {:?}", entry.name, entry.promises);
        }
    }

    /// Experiments derive the max number of pending deferred answers from the promise.
    #[test]
    fn every_server_declares_what_later_answers_hold() {
        for entry in Catalog::builtin().servers() {
            let promises = [Promise::LaterHoldsWorker, Promise::LaterHoldsNoThread];
            let declared = promises.into_iter().filter(|promise| entry.promises(*promise));
            assert_eq!(declared.count(), 1, "{}: {:?}", entry.name, entry.promises);
        }
    }

    #[test]
    fn every_executor_runs_a_job() {
        for entry in Catalog::builtin().executors() {
            let executor = entry.build(&ServerConfig::default()).unwrap();
            let (done, ran) = std::sync::mpsc::channel();
            executor.execute(polyserve_core::Job::new(move || done.send(()).unwrap())).unwrap();
            ran.recv_timeout(std::time::Duration::from_secs(60)).expect(&entry.name);
            assert_eq!(executor.close(None), 0, "{}", entry.name);
        }
    }
}

#[test]
fn a_runtimes_executors_come_with_its_feature() {
    let catalog = Catalog::builtin();
    for (name, is_built) in [
        ("tokio_tasks", cfg!(feature = "tokio")),
        ("tokio_blocking", cfg!(feature = "tokio")),
        ("smol_tasks", cfg!(feature = "smol")),
        ("futures_tasks", cfg!(feature = "futures")),
    ] {
        assert_eq!(catalog.executor(name).is_ok(), is_built, "{name}");
    }
}

#[test]
fn every_builtin_strategy_has_code() {
    let catalog = Catalog::builtin();
    let servers = catalog.servers().iter().map(|entry| (&entry.name, &entry.code, 1));
    let repos = catalog.repos().iter().map(|entry| (&entry.name, &entry.code, 0));
    let executors = catalog.executors().iter().map(|entry| (&entry.name, &entry.code, 0));
    for (name, code, configs) in servers.chain(repos).chain(executors) {
        let expression = &code.as_ref().expect(name).expression;
        assert_eq!(expression.matches(BuildCode::CONFIG).count(), configs, "{name}: {expression}");
        assert!(!expression.contains(" :: ") && !expression.contains('\n'), "{name}: {expression}");
    }
}

#[cfg(all(feature = "memory", feature = "threadpool"))]
#[test]
fn code_as_people_write_it() {
    let catalog = Catalog::builtin();
    let expression = |code: &Option<BuildCode>| code.clone().expect("it has code").expression;
    assert_eq!(expression(&catalog.repo("two_level").unwrap().code), "polyserve::memory::TwoLevel::new()");
    assert_eq!(expression(&catalog.repo("actor").unwrap().code), "polyserve::memory::Actor::start()?");
    assert_eq!(
        expression(&catalog.server("sequential").unwrap().code),
        "polyserve::threadpool::Sequential::new(ServerConfig::default())?"
    );
    let expected = stringify!(PoolServer::mpsc(ServerConfig::default())?);
    let without_spaces = |text: &str| text.split_whitespace().collect::<String>();
    assert_eq!(without_spaces(&expression(&catalog.server("pool_server").unwrap().code)), without_spaces(expected));
}

/// The text that the test above compares with code.
#[cfg(all(feature = "memory", feature = "threadpool"))]
#[test]
fn the_code_of_a_pool_server_compiles() {
    use polyserve::prelude::*;
    let build = || -> Result<PoolServer, Box<dyn std::error::Error>> { Ok(PoolServer::mpsc(ServerConfig::default())?) };
    assert_eq!(build().unwrap().shape(), Shape::Multiplexed);
}

#[cfg(all(
    feature = "dashmap",
    feature = "papaya",
    feature = "scc",
    feature = "tokio",
    feature = "smol",
    feature = "futures"
))]
#[test]
fn every_tag_is_on_an_entry() {
    let catalog = Catalog::builtin();
    let servers = |tag| catalog.servers().iter().filter(|entry| entry.has(tag)).count();
    let repos = |tag| catalog.repos().iter().filter(|entry| entry.has(tag)).count();
    for tag in [Tag::Quick, Tag::Recommended] {
        assert_ne!(servers(tag), 0, "{tag}");
    }
    assert_eq!(repos(Tag::Quick), 0);
}

#[test]
fn a_programs_own_entry_has_no_tags_and_no_code() {
    use polyserve_core::Echo;
    let mine = Entry::service("mine", "my own", &[Promise::Other("my own words")], |_| Arc::new(Echo));
    assert!(mine.tags.is_empty() && mine.code.is_none());
    assert!(mine.promises(Promise::Other("my own words")) && !mine.promises(Promise::AnswersNow));
    assert_eq!(mine.promises[0].to_string(), "my own words");
    let tagged = mine.with_tags(&[Tag::Quick]).with_code(BuildCode::new(None, "Mine"));
    assert!(tagged.has(Tag::Quick) && !tagged.has(Tag::Recommended) && tagged.code.is_some());
}

/// A program is built without some features: the error names the feature, and not a list of other repos.
#[test]
fn a_repo_of_a_feature_that_is_off_is_named_with_it() {
    let catalog = Catalog::builtin();
    for (kind, feature, is_on) in builtin::schemes::FEATURES {
        let found = catalog.repo(&format!("{kind}:somewhere"));
        assert_eq!(catalog.repo_schemes().iter().any(|scheme| scheme.name == kind), is_on, "{kind}");
        assert_eq!(catalog.repos_not_built().any(|lacking| lacking == (kind, feature)), !is_on, "{kind}");
        match found {
            Ok(entry) => assert!(is_on && entry.name == format!("{kind}:somewhere") && entry.has_location()),
            Err(unknown) => {
                let text = unknown.to_string();
                assert!(!is_on && text.contains(&format!("needs the feature `{feature}`")), "{text}");
            }
        }
    }
}

/// An error reaches logs: it shows the kind of a repo, and not its location.
#[test]
fn an_error_shows_no_password() {
    let catalog = Catalog::builtin();
    for name in ["postgress:postgres://app:secret@127.0.0.1/app", "etcd:", "no/such:http://user:secret@127.0.0.1:1"] {
        let text = catalog.repo(name).unwrap_err().to_string();
        assert!(!text.contains("secret"), "{text}");
    }
}

/// Regression test: the location of a store in memory was ignored, so entities that seemed to be kept were lost.
#[test]
fn a_store_in_memory_takes_no_location() {
    let error = Catalog::builtin().repo("sharded:data").unwrap_err().to_string();
    assert!(error.starts_with("the repo \"sharded\" needs no location"), "{error}");
    #[cfg(feature = "durable")]
    assert!(error.contains("durable/sharded:PATH"), "{error}");
    let entry = Entry::repo("mine:here", "a test", &[], || Ok(Arc::new(polyserve_memory::Sharded::new())));
    assert_eq!(Catalog::builtin().with_repo(entry).repo("mine:here").unwrap().name, "mine:here");
}

#[cfg(all(feature = "percore", target_os = "linux"))]
#[test]
fn per_core_is_the_server_that_runs_here() {
    let catalog = Catalog::builtin();
    let name = if polyserve_percore::IoUring::check().is_ok() { "io_uring" } else { "epoll" };
    assert_eq!(catalog.server("per_core").unwrap().name, name);
    match catalog.server("io_uring") {
        Ok(entry) => assert_eq!(entry.name, name),
        Err(error) => assert!(error.to_string().contains("does not allow"), "{error}"),
    }
}
