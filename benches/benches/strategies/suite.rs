//! Runs benchmarks with criterion, either the selection or all of them, and prints a plan and the progress.
//!
//! Every group runs twice. The first pass only counts the benchmarks and adds up their times, so a group must not do
//! any work outside a benchmark's closure.

use std::collections::BTreeMap;
use std::env;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{Bencher, BenchmarkGroup, Criterion, SamplingMode, Throughput};
use serde_json::Value;

/// The environment variable that selects every benchmark, and its value.
const SELECT_ALL: (&str, &str) = ("POLYSERVE_BENCH", "all");
/// The time that criterion needs for a benchmark in addition to the warm-up and the samples.
const ANALYSIS_TIME: Duration = Duration::from_millis(150);
/// The number of resamplings for a confidence interval. Criterion's default takes longer than a short benchmark.
const RESAMPLES: usize = 10_000;

/// How a group of benchmarks is measured.
#[derive(Clone, Copy)]
pub(crate) struct BenchSettings {
    pub(crate) samples: usize,
    pub(crate) warm_up: Duration,
    /// The total time of all samples.
    pub(crate) measured: Duration,
    /// The number of operations in one iteration.
    pub(crate) operations: u64,
    /// Whether all samples have the same number of iterations.
    pub(crate) flat: bool,
}

impl BenchSettings {
    /// Returns settings for the selection: 10 samples in `measured` milliseconds.
    pub(crate) const fn short(measured: u64) -> Self {
        Self {
            samples: 10,
            warm_up: Duration::from_millis(200),
            measured: Duration::from_millis(measured),
            operations: 1,
            flat: false,
        }
    }

    /// Returns settings for all benchmarks: `samples` samples in `measured` milliseconds.
    pub(crate) const fn long(samples: usize, warm_up: u64, measured: u64) -> Self {
        let [warm_up, measured] = [Duration::from_millis(warm_up), Duration::from_millis(measured)];
        Self { samples, warm_up, measured, operations: 1, flat: false }
    }

    /// Sets the number of operations in one iteration.
    pub(crate) const fn operations(self, operations: u64) -> Self {
        Self { operations, ..self }
    }

    /// Makes all samples have the same number of iterations.
    pub(crate) const fn flat(self) -> Self {
        Self { flat: true, ..self }
    }

    fn time(&self) -> Duration {
        self.warm_up + self.measured + ANALYSIS_TIME
    }
}

/// The medians of the benchmarks that [`BenchGroup::timed`] ran: seconds per iteration, by the name of the benchmark.
pub(crate) type Figures = BTreeMap<String, f64>;

/// The benchmarks of one run.
pub(crate) struct Suite {
    /// `None` while the benchmarks are counted.
    criterion: Option<Criterion>,
    progress: BenchProgress,
    /// Whether every benchmark is measured, not only the selection.
    all: bool,
    pub(crate) figures: Figures,
    /// The requests and the processor time of each server under each load shape, as lines of a record.
    pub(crate) servers: Vec<Value>,
}

/// The progress of a run.
struct BenchProgress {
    planned: usize,
    planned_time: Duration,
    done: usize,
    started: Instant,
    shown: bool,
}

impl Suite {
    /// Counts the benchmarks of `groups`, and prints how long they take.
    pub(crate) fn planned(groups: &[fn(&mut Self)]) -> Self {
        let (variable, all_value) = SELECT_ALL;
        let all = match env::var(variable) {
            Ok(value) if value == all_value => true,
            Ok(value) if !value.is_empty() => panic!("{variable} is \"{value}\"; it may be \"{all_value}\""),
            _ => false,
        };
        let unfiltered = is_unfiltered();
        let progress = BenchProgress {
            planned: 0,
            planned_time: Duration::ZERO,
            done: 0,
            started: Instant::now(),
            shown: unfiltered,
        };
        // A filter selects from all benchmarks.
        let mut suite =
            Self { criterion: None, progress, all: all || !unfiltered, figures: Figures::new(), servers: Vec::new() };
        for group in groups {
            group(&mut suite);
        }
        if unfiltered {
            let BenchProgress { planned, planned_time, .. } = suite.progress;
            eprintln!("{planned} benchmarks, about {}, then a ranking of servers and stores", minutes(planned_time));
            if !all {
                eprintln!(
                    "{variable}={all_value} cargo bench -p polyserve-benches: every benchmark, with more samples"
                );
            }
        }
        suite
    }

    /// Runs the benchmarks.
    pub(crate) fn run(&mut self, groups: &[fn(&mut Self)]) {
        let criterion = Criterion::default().nresamples(RESAMPLES).without_plots();
        self.criterion = Some(criterion.configure_from_args());
        self.progress.started = Instant::now();
        for group in groups {
            group(self);
        }
        if let Some(criterion) = self.criterion.take() {
            criterion.final_summary();
        }
    }

    /// Returns a group of benchmarks. `short` applies to the selection and `long` to a run of all benchmarks. If
    /// `short` is `None`, the group is not in the selection.
    pub(crate) fn group(
        &mut self,
        name: impl Into<String>,
        short: Option<BenchSettings>,
        long: BenchSettings,
    ) -> BenchGroup<'_> {
        let (name, settings) = (name.into(), if self.all { Some(long) } else { short });
        let group = settings.and_then(|settings| {
            let mut group = self.criterion.as_mut()?.benchmark_group(&name);
            group.sample_size(settings.samples).warm_up_time(settings.warm_up).measurement_time(settings.measured);
            group.throughput(Throughput::Elements(settings.operations));
            if settings.flat {
                group.sampling_mode(SamplingMode::Flat);
            }
            Some(group)
        });
        let (figures, servers) = (&mut self.figures, &mut self.servers);
        BenchGroup { name, settings, group, progress: &mut self.progress, figures, servers }
    }

    /// Returns true if no filter is set and the run is measured.
    pub(crate) fn is_unfiltered(&self) -> bool {
        self.progress.shown
    }
}

/// Returns true if cargo passed only its own argument: no filter, no test run.
fn is_unfiltered() -> bool {
    let mut arguments = env::args().skip(1).peekable();
    arguments.peek().is_some() && arguments.all(|argument| argument == "--bench")
}

/// Returns true if `text` is one of the arguments, as a filter of benchmarks.
pub(crate) fn is_filter(text: &str) -> bool {
    env::args().skip(1).any(|argument| argument == text)
}

/// Returns true if every benchmark runs once without a measurement, as in criterion: without `--bench`, or with
/// `--test`.
pub(crate) fn is_test() -> bool {
    let has = |flag: &str| env::args().any(|argument| argument == flag);
    has("--test") || !has("--bench")
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 { format!("{seconds} s") } else { format!("{} min {:02} s", seconds / 60, seconds % 60) }
}

/// A group of benchmarks.
pub(crate) struct BenchGroup<'a> {
    name: String,
    /// `None` if the group is not in the selection.
    settings: Option<BenchSettings>,
    /// `None` while the benchmarks are counted.
    group: Option<BenchmarkGroup<'a, WallTime>>,
    progress: &'a mut BenchProgress,
    figures: &'a mut Figures,
    servers: &'a mut Vec<Value>,
}

impl BenchGroup<'_> {
    /// Runs a benchmark that criterion times. Criterion calls `bench` for every sample.
    pub(crate) fn bench(&mut self, name: impl Into<String>, bench: impl FnMut(&mut Bencher<'_>)) {
        let Some(settings) = &self.settings else { return };
        let Some(group) = &mut self.group else {
            self.progress.planned += 1;
            self.progress.planned_time += settings.time();
            return;
        };
        self.progress.print();
        group.bench_function(name, bench);
    }

    /// Adds a line about a server to the record.
    pub(crate) fn server(&mut self, line: Value) {
        self.servers.push(line);
    }

    /// Runs a benchmark that measures its own time: `run` gets a number of iterations and returns their time. The
    /// median is kept for the ranking.
    pub(crate) fn timed(&mut self, name: &str, mut run: impl FnMut(u64) -> Duration) {
        let samples = self.settings.map_or(0, |settings| settings.samples);
        let mut times = Vec::new();
        self.bench(name, |bencher| {
            bencher.iter_custom(|iterations| {
                let time = run(iterations);
                times.push(time.as_secs_f64() / iterations as f64);
                time
            });
        });
        // The last `samples` runs are the samples. The earlier runs were the warm-up.
        let mut measured = times.split_off(times.len().saturating_sub(samples));
        measured.sort_by(f64::total_cmp);
        if let Some(median) = measured.get(measured.len() / 2) {
            self.figures.insert(format!("{}/{name}", self.name), *median);
        }
    }
}

impl BenchProgress {
    fn print(&mut self) {
        self.done += 1;
        if self.shown {
            let (elapsed, planned) = (minutes(self.started.elapsed()), minutes(self.planned_time));
            eprintln!("\n{} of {}, after {elapsed} of about {planned}", self.done, self.planned);
        }
    }
}
