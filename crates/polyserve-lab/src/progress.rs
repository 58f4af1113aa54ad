//! The progress of a measurement: a bar if standard error is a terminal, otherwise a line at times.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// The progress of a run.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    called: &'static str,
    terminal: bool,
    said: Instant,
}

/// The least time between two lines, if there is no terminal.
const LINES: Duration = Duration::from_secs(15);

impl Progress {
    /// The progress of a run of this number of steps. `called` is their name in the plural.
    pub fn counting(steps: usize, called: &'static str) -> Self {
        let style =
            ProgressStyle::with_template(&format!("{{msg:40!}} {{wide_bar}} {{pos}}/{{len}} {called}, {{eta}} left"));
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        // If standard error is not a terminal, it draws nothing.
        let bar = ProgressBar::new(steps as u64).with_style(style);
        Self { bar, called, terminal: std::io::stderr().is_terminal(), said: Instant::now() }
    }

    /// A bar that is not drawn. Lines are still printed.
    pub fn hidden() -> Self {
        Self { bar: ProgressBar::hidden(), called: "", terminal: true, said: Instant::now() }
    }

    /// A step begins.
    pub fn begin(&mut self, what: String) {
        self.bar.set_message(what);
        self.say_at_times();
    }

    /// This number of steps is over, of all.
    pub fn reached(&mut self, steps: u64) {
        self.bar.set_position(steps);
        self.say_at_times();
    }

    /// Returns the number of steps that are over.
    pub fn position(&self) -> u64 {
        self.bar.position()
    }

    fn say_at_times(&mut self) {
        if !self.terminal && self.said.elapsed() >= LINES {
            self.said = Instant::now();
            let (over, all, left) = (self.bar.position(), self.bar.length().unwrap_or(0), self.bar.eta());
            let left = humantime::format_duration(Duration::from_secs(left.as_secs()));
            self.say(&format!("{over} of {all} {}, about {left} left", self.called));
        }
    }

    /// Adds steps to the known ones.
    pub fn grow(&self, steps: usize) {
        self.bar.inc_length(steps as u64);
    }

    /// This number of steps more is over.
    pub fn advance(&self, steps: usize) {
        self.bar.inc(steps as u64);
    }

    /// This number of steps was over before this run. They do not count in the estimate of the time left.
    pub fn were_over(&self, steps: usize) {
        self.bar.inc(steps as u64);
        self.bar.reset_eta();
    }

    /// Prints a line on standard error.
    pub fn say(&self, text: &str) {
        // A closed standard error is no failure.
        self.bar.suspend(|| drop(writeln!(std::io::stderr(), "{text}")));
    }

    /// The run is over.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
