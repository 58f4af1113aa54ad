//! The progress of a measurement: a bar if standard error is a terminal, otherwise a line at times.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// The progress of a run.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    units: &'static str,
    terminal: bool,
    last_line: Instant,
    /// When the estimate of the time left began, and the steps that were over then.
    since: (Instant, u64),
}

/// The min time between two lines, if there is no terminal.
const MIN_LINE_INTERVAL: Duration = Duration::from_secs(15);

impl Progress {
    /// The progress of a run of this number of steps. `units` is their name in the plural.
    pub fn counting(steps: usize, units: &'static str) -> Self {
        // The prefix is the time left: the bar's own estimate is a moving mean, see `left`.
        let style =
            ProgressStyle::with_template(&format!("{{msg:40!}} {{wide_bar}} {{pos}}/{{len}} {units}{{prefix}}"));
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        // If standard error is not a terminal, it draws nothing.
        let bar = ProgressBar::new(steps as u64).with_style(style);
        Self {
            bar,
            units,
            terminal: std::io::stderr().is_terminal(),
            last_line: Instant::now(),
            since: (Instant::now(), 0),
        }
    }

    /// A bar that is not drawn. Lines are still printed.
    pub(crate) fn hidden() -> Self {
        let now = Instant::now();
        Self { bar: ProgressBar::hidden(), units: "", terminal: true, last_line: now, since: (now, 0) }
    }

    /// Shows the name of the step that begins.
    pub(crate) fn begin(&mut self, what: String) {
        self.bar.set_message(what);
        self.show_time_left();
    }

    /// Sets the number of steps that are over.
    pub(crate) fn reached(&mut self, steps: u64) {
        self.bar.set_position(steps);
        self.show_time_left();
    }

    /// Returns the number of steps that are over.
    pub(crate) fn position(&self) -> u64 {
        self.bar.position()
    }

    /// Shows the time left in the bar, or prints a line if there is no terminal and the last one is some time ago.
    fn show_time_left(&mut self) {
        let left = self.left().map(|left| humantime::format_duration(Duration::from_secs(left.as_secs())));
        let left = left.map_or_else(String::new, |left| format!(", about {left} left"));
        if !self.terminal && self.last_line.elapsed() >= MIN_LINE_INTERVAL {
            self.last_line = Instant::now();
            let (over, all, units) = (self.bar.position(), self.bar.length().unwrap_or(0), self.units);
            self.print_line(&format!("{over} of {all} {units}{left}"));
        }
        self.bar.set_prefix(left);
    }

    /// The time left if each step takes the mean time so far; `None` before the first step. It is not a moving mean, because a
    /// batch of steps may end at once.
    fn left(&self) -> Option<Duration> {
        let (start, before) = self.since;
        let (over, all) = (self.bar.position(), self.bar.length()?);
        let done = over.checked_sub(before).filter(|done| *done > 0)?;
        Some(start.elapsed().mul_f64(all.saturating_sub(over) as f64 / done as f64))
    }

    fn restart_estimate(&mut self) {
        self.since = (Instant::now(), self.bar.position());
    }

    /// Adds steps to the known ones. The estimate of the time left starts anew.
    pub(crate) fn grow(&mut self, steps: usize) {
        self.bar.inc_length(steps as u64);
        self.restart_estimate();
    }

    /// Adds this number to the steps that are over.
    pub(crate) fn advance(&self, steps: usize) {
        self.bar.inc(steps as u64);
    }

    /// This number of steps was over before this run. They do not count in the estimate of the time left.
    pub(crate) fn skip_steps(&mut self, steps: usize) {
        self.bar.inc(steps as u64);
        self.restart_estimate();
    }

    /// Prints a line on standard error.
    pub(crate) fn print_line(&self, text: &str) {
        // A closed standard error is no failure.
        self.bar.suspend(|| drop(writeln!(std::io::stderr(), "{text}")));
    }

    /// Ends the progress, and removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_steps_of_this_run() {
        let mut progress = Progress::counting(0, "turns");
        progress.grow(100);
        assert_eq!(progress.left(), None, "no step is over");
        progress.skip_steps(60);
        assert_eq!(progress.left(), None, "what was over before this run tells nothing");
        progress.advance(20);
        let (start, before) = progress.since;
        assert_eq!(before, 60);
        progress.since.0 = start.checked_sub(Duration::from_secs(100)).unwrap();
        let left = progress.left().unwrap().as_secs();
        assert!(left >= 100, "20 steps took 100 s, and 20 are left: {left}");
        progress.advance(20);
        assert_eq!(progress.left(), Some(Duration::ZERO));
    }
}
