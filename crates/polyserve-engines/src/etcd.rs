//! An etcd cluster of three members.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use crate::process::{EngineProcess, Folder, Missing, free_port, output, program, wait_for, wait_until_closed};

/// Three members of etcd. They end when this is dropped.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<EtcdMember>,
    etcd: PathBuf,
    etcdctl: PathBuf,
    initial: String,
    folder: Folder,
    uses_jwt: bool,
    /// Whether the members wait for a silent leader only as long as etcd does by default.
    fails_over_soon: bool,
    /// The max bytes of a request, if it is not that of etcd.
    max_request_bytes: Option<usize>,
}

#[derive(Debug)]
struct EtcdMember {
    process: Option<EngineProcess>,
    client: u16,
    peer: u16,
    /// The user that runs it, if it is not this one.
    user: Option<String>,
}

/// The number of members.
const MEMBERS: usize = 3;

impl EtcdCluster {
    /// Starts the members and waits until they have a leader. They replace a leader that has been silent for 5 s: on a busy
    /// machine it may get no time for a second.
    ///
    /// # Errors
    ///
    /// Returns an error if the engine is not installed.
    ///
    /// # Panics
    ///
    /// Panics if the engine does not start.
    pub fn start() -> Result<Self, Missing> {
        let mut cluster = Self::prepared([None, None, None])?;
        cluster.run();
        Ok(cluster)
    }

    /// Does as [`start`](Self::start), with members that replace a silent leader after 1 s.
    ///
    /// # Errors
    ///
    /// Returns an error if the engine is not installed.
    ///
    /// # Panics
    ///
    /// Panics if the engine does not start.
    pub fn start_for_failovers() -> Result<Self, Missing> {
        let mut cluster = Self::prepared([None, None, None])?;
        cluster.fail_over_soon();
        cluster.run();
        Ok(cluster)
    }

    /// Makes the members replace a silent leader after 1 s.
    pub fn fail_over_soon(&mut self) {
        self.fails_over_soon = true;
    }

    /// Chooses the ports. Starts nothing. Each member runs as its user, or as the user of this process.
    ///
    /// # Errors
    ///
    /// Returns an error if the engine is not installed.
    pub fn prepared(users: [Option<String>; MEMBERS]) -> Result<Self, Missing> {
        let (etcd, etcdctl) = (program("etcd")?, program("etcdctl")?);
        let make = |user| EtcdMember { process: None, client: free_port(), peer: free_port(), user };
        let members: Vec<EtcdMember> = users.into_iter().map(make).collect();
        let named = |(number, member): (usize, &EtcdMember)| format!("m{number}=http://127.0.0.1:{}", member.peer);
        let initial = members.iter().enumerate().map(named).collect::<Vec<_>>().join(",");
        Ok(Self {
            members,
            etcd,
            etcdctl,
            initial,
            folder: Folder::new("etcd"),
            uses_jwt: false,
            fails_over_soon: false,
            max_request_bytes: None,
        })
    }

    /// Makes the members take requests of this number of bytes.
    pub fn take_requests_of(&mut self, bytes: usize) {
        self.max_request_bytes = Some(bytes);
    }

    /// Makes the members authenticate by JSON Web Tokens. A token is invalid once users or roles change.
    ///
    /// # Panics
    ///
    /// Panics if the key cannot be written.
    pub fn use_jwt(&mut self) {
        std::fs::write(self.folder.path().join("key"), "a key of at least thirty-two bytes")
            .expect("a file can be written");
        self.uses_jwt = true;
    }

    /// Starts all members and waits until they have a leader.
    ///
    /// # Panics
    ///
    /// Panics if the engine does not start.
    pub fn run(&mut self) {
        (0..MEMBERS).for_each(|number| self.start_member(number));
        self.leader();
    }

    /// Starts a member. A member that was started before has its data.
    ///
    /// # Panics
    ///
    /// Panics if the engine does not start.
    pub fn start_member(&mut self, number: usize) {
        let member = &mut self.members[number];
        let folder = self.folder.path().join(format!("m{number}"));
        if !folder.exists() {
            std::fs::create_dir(&folder).expect("a directory can be made");
            if let Some(user) = &member.user {
                output(Command::new("chown").arg(user).arg(&folder));
                output(Command::new("chmod").arg("700").arg(&folder));
            }
        }
        let (client, peer) =
            (format!("http://127.0.0.1:{}", member.client), format!("http://127.0.0.1:{}", member.peer));
        let name = format!("m{number}");
        let data = folder.join("data");
        let key = self.folder.path().join("key").display().to_string();
        let token = format!("jwt,pub-key={key},priv-key={key},sign-method=HS256,ttl=1h");
        let mut args: Vec<&str> = vec![
            "--name",
            &name,
            "--data-dir",
            data.to_str().expect("the path is UTF-8"),
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
            "--initial-cluster",
            &self.initial,
            "--initial-cluster-state",
            "new",
            "--log-level",
            "warn",
        ];
        if !self.fails_over_soon {
            args.extend(["--heartbeat-interval", "500", "--election-timeout", "5000"]);
        }
        let max_request_bytes = self.max_request_bytes.map(|bytes| bytes.to_string());
        if let Some(bytes) = &max_request_bytes {
            args.extend(["--max-request-bytes", bytes]);
        }
        if self.uses_jwt {
            args.extend(["--auth-token", &token]);
        }
        let log = self.folder.path().join(format!("m{number}.log"));
        member.process = Some(EngineProcess::start(&self.etcd, member.user.as_deref(), &args, &log));
    }

    /// Returns the URLs of all members, separated by commas.
    pub fn urls(&self) -> String {
        let url = |member: &EtcdMember| format!("http://127.0.0.1:{}", member.client);
        self.members.iter().map(url).collect::<Vec<_>>().join(",")
    }

    /// Returns the client port and the peer port of each member.
    pub fn ports(&self) -> Vec<(u16, u16)> {
        self.members.iter().map(|member| (member.client, member.peer)).collect()
    }

    /// Returns the process of a member.
    ///
    /// # Panics
    ///
    /// Panics if the member was not started.
    pub fn member(&mut self, number: usize) -> &mut EngineProcess {
        self.members[number].process.as_mut().expect("the member was started")
    }

    /// Returns the processes of all members.
    pub fn processes(&mut self) -> impl Iterator<Item = &mut EngineProcess> {
        self.members.iter_mut().filter_map(|member| member.process.as_mut())
    }

    /// Waits until a member leads. Returns its number.
    ///
    /// # Panics
    ///
    /// Panics if none does within [`MAX_WAIT`](crate::process::MAX_WAIT), or if a member has ended.
    pub fn leader(&mut self) -> usize {
        wait_for("etcd elects a leader", || {
            self.processes().for_each(EngineProcess::assert_runs);
            (0..MEMBERS).find(|&number| self.leads(number))
        })
    }

    /// Returns the member that leads, if it is not `old`.
    ///
    /// # Panics
    ///
    /// Panics if `etcdctl` cannot be run.
    pub fn leader_but(&self, old: usize) -> Option<usize> {
        (0..MEMBERS).filter(|number| *number != old).find(|&number| self.leads(number))
    }

    /// Runs `etcdctl` on the cluster. It waits a minute for the members.
    ///
    /// # Panics
    ///
    /// Panics with its output if it fails.
    pub fn control(&self, args: &[&str]) {
        let mut command = Command::new(&self.etcdctl);
        command.env("ETCDCTL_API", "3").args(["--command-timeout=60s", "--dial-timeout=60s"]);
        output(command.args(["--endpoints", &self.urls()]).args(args));
    }

    /// Raises the alarm of a full database, or ends it. While it is on, etcd stores nothing.
    ///
    /// # Panics
    ///
    /// Panics if a member does not answer.
    pub fn refuse_writes(&self, refuse: bool) {
        if !refuse {
            return self.control(&["alarm", "disarm"]);
        }
        let body = r#"{"action":"ACTIVATE","memberID":1,"alarm":"NOSPACE"}"#;
        let mut stream =
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.members[0].client)).expect("the member accepts connections");
        let head = format!(
            "POST /v3/maintenance/alarm HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + body).as_bytes()).expect("the member reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the member answers");
        assert!(answer.contains("200 OK") && answer.contains("NOSPACE"), "{answer}");
    }

    /// Ends the connections of all clients: kills all members and starts them again. Waits until the clients have noticed it.
    ///
    /// # Panics
    ///
    /// Panics if a member or a client does not.
    pub fn end_connections(&mut self) {
        self.processes().for_each(EngineProcess::kill);
        wait_until_closed(&self.members.iter().map(|member| member.client).collect::<Vec<_>>());
        self.run();
    }

    /// Returns whether a member leads, by its own account.
    fn leads(&self, number: usize) -> bool {
        let url = format!("http://127.0.0.1:{}", self.members[number].client);
        let mut command = Command::new(&self.etcdctl);
        command.env("ETCDCTL_API", "3").args(["--command-timeout=2s", "--endpoints", &url]);
        let status = command.args(["endpoint", "status", "--write-out=fields"]).output().expect("etcdctl can be run");
        let text = String::from_utf8_lossy(&status.stdout);
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" : "));
        field("\"MemberID\"").is_some_and(|member_id| field("\"Leader\"") == Some(member_id))
    }
}
