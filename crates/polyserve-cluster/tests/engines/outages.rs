//! The kit for stores over an engine: overload, and an engine that is slow, paused, stopped or absent.

use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use polyserve_cluster::StoreLimits;
use polyserve_conformance::engine::{Connector, EngineControl, EngineSubject, PROPERTIES};
use polyserve_conformance::property::Outcome;
use polyserve_core::Entity;
use polyserve_engines::process::{MAX_WAIT, Missing, free_port};
use polyserve_engines::slow::SlowPort;

use crate::Test;
use crate::basics::{past_silent_hosts, through_slow_port};
use crate::kind::{Connect as _, Kind, RunningEngine};

pub(crate) fn tests(kind: Kind) -> Vec<Test> {
    let property = |run: fn(&EngineSubject) -> Outcome| {
        move || match run(&subject(kind)) {
            Outcome::Held => Ok(()),
            Outcome::NotRun(why) => Err(Missing(why)),
        }
    };
    let test = |name: &str, run| Test::own(kind, &format!("engine_kit::{name}"), property(run));
    PROPERTIES.iter().map(|listed| test(listed.name, listed.run)).collect()
}

fn subject(kind: Kind) -> EngineSubject {
    let start = move || {
        let engine = kind.start().map_err(|Missing(why)| why)?;
        Ok(ControlledEngine { kind, urls: engine.urls(), engine, port: None, silent: Vec::new() })
    };
    let absent = move || connector(kind, absent_url(kind));
    let subject = EngineSubject::new(start, &format!("cannot connect to {}: ", kind.name()), absent).max_wait(MAX_WAIT);
    // These nodes of Redis keep nothing on disk. Without a connection, the client library of Redis cannot always tell whether it has
    // sent a request.
    if kind == Kind::Redis { subject.forgets().may_leave_a_write_unknown() } else { subject }
}

/// An engine that the kit disturbs.
struct ControlledEngine {
    kind: Kind,
    /// The URLs that stores connect to.
    urls: String,
    engine: RunningEngine,
    /// The port between the stores and a slow engine.
    port: Option<SlowPort>,
    silent: Vec<TcpListener>,
}

impl EngineControl for ControlledEngine {
    fn connector(&self) -> Connector {
        connector(self.kind, self.urls.clone())
    }

    fn before_slow_down(&mut self) {
        // The nodes of Redis tell clients their ports, so no port can stand between.
        if self.kind != Kind::Redis {
            let (urls, port) = through_slow_port(&self.urls);
            (self.urls, self.port) = (urls, Some(port));
        }
    }

    fn slow_down(&mut self, delay: Duration) {
        match (&self.engine, &self.port) {
            (RunningEngine::Redis(redis), _) => redis.hold(delay),
            (_, Some(port)) => port.set_delay(delay),
            (_, None) => unreachable!("the port stands between"),
        }
    }

    fn pause(&mut self) {
        self.engine.stop();
    }

    fn resume(&mut self) {
        self.engine.resume();
    }

    fn stop(&mut self) {
        self.engine.kill();
    }

    fn restart(&mut self) {
        self.engine.restart();
    }

    fn refuse_writes(&mut self) -> Result<(), String> {
        self.engine.refuse_writes(true);
        Ok(())
    }

    fn accept_writes(&mut self) {
        self.engine.refuse_writes(false);
    }

    fn connector_past_a_silent_host(&mut self) -> Result<Connector, String> {
        let (urls, silent) = past_silent_hosts(self.kind, &self.urls, 1);
        self.silent = silent;
        Ok(connector(self.kind, urls))
    }

    fn end_connections(&mut self) -> Result<(), String> {
        self.engine.end_connections();
        Ok(())
    }
}

/// Half of the operations may be in flight, and half may wait.
fn connector(kind: Kind, urls: String) -> Connector {
    Arc::new(move |name_space, limits| {
        let half = NonZeroUsize::new(limits.operations.get() / 2).expect("it holds at least two");
        let store_limits = StoreLimits::default()
            .timeout(limits.timeout)
            .connect_timeout(limits.connect_timeout)
            .max_in_flight(half)
            .max_waiting(half)
            .max_bytes(limits.bytes);
        Ok(kind.connect::<Entity>(&urls, name_space, store_limits)?)
    })
}

/// The URL of a port at which nothing listens.
fn absent_url(kind: Kind) -> String {
    let address = format!("127.0.0.1:{}", free_port());
    match kind {
        Kind::Etcd => format!("http://{address}"),
        Kind::Redis => format!("redis://{address}"),
        Kind::Postgres => format!("postgres://user@{address}/none"),
    }
}
