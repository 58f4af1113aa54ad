//! A PostgreSQL server.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::process::{
    EngineProcess, Folder, Missing, free_port, listens, output, program, wait_for, wait_until_closed,
};

/// A PostgreSQL server. It ends when this is dropped.
#[derive(Debug)]
pub struct PostgresServer {
    process: EngineProcess,
    port: u16,
    server: PathBuf,
    user: Option<&'static str>,
    folder: Folder,
}

impl PostgresServer {
    /// Makes a database cluster and starts its server.
    ///
    /// # Errors
    ///
    /// Returns an error if PostgreSQL is not installed, or if this process is root and there is no user `postgres`.
    ///
    /// # Panics
    ///
    /// Panics if the engine does not start.
    pub fn start() -> Result<Self, Missing> {
        let (initdb, server) = (program("initdb")?, program("postgres")?);
        // PostgreSQL refuses to run as root.
        let user = rustix::process::geteuid().is_root().then_some("postgres");
        if let Some(user) = user
            && !std::fs::read_to_string("/etc/passwd")
                .is_ok_and(|users| users.lines().any(|line| line.starts_with("postgres:")))
        {
            return Err(Missing(format!("root cannot run PostgreSQL, and there is no user {user}")));
        }
        let (folder, mut init) = prepared(&initdb, user);
        let data = folder.path().join("data");
        init.args(["--auth=trust", "--username=polyserve", "--no-sync", "--locale=C"]);
        output(init.args(["--encoding=UTF8", "-D"]).arg(&data));
        // A user other than the owner needs a password.
        let access = "host all,replication polyserve 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
        std::fs::write(data.join("pg_hba.conf"), access).expect("the file is there");
        let port = free_port();
        let process = run(&server, user, &folder, port);
        let mut started = Self { process, port, server, user, folder };
        started.wait_until_ready();
        Ok(started)
    }

    /// Starts a standby of this server, and makes this server wait for it before it answers a write.
    ///
    /// # Errors
    ///
    /// Returns an error if `pg_basebackup` is not installed.
    ///
    /// # Panics
    ///
    /// Panics if the standby does not start.
    pub fn start_standby(&self) -> Result<Self, Missing> {
        let (folder, mut copy) = prepared(&program("pg_basebackup")?, self.user);
        let primary = format!("host=127.0.0.1 port={} user=polyserve", self.port);
        copy.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-d", &primary, "-D"]);
        output(copy.arg(folder.path().join("data")));
        let port = free_port();
        let process = run(&self.server, self.user, &folder, port);
        let mut standby = Self { process, port, server: self.server.clone(), user: self.user, folder };
        standby.wait_until_ready();
        self.run_sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.run_sql("SELECT pg_reload_conf()");
        wait_for("the standby has each write", || {
            let sql = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
            (self.run_sql(sql).trim() == "1").then_some(())
        });
        Ok(standby)
    }

    /// Makes a standby the primary.
    ///
    /// # Panics
    ///
    /// Panics if it is none.
    pub fn promote(&self) {
        self.run_sql("SELECT pg_promote(true, 60)");
    }

    /// Ends the server in order, as `pg_ctl stop` does: it ends the connections.
    ///
    /// # Panics
    ///
    /// Panics if it does not end.
    pub fn shut_down(&mut self) {
        self.process.end(Signal::INT);
    }

    /// Returns the port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends the server and all its children at once.
    ///
    /// # Panics
    ///
    /// Panics if they do not end.
    pub fn kill(&mut self) {
        let children = self.children();
        self.signal("KILL");
        self.process.kill();
        let is_there = |child: &String| std::path::Path::new("/proc").join(child).exists();
        wait_for("PostgreSQL's processes end", || (!children.iter().any(is_there)).then_some(()));
    }

    /// Starts the server again after it was killed.
    ///
    /// # Panics
    ///
    /// Panics if the engine does not start.
    pub fn restart(&mut self) {
        let _ = std::fs::remove_file(&self.process.log);
        self.process = run(&self.server, self.user, &self.folder, self.port);
        self.wait_until_ready();
    }

    fn wait_until_ready(&mut self) {
        let log = self.process.log.clone();
        wait_for("PostgreSQL accepts connections", || {
            self.process.assert_runs();
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let (_, last_run) = text.rsplit_once("starting PostgreSQL")?;
            ["connections", "read-only connections"]
                .iter()
                .any(|what| last_run.contains(&format!("ready to accept {what}")))
                .then_some(())
        });
    }

    /// Starts a PgBouncer in front of the server. It pools sessions, transactions or statements, over at most this number of
    /// connections to the server.
    ///
    /// # Errors
    ///
    /// Returns an error if PgBouncer is not installed.
    ///
    /// # Panics
    ///
    /// Panics if it does not start.
    pub fn start_pooler(&self, pool_mode: &str, connections: usize) -> Result<Pooler, Missing> {
        let pgbouncer = program("pgbouncer")?;
        let (folder, port) = (Folder::new("pgbouncer"), free_port());
        let file = |name: &str| folder.path().join(name).to_str().expect("the path is UTF-8").to_owned();
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = {pool_mode}\n\
             default_pool_size = {connections}\nserver_login_retry = 1\n",
            self.port,
            file("users")
        );
        std::fs::write(file("users"), "\"polyserve\" \"\"\n").expect("a file can be written");
        std::fs::write(file("settings"), settings).expect("a file can be written");
        let process = run_pooler(&pgbouncer, self.user, &folder, port);
        Ok(Pooler { port, process, pgbouncer, user: self.user, folder })
    }

    /// Returns the ids of the server and its children.
    pub fn process_ids(&self) -> Vec<u32> {
        let children = self.children();
        std::iter::once(self.process.id()).chain(children.iter().filter_map(|id| id.parse().ok())).collect()
    }

    /// Returns the URL of its database.
    pub fn url(&self) -> String {
        format!("postgres://polyserve@127.0.0.1:{}/postgres", self.port)
    }

    /// Runs statements, in one session. Returns the rows.
    ///
    /// # Panics
    ///
    /// Panics if a statement fails.
    pub fn run_sql(&self, sql: &str) -> String {
        run_sql(&self.url(), Some("-c default_transaction_read_only=off"), sql)
    }

    /// Returns the server's log since its last start.
    ///
    /// # Panics
    ///
    /// Panics if it cannot be read.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.process.log).expect("the log can be read")).into_owned()
    }

    /// Makes the transactions of clients read only, or lets them write again. Ends the connections of clients.
    ///
    /// # Panics
    ///
    /// Panics if the server does not.
    pub fn refuse_writes(&self, refuse: bool) {
        let value = if refuse { "on" } else { "off" };
        self.run_sql(&format!("ALTER DATABASE postgres SET default_transaction_read_only = {value}"));
        self.end_connections();
    }

    /// Ends the connections of all clients, and waits until they have noticed it.
    ///
    /// # Panics
    ///
    /// Panics if the server or a client does not.
    pub fn end_connections(&self) {
        let clients = "pid <> pg_backend_pid() AND backend_type = 'client backend'";
        self.run_sql(&format!("SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity WHERE {clients}"));
        wait_until_closed(&[self.port]);
    }

    /// Pauses the server and the processes that serve its connections, which are in groups of their own.
    pub fn stop(&self) {
        self.signal("STOP");
    }

    /// Continues the server after [`stop`](Self::stop).
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// The processes that serve connections, and the server's other helpers.
    fn children(&self) -> Vec<String> {
        let id = self.process.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        children.split_whitespace().map(str::to_owned).collect()
    }

    /// Sends a signal to the server and its children. A child may have ended in the meantime.
    fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        kill.arg(format!("-{name}")).arg(self.process.id().to_string()).args(self.children());
        let _ = kill.stderr(std::process::Stdio::null()).status();
    }
}

impl Drop for PostgresServer {
    /// Ends the connections' processes too: by themselves they end only when they are used.
    fn drop(&mut self) {
        self.signal("KILL");
    }
}

/// A PgBouncer in front of a server. It ends when this is dropped.
#[derive(Debug)]
pub struct Pooler {
    port: u16,
    process: EngineProcess,
    pgbouncer: PathBuf,
    user: Option<&'static str>,
    folder: Folder,
}

impl Pooler {
    /// Kills it and starts it again.
    ///
    /// # Panics
    ///
    /// Panics if it does not start.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = run_pooler(&self.pgbouncer, self.user, &self.folder, self.port);
    }

    /// Returns the URL of the server's database through the pooler.
    pub fn url(&self) -> String {
        format!("postgres://polyserve@127.0.0.1:{}/postgres", self.port)
    }

    /// Returns its process.
    pub fn process(&mut self) -> &mut EngineProcess {
        &mut self.process
    }
}

/// Runs statements, in one session with some options of the server. Returns the rows.
///
/// # Panics
///
/// Panics if a statement fails.
pub fn run_sql(url: &str, options: Option<&str>, sql: &str) -> String {
    let mut psql = Command::new(program("psql").expect("it comes with PostgreSQL"));
    psql.args([url, "-AtXqc", sql]);
    output(psql.envs(options.map(|options| ("PGOPTIONS", options))))
}

fn run_pooler(pgbouncer: &Path, user: Option<&str>, folder: &Folder, port: u16) -> EngineProcess {
    let (settings, log) = (folder.path().join("settings"), folder.path().join("log"));
    let mut process = EngineProcess::start(pgbouncer, user, &[settings], &log);
    wait_for("PgBouncer listens", || {
        process.assert_runs();
        listens(port)
    });
    process
}

/// Returns a directory with a directory `data`, and a command that may write there, without its arguments.
fn prepared(program: &Path, user: Option<&'static str>) -> (Folder, Command) {
    let folder = Folder::new("postgres");
    let data = folder.path().join("data");
    std::fs::create_dir(&data).expect("a directory can be made");
    let mut command = Command::new("setpriv");
    if let Some(user) = user {
        output(Command::new("chown").arg(user).arg(&data));
        output(Command::new("chmod").arg("700").arg(&data));
        command.args(["--reuid", user, "--regid", user, "--clear-groups"]);
    }
    command.arg("--").arg(program).current_dir("/tmp");
    (folder, command)
}

fn run(server: &Path, user: Option<&'static str>, folder: &Folder, port: u16) -> EngineProcess {
    let (data, port) = (folder.path().join("data"), port.to_string());
    let data = data.to_str().expect("the path is UTF-8");
    #[rustfmt::skip]
    let args = [
        "-D", data, "-p", &port, "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
        "-c", "max_connections=200", "-c", "log_min_messages=warning",
    ];
    EngineProcess::start(server, user, &args, &folder.path().join("log"))
}
