//! `polyserve-engines [ENGINE...]`: starts engines on loopback until a signal, or until its input ends. It prints a line for each,
//! `NAME:URL,...`, for `polyserve serve --repo`.
#![forbid(unsafe_code)]

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;

use polyserve_engines::EngineKind;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

fn main() -> ExitCode {
    let known = EngineKind::ALL.map(EngineKind::name).join(", ");
    let mut kinds = Vec::new();
    for name in std::env::args().skip(1) {
        let Some(kind) = EngineKind::ALL.into_iter().find(|kind| kind.name() == name) else {
            eprintln!("there is no engine {name:?}; there are: {known}");
            return ExitCode::from(2);
        };
        kinds.push(kind);
    }
    if kinds.is_empty() {
        kinds = EngineKind::ALL.to_vec();
    }
    let mut signals = match Signals::new([SIGINT, SIGTERM]) {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("the signals cannot be taken over: {error}");
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
                eprintln!("{} cannot be started: {missing}", kind.name());
                return ExitCode::FAILURE;
            }
        }
    }
    let _ = io::stdout().flush();
    let (end, ended) = mpsc::channel();
    let input_ended = end.clone();
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink()); // an error is an end
        let _ = input_ended.send(());
    });
    thread::spawn(move || {
        signals.forever().next();
        let _ = end.send(());
    });
    let _ = ended.recv();
    drop(engines);
    ExitCode::SUCCESS
}
