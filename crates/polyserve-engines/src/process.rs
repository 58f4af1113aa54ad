//! What all engines need: programs, ports, directories, processes, and waits.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process, kill_process_group};

/// The max wait for an engine to start, to elect, or to be back.
pub const MAX_WAIT: Duration = Duration::from_secs(60);

/// The reason why an engine cannot run here.
#[derive(Clone, Debug)]
pub struct Missing(pub String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Finds a program in `PATH`, and where Debian keeps the programs that are not in it.
///
/// # Errors
///
/// Returns an error if the program is not installed.
pub fn program(name: &str) -> Result<PathBuf, Missing> {
    let mut folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
    folders.extend(["/usr/sbin".into(), "/sbin".into()]);
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    folders.extend(versions.map(|version| version.path().join("bin")));
    let found = folders.into_iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| Missing(format!("{name} is not installed")))
}

/// Returns a port of the loopback address that is free now, and that no other call returns while this process lives, also in
/// another process. It is outside of the range from which the system takes ports for clients.
///
/// An abstract Unix socket with the port in its name claims a port. Like ports, these names belong to a network name space, and the
/// system frees them when the process ends.
///
/// # Panics
///
/// Panics if no port is free.
pub fn free_port() -> u16 {
    free_port_from(12_000 + (std::process::id() % 1_700) as u16 * 11)
}

/// Does the same from `first` on.
fn free_port_from(first: u16) -> u16 {
    static CLAIMS: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());
    let claim = |port: u16| {
        let name = SocketAddr::from_abstract_name(format!("polyserve-port-{port}")).ok()?;
        let claim = UnixDatagram::bind_addr(&name).ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok().then_some((port, claim))
    };
    let (port, claim) = (first..32_000).chain(12_000..first).find_map(claim).expect("a port is free");
    CLAIMS.lock().unwrap().push(claim);
    port
}

/// A directory that is removed when it is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Creates a directory below the system's temporary one.
    ///
    /// # Panics
    ///
    /// Panics if the directory cannot be created.
    pub fn new(name: &str) -> Self {
        static COUNT: Mutex<u32> = Mutex::new(0);
        let mut count = COUNT.lock().unwrap();
        *count += 1;
        let path = env::temp_dir().join(format!("polyserve-{name}-{}-{count}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary directory can be made");
        Self(path)
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process of an engine. Dropping it kills the process and all that it started.
#[derive(Debug)]
pub struct EngineProcess {
    child: Child,
    /// Its output.
    pub log: PathBuf,
}

impl EngineProcess {
    /// Starts a program. Its output goes to a file. If this process is killed, so is the program: the thread that calls
    /// this function has to live as long as the engine.
    ///
    /// # Panics
    ///
    /// Panics if the program cannot be started.
    pub fn start(program: &Path, user: Option<&str>, args: &[impl AsRef<OsStr>], log: &Path) -> Self {
        let out = fs::File::options().create(true).append(true).open(log).expect("a log can be opened");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(user) = user {
            command.args(["--reuid", user, "--regid", user, "--clear-groups"]);
        }
        command.arg("--").arg(program).args(args);
        command.stdin(Stdio::null()).stdout(out.try_clone().expect("a log can be shared")).stderr(out);
        let child =
            command.process_group(0).current_dir("/tmp").spawn().expect("setpriv of util-linux starts programs");
        Self { child, log: log.to_owned() }
    }

    /// Returns the number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: Signal) {
        let group = Pid::from_child(&self.child);
        kill_process_group(group, signal).expect("the engine's process group is there");
    }

    /// Ends it at once, as `kill -9` does.
    pub fn kill(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }

    /// Asks the process to end by a signal, and waits until it has.
    ///
    /// # Panics
    ///
    /// Panics if it does not end within [`MAX_WAIT`].
    pub fn end(&mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the engine's process is there");
        wait_for("an engine ends", || self.child.try_wait().expect("it is a child").map(drop));
    }

    /// Pauses it until [`resume`](Self::resume).
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues it after [`stop`](Self::stop).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Checks that the process runs.
    ///
    /// # Panics
    ///
    /// Panics with the log if the process has ended.
    pub fn assert_runs(&mut self) {
        if let Ok(Some(status)) = self.child.try_wait() {
            panic!("the engine ended with {status}: {}", self.tail());
        }
    }

    /// Returns the end of the log.
    pub fn tail(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(4_000)..]).into_owned()
    }
}

impl Drop for EngineProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a program to its end. Returns its output.
///
/// # Panics
///
/// Panics with the output if the program fails.
pub fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Waits until `ready` returns a value.
///
/// # Panics
///
/// Panics if it does not within [`MAX_WAIT`].
pub fn wait_for<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + MAX_WAIT;
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}: not within {MAX_WAIT:?}");
        // Between two looks at another process, which has no way to tell us.
        thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until no connection from here to a port of the loopback address is closed by the other side only: each program has
/// noticed that its connection has ended.
///
/// # Panics
///
/// Panics if a connection stays so for longer than [`MAX_WAIT`].
pub fn wait_until_closed(ports: &[u16]) {
    let ends: Vec<String> = ports.iter().map(|port| format!(":{port:04X}")).collect();
    // The fields are a number, the local address, the other address, and the state. `08` is `CLOSE_WAIT`.
    let is_half_closed = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().take(4).collect();
        matches!(fields[..], [_, _, other, "08"] if ends.iter().any(|end| other.ends_with(end.as_str())))
    };
    wait_for("programs close connections that have ended", || {
        let table = fs::read_to_string("/proc/net/tcp").expect("the table of connections can be read");
        (!table.lines().any(is_half_closed)).then_some(())
    });
}

/// Returns whether something listens at a port of the loopback address.
pub fn listens(port: u16) -> Option<()> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::{BufRead as _, BufReader};

    const CHILD: &str = "ENGINES_TEST_PORT_CHILD";

    /// Regression test: two processes that searched the same range took the same ports, because a port was free until its engine
    /// listened.
    #[test]
    fn two_processes_take_different_ports() {
        const FIRST: u16 = 20_000;
        if env::var_os(CHILD).is_some() {
            println!("port {}", free_port_from(FIRST));
            // Keeps the port until the parent closes the pipe.
            let _ = std::io::stdin().lines().next();
            return;
        }
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "process::tests::two_processes_take_different_ports", "--nocapture"])
            .env(CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let port = lines.find_map(|line| line.split("port ").nth(1).map(str::to_owned));
        let own = [(); 2].map(|()| free_port_from(FIRST));
        drop(child.stdin.take());
        lines.for_each(drop);
        assert!(child.wait().unwrap().success());
        let port: u16 = port.expect("the child prints its port").parse().unwrap();
        assert!(!own.contains(&port) && own[0] != own[1], "{port}, {own:?}");
    }
}
