//! `polyserve-engines [ENGINE...]`: starts engines on loopback until SIGINT, SIGTERM or SIGHUP. It prints a line for each,
//! `NAME:URL,...`, for `polyserve serve --repo`.
//!
//! If its input is a pipe, it also ends with the input: so a program that starts the engines cannot leave them behind.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;

use polyserve_engines::EngineKind;
use polyserve_sys::{SignalDisposition, signal_disposition};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

fn main() -> ExitCode {
    let names = EngineKind::ALL.map(EngineKind::name).join(", ");
    let mut kinds = Vec::new();
    for name in std::env::args().skip(1) {
        if ["--help", "-h"].contains(&&*name) {
            // A reader that closes its end is no error.
            let _ = write!(io::stdout(), "{}", usage(&names));
            return ExitCode::SUCCESS;
        }
        let Some(kind) = EngineKind::ALL.into_iter().find(|kind| kind.name() == name) else {
            eprintln!("error: there is no engine {name:?}; there are: {names}");
            return ExitCode::from(2);
        };
        kinds.push(kind);
    }
    if kinds.is_empty() {
        kinds = EngineKind::ALL.to_vec();
    }
    // A signal that the parent ignores stays ignored, such as SIGHUP under `nohup`.
    let is_ignored = |signal| matches!(signal_disposition(signal), Ok(SignalDisposition::Ignored));
    let mut signals = match Signals::new([SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal))) {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("error: the signals cannot be taken over: {error}");
            return ExitCode::FAILURE;
        }
    };
    // The engines end with this thread.
    let mut engines = Vec::new();
    for kind in kinds {
        match kind.start() {
            Ok(engine) => {
                println!("{}:{}", kind.name(), engine.urls());
                engines.push(engine);
            }
            Err(missing) => {
                eprintln!("error: {} cannot be started: {missing}", kind.name());
                return ExitCode::FAILURE;
            }
        }
    }
    let _ = io::stdout().flush();
    let (end, ended) = mpsc::channel();
    if is_pipe(io::stdin().as_fd()) {
        let input_ended = end.clone();
        thread::spawn(move || {
            let _ = io::copy(&mut io::stdin(), &mut io::sink()); // an error is an end
            let _ = input_ended.send(());
        });
    }
    thread::spawn(move || {
        signals.forever().next();
        let _ = end.send(());
    });
    let _ = ended.recv();
    drop(engines);
    ExitCode::SUCCESS
}

fn usage(names: &str) -> String {
    format!(
        "Starts engines on loopback, and prints NAME:URL,... for each, for `polyserve serve --repo`.\n\
         \n\
         Usage: polyserve-engines [ENGINE...]\n\
         \n\
         Engines: {names}. Without a name, all are started.\n\
         The engines end at SIGINT, SIGTERM or SIGHUP. If standard input is a pipe, they also end when it is closed.\n\
         Their data is removed at the end.\n"
    )
}

/// Whether an input has another program at its other end. The end of `/dev/null` or of a file says nothing.
fn is_pipe(input: BorrowedFd<'_>) -> bool {
    let kind = input.try_clone_to_owned().and_then(|input| File::from(input).metadata()).map(|input| input.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: without an input, the engines ended at once.
    #[test]
    fn only_the_end_of_a_pipe_ends_the_engines() {
        let (input, _output) = io::pipe().expect("a pipe can be made");
        assert!(is_pipe(input.as_fd()));
        for path in ["/dev/null", "/proc/self/exe"] {
            assert!(!is_pipe(File::open(path).expect("it is there").as_fd()), "{path}");
        }
    }
}
