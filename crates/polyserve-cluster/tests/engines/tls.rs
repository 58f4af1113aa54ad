//! Stores that speak TLS to an engine: what is stored is read, and a certificate that is not trusted is an error at once.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use polyserve_cluster::{ConnectError, EngineTls, StoreLimits};
use polyserve_conformance::tls::{Issued, TestAuthority, Validity};
use polyserve_core::{Entity, EntityRepo, EntityRepoExt as _};
use polyserve_engines::postgres::PostgresServer;
use polyserve_engines::process::{EngineProcess, Folder, Missing, free_port, output, program, wait_for};

use crate::Test;
use crate::kind::{Kind, long_limits};
use crate::starts::{patient, refused};

pub(crate) fn tests(kind: Kind) -> Vec<Test> {
    match kind {
        Kind::Etcd => vec![Test::own(kind, "tls::a_store_and_its_members_trust_each_other", etcd)],
        Kind::Redis => vec![Test::own(kind, "tls::a_store_trusts_the_nodes", redis)],
        Kind::Postgres => vec![Test::own(kind, "tls::a_store_trusts_the_server", postgres)],
    }
}

/// A certificate and its key, of an engine or of a store.
const OWN: [&str; 2] = ["cert.pem", "key.pem"];
/// The same, expired.
const LATE: [&str; 2] = ["late.pem", "late-key.pem"];

/// The files of an engine: those of a certificate, of its key and of the authority.
struct Files {
    folder: Folder,
    authority: TestAuthority,
}

impl Files {
    fn new(name: &str) -> Self {
        let files = Self { folder: Folder::new(name), authority: TestAuthority::new() };
        let Issued { certificate, key } = files.authority.issue();
        files.write("ca.pem", &files.authority.pem());
        files.write("other.pem", &TestAuthority::new().pem());
        files.write("cert.pem", &certificate);
        files.write("key.pem", &key);
        let Issued { certificate, key } = files.authority.issue_while(Validity::Expired);
        files.write(LATE[0], &certificate);
        files.write(LATE[1], &key);
        files
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).expect("a file can be written");
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("the path is UTF-8").to_owned()
    }

    /// The trust of a store, with a certificate of its own or without.
    fn tls(&self, ca: &str, own: Option<[&str; 2]>) -> EngineTls {
        let [chain, key] = [0, 1].map(|file| own.map(|own| self.path(own[file])));
        let [chain, key] = [&chain, &key].map(|path| path.as_deref().map(Path::new));
        let tls = EngineTls::from_files(Some(Path::new(&self.path(ca))), chain, key);
        tls.expect("the files are there").expect("there is an authority")
    }
}

/// What the error for an engine with an expired certificate has.
const EXPIRED: &[&str] = &["invalid peer certificate", "expired"];

/// Writes an entity, and reads it.
fn used(store: &Arc<dyn EntityRepo>) {
    let entity = Entity::new(1, "first", 0.5);
    store.put(entity.clone()).wait().expect("it is stored");
    assert_eq!(store.fetch(&1).wait().expect("it is read"), Some(entity));
    assert_eq!(store.len().wait().expect("they are counted"), 1);
}

#[allow(unused_variables, clippy::needless_pass_by_value, reason = "a build without the store does not use them")]
fn connect(
    kind: Kind,
    urls: &str,
    tls: Option<EngineTls>,
    limits: StoreLimits,
) -> Result<Arc<dyn EntityRepo>, ConnectError> {
    match kind {
        #[cfg(feature = "etcd")]
        Kind::Etcd => {
            let mut options = polyserve_cluster::EtcdOptions::default().limits(limits);
            options.tls = tls;
            Ok(Arc::new(polyserve_cluster::Etcd::<Entity>::connect(urls, options)?))
        }
        #[cfg(feature = "redis")]
        Kind::Redis => {
            let mut options = polyserve_cluster::RedisOptions::default().limits(limits).password("secret");
            options.tls = tls;
            Ok(Arc::new(polyserve_cluster::RedisCluster::<Entity>::connect(urls, options)?))
        }
        #[cfg(feature = "postgres")]
        Kind::Postgres => {
            let mut options = polyserve_cluster::PostgresOptions::default().limits(limits).password("secret");
            options.tls = tls;
            Ok(Arc::new(polyserve_cluster::Postgres::<Entity>::connect(urls, options)?))
        }
        #[allow(unreachable_patterns)]
        _ => unreachable!("no test of a store runs without its feature"),
    }
}

/// Expects that a store is not constructed, and not tried again. The error names the engine, has `text`, and no password.
fn untrusted(kind: Kind, urls: &str, tls: Option<EngineTls>, texts: &[&str]) {
    let urls = urls.to_owned();
    let no_password = |error: &ConnectError| assert!(!error.to_string().contains("secret"), "{error}");
    refused(move || connect(kind, &urls, tls, patient()).inspect_err(no_password), texts);
}

/// Starts a member of its own, with this certificate. Returns it and its URL.
fn etcd_member(files: &Files, name: &str, certificate: [&str; 2]) -> Result<(EngineProcess, String), Missing> {
    let etcd = program("etcd")?;
    let [client, peer] = [(); 2].map(|()| free_port());
    let (client, peer) = (format!("https://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let (data, initial) = (files.path(name), format!("{name}={peer}"));
    let [ca, certificate, key] = ["ca.pem", certificate[0], certificate[1]].map(|name| files.path(name));
    #[rustfmt::skip]
    let args = [
        "--name", name, "--data-dir", &data, "--listen-client-urls", &client, "--advertise-client-urls", &client,
        "--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer, "--initial-cluster", &initial,
        "--log-level", "warn", "--client-cert-auth", "--trusted-ca-file", &ca, "--cert-file", &certificate, "--key-file", &key,
    ];
    let log = files.folder.path().join(format!("{name}.log"));
    Ok((EngineProcess::start(&etcd, None, &args, &log), client))
}

fn etcd() -> Result<(), Missing> {
    let files = Files::new("etcd-tls");
    let (mut process, client) = etcd_member(&files, "m0", OWN)?;
    let store = connect(Kind::Etcd, &client, Some(files.tls("ca.pem", Some(OWN))), long_limits());
    process.assert_runs();
    used(&store.expect("both certificates are trusted"));
    untrusted(Kind::Etcd, &client, Some(files.tls("other.pem", Some(OWN))), &["etcd", "invalid peer certificate"]);
    untrusted(Kind::Etcd, &client, Some(files.tls("ca.pem", None)), &["etcd", "fatal alert"]);
    untrusted(Kind::Etcd, &client, Some(files.tls("ca.pem", Some(LATE))), &["etcd", "fatal alert"]);
    untrusted(Kind::Etcd, &client, None, &["etcd URL is https", "EtcdOptions::tls", "ETCDCTL_CACERT"]);
    let (mut late, url) = etcd_member(&files, "m1", LATE)?;
    wait_for("a member with an expired certificate listens", || {
        late.assert_runs();
        TcpStream::connect(url.trim_start_matches("https://")).ok().map(drop)
    });
    untrusted(Kind::Etcd, &url, Some(files.tls("ca.pem", Some(OWN))), EXPIRED);
    Ok(())
}

fn redis() -> Result<(), Missing> {
    let (files, server, cli) = (Files::new("redis-tls"), program("redis-server")?, program("redis-cli")?);
    let [port, bus] = [(); 2].map(|()| free_port().to_string());
    let [ca, certificate, key] = ["ca.pem", "cert.pem", "key.pem"].map(|name| files.path(name));
    let data = files.path(".");
    #[rustfmt::skip]
    let args = [
        "--port", "0", "--tls-port", &port, "--cluster-port", &bus, "--bind", "127.0.0.1", "--dir", &data, "--save", "",
        "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1", "--requirepass", "secret", "--tls-cluster", "yes",
        "--tls-cert-file", &certificate, "--tls-key-file", &key, "--tls-ca-cert-file", &ca, "--tls-auth-clients", "no",
    ];
    let mut process = EngineProcess::start(&server, None, &args, &files.folder.path().join("log"));
    // One node with all slots is a cluster.
    let ask = |words: &[&str]| {
        let mut command = Command::new(&cli);
        command
            .args(["-p", &port, "--tls", "--cacert", &ca, "--cert", &certificate, "--key", &key])
            .env("REDISCLI_AUTH", "secret")
            .args(words);
        let output = command.output().expect("redis-cli can be run");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    wait_for("redis-server answers over TLS", || {
        process.assert_runs();
        ask(&["PING"]).contains("PONG").then_some(())
    });
    assert_eq!(ask(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).trim(), "OK");
    wait_for("the cluster serves", || ask(&["CLUSTER", "INFO"]).contains("cluster_state:ok").then_some(()));
    let url = format!("rediss://127.0.0.1:{port}");
    used(&connect(Kind::Redis, &url, Some(files.tls("ca.pem", None)), long_limits()).expect("the node is trusted"));
    let untrusted = |url: &str, tls, texts: &[&str]| untrusted(Kind::Redis, url, tls, texts);
    untrusted(&url, Some(files.tls("other.pem", None)), &["redis_cluster", "invalid peer certificate"]);
    untrusted(&url, None, &["Redis URL is rediss", "RedisOptions::tls", "REDISCLI_CACERT"]);
    untrusted(&format!("{url}/#insecure"), Some(files.tls("ca.pem", None)), &["Redis URL", "#insecure"]);
    // A node that asks for certificates.
    assert_eq!(ask(&["CONFIG", "SET", "tls-auth-clients", "yes"]).trim(), "OK");
    used(&connect(Kind::Redis, &url, Some(files.tls("ca.pem", Some(OWN))), long_limits()).expect("both are trusted"));
    untrusted(&url, Some(files.tls("ca.pem", None)), &["redis_cluster", "fatal alert"]);
    untrusted(&url, Some(files.tls("ca.pem", Some(LATE))), &["redis_cluster", "fatal alert"]);
    let [certificate, key] = LATE.map(|name| files.path(name));
    assert_eq!(ask(&["CONFIG", "SET", "tls-cert-file", &certificate, "tls-key-file", &key]).trim(), "OK");
    untrusted(&url, Some(files.tls("ca.pem", Some(OWN))), EXPIRED);
    Ok(())
}

fn postgres() -> Result<(), Missing> {
    let (files, server) = (Files::new("postgres-tls"), PostgresServer::start()?);
    let data = server.run_sql("SHOW data_directory");
    let in_data = |name: &str| Path::new(data.trim()).join(name);
    for name in OWN.into_iter().chain(LATE) {
        let place = in_data(name);
        std::fs::copy(files.path(name), &place).expect("the directory of the server is there");
        output(Command::new("chown").arg("--reference").arg(in_data("PG_VERSION")).arg(&place));
        output(Command::new("chmod").arg("600").arg(&place));
    }
    let access = "hostssl all polyserve 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 trust\n";
    let plain = server.url();
    untrusted(Kind::Postgres, &format!("{plain}?sslmode=require"), None, &["postgres", "server does not support TLS"]);
    std::fs::write(in_data("pg_hba.conf"), access).expect("the file is there");
    for sql in ["SET ssl = on", "SET ssl_cert_file = 'cert.pem'", "SET ssl_key_file = 'key.pem'"] {
        server.run_sql(&format!("ALTER SYSTEM {sql}"));
    }
    server.run_sql("SELECT pg_reload_conf()");
    wait_for("the server speaks TLS", || (server.run_sql("SHOW ssl").trim() == "on").then_some(()));
    let ca = files.path("ca.pem");
    let by_name = plain.replace("127.0.0.1", "localhost");
    for url in [
        format!("{plain}?sslmode=verify-full&sslrootcert={ca}"),
        format!("{by_name}?sslmode=verify-ca&sslrootcert={ca}&application_name=store"),
        format!("{plain}?sslmode=require"),
    ] {
        let store = connect(Kind::Postgres, &url, None, long_limits()).expect(&url);
        used(&store);
        let sql = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE backend_type = 'client backend' AND \
                   pid <> pg_backend_pid() AND NOT ssl";
        assert_eq!(server.run_sql(sql).trim(), "0", "{url}: a connection is not encrypted");
    }
    let store = connect(
        Kind::Postgres,
        &format!("{plain}?sslmode=verify-full"),
        Some(files.tls("ca.pem", None)),
        long_limits(),
    );
    used(&store.expect("the authority is that of the options"));
    let other = files.path("other.pem");
    for mode in ["verify-full", "verify-ca", "require"] {
        let url = format!("{plain}?sslmode={mode}&sslrootcert={other}");
        untrusted(Kind::Postgres, &url, None, &["postgres", "invalid peer certificate"]);
    }
    // A name that is not in the certificate, at the same address.
    let foreign = |mode: &str| {
        format!(
            "postgres://polyserve@example.org:{}/postgres?hostaddr=127.0.0.1&sslmode={mode}&sslrootcert={ca}",
            server.port()
        )
    };
    untrusted(Kind::Postgres, &foreign("verify-full"), None, &["postgres", "invalid peer certificate", "example.org"]);
    used(&connect(Kind::Postgres, &foreign("verify-ca"), None, long_limits()).expect("the name does not count"));
    for (setting, file) in [("ssl_cert_file", LATE[0]), ("ssl_key_file", LATE[1])] {
        server.run_sql(&format!("ALTER SYSTEM SET {setting} = '{file}'"));
    }
    server.run_sql("SELECT pg_reload_conf()");
    wait_for("the server has the expired certificate", || {
        (server.run_sql("SHOW ssl_key_file").trim() == LATE[1]).then_some(())
    });
    for mode in ["verify-full", "verify-ca"] {
        untrusted(Kind::Postgres, &format!("{plain}?sslmode={mode}&sslrootcert={ca}"), None, EXPIRED);
    }
    Ok(())
}
