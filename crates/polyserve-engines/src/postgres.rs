//! A PostgreSQL server.

use std::path::PathBuf;
use std::process::Command;

use crate::process::{EngineProcess, Folder, Missing, free_port, output, program, wait_for};

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
        let folder = Folder::new("postgres");
        let data = folder.path().join("data");
        std::fs::create_dir(&data).expect("a directory can be made");
        let mut init = Command::new("setpriv");
        if let Some(user) = user {
            output(Command::new("chown").arg(user).arg(&data));
            init.args(["--reuid", user, "--regid", user, "--clear-groups"]);
        }
        init.arg("--").arg(initdb).args(["--auth=trust", "--username=polyserve", "--no-sync", "--locale=C"]);
        output(init.args(["--encoding=UTF8", "-D"]).arg(&data).current_dir("/tmp"));
        // A user other than the owner needs a password.
        let access = "host all polyserve 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
        std::fs::write(data.join("pg_hba.conf"), access).expect("the file is there");
        let port = free_port();
        let process = run(&server, user, &folder, port);
        let mut started = Self { process, port, server, user, folder };
        started.wait_until_ready();
        Ok(started)
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
            last_run.contains("ready to accept connections").then_some(())
        });
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

    /// Runs statements on its database.
    ///
    /// # Panics
    ///
    /// Panics with the output of `psql` if a statement fails.
    pub fn run_sql(&self, sql: &str) {
        let mut psql = Command::new(program("psql").expect("it comes with PostgreSQL"));
        psql.args([&self.url(), "-qAt", "--set=ON_ERROR_STOP=1"]);
        sql.split(';').for_each(|statement| _ = psql.args(["-c", statement]));
        output(&mut psql);
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

fn run(server: &std::path::Path, user: Option<&'static str>, folder: &Folder, port: u16) -> EngineProcess {
    let (data, port) = (folder.path().join("data"), port.to_string());
    let data = data.to_str().expect("the path is UTF-8");
    #[rustfmt::skip]
    let args = [
        "-D", data, "-p", &port, "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
        "-c", "max_connections=200", "-c", "log_min_messages=warning",
    ];
    EngineProcess::start(server, user, &args, &folder.path().join("log"))
}
