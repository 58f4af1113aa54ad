//! The registry of figures: the name of each, its unit, and which direction is better.

use std::collections::BTreeMap;

use crate::report::figures::{bytes, count, time_us};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The figures of a sample, by their names.
pub type NamedFigures = BTreeMap<String, f64>;

/// A figure.
#[derive(Clone, Copy, Debug)]
pub struct NamedFigure {
    /// The name in records, definitions and CSV files. It ends with the unit, if it has one.
    pub name: &'static str,
    /// The unit.
    pub unit: Unit,
    /// Which direction is better.
    pub better: Better,
    /// The column of tables; `None` if the figure has no column.
    pub column: Option<&'static str>,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Requests a second.
    PerSecond,
    /// Microseconds of processor time.
    CpuMicroseconds,
    /// Milliseconds of processor time.
    CpuMilliseconds,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// A share of 1.
    Share,
    /// Per cent.
    Percent,
    /// A number with decimals.
    Count,
    /// A whole number.
    Number,
}

/// Which direction of a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// The figure describes the measurement.
    Neither,
}

/// The max rate of arrivals at which the p99 meets the goal.
pub const CAPACITY_PER_S: &str = "capacity_per_s";
/// The capacity as a share of the null server's throughput.
pub const LIMIT_SHARE: &str = "limit_share";
/// The end of a search: -1 if the lowest rate was not met, 1 if the null server's throughput was met, else 0.
pub const SEARCH_END: &str = "search_end";
/// The growth of a server's memory for each connection that it holds.
pub const BYTES_PER_CONNECTION: &str = "bytes_per_connection";
/// The connections of a crowd that are open at its end.
pub const HELD: &str = "crowd_held";
/// The ratio that a comparison of a contestant with itself found.
pub const THROUGHPUT_RATIO: &str = "throughput_ratio";
/// The answers in time a second under overload, as a share of the capacity.
pub const GOODPUT_SHARE: &str = "goodput_share";
/// Errors: requests without a right answer, and in the mode `scenario` a wrong final state.
pub const ERRORS: &str = "errors";
/// The requests of a scenario.
pub const SAMPLES: &str = "samples";
/// Those with a right answer that is no refusal.
pub const VERIFIED: &str = "verified";
/// Those with a right refusal: a 503 from a full queue.
pub const REFUSED: &str = "refused";
/// The entities of a store at the end, by the server's own count.
pub const STORED: &str = "stored_entities";
/// Right answers a second in closed loop.
pub const REQUESTS_PER_S: &str = "requests_per_s";
/// CPU time of the server for each right answer in closed loop.
pub const CPU_US: &str = "cpu_us_per_request";
/// The fixed rate.
pub const RATE_PER_S: &str = "rate_per_s";
/// CPU time of the server for each right answer at the fixed rate.
pub const CPU_US_AT_RATE: &str = "cpu_us_at_rate";
/// Latency at the fixed rate from the intended start, 50 %.
pub const P50_US: &str = "p50_us";
/// Latency, 99 %.
pub const P99_US: &str = "p99_us";
/// Latency, 99.9 %.
pub const P999_US: &str = "p999_us";
/// Operations a second on a store. Each thread waits for an answer before its next operation.
pub const OPERATIONS_PER_S: &str = "operations_per_s";
/// The same with many operations outstanding, of a store with deferred answers.
pub const WINDOWED_PER_S: &str = "windowed_operations_per_s";
/// CPU time of the threads for each operation on a store.
pub const CPU_US_PER_OPERATION: &str = "cpu_us_per_operation";
/// Resident memory of the process for each stored entity.
pub const FILLED_BYTES: &str = "filled_bytes_per_entity";
/// The delay of the load generator itself, 99 %.
pub const LATENESS_P99_US: &str = "lateness_p99_us";
/// Requests that were due at the fixed rate and not sent in time, as a share of those due.
pub const BEHIND: &str = "behind_share";
/// From the start of the first task to the end of the last one.
pub const TOTAL_DURATION_MS: &str = "total_duration_ms";
/// The mean of the tasks' durations.
pub const MEAN_DURATION_MS: &str = "mean_duration_ms";
/// The server's CPU time as a share of its cores' time.
pub const SERVER_BUSY: &str = "server_busy";
/// The client's CPU time as a share of its threads' time.
pub const CLIENT_BUSY: &str = "client_busy";
/// The server's CPU time in closed loop, in seconds.
pub const SERVER_CPU_S: &str = "server_cpu_s";
/// The client's CPU time in closed loop, in seconds.
pub const CLIENT_CPU_S: &str = "client_cpu_s";
/// The idle time of the server's cores in closed loop, in seconds.
pub const SERVER_IDLE_S: &str = "server_idle_s";
/// The idle time of the client's cores in closed loop, in seconds.
pub const CLIENT_IDLE_S: &str = "client_idle_s";
/// Resident memory before the first connection, with the entities.
pub const FILLED_MEMORY: &str = "filled_bytes";
/// Resident memory with all connections open.
pub const LOADED_MEMORY: &str = "loaded_bytes";
/// Context switches of the server's threads for each request, while the load warms it up.
pub const SWITCHES: &str = "switches_per_request";
/// The requests under way by Little's law, as a share of the connections.
pub const UNDER_WAY: &str = "under_way";
/// Right answers in closed loop.
pub const ANSWERED: &str = "answered";
/// 1 if the client had no time left, so that all servers seem alike; else 0.
pub const CLIENT_FULL: &str = "client_full";

/// All figures, in the order of tables.
pub const ALL: &[NamedFigure] = &[
    figure(CAPACITY_PER_S, Unit::PerSecond, Better::Higher, Some("capacity (req/s)")),
    figure(LIMIT_SHARE, Unit::Share, Better::Higher, Some("of the limit")),
    figure(SEARCH_END, Unit::Count, Better::Neither, None),
    figure(BYTES_PER_CONNECTION, Unit::Bytes, Better::Lower, Some("per connection")),
    figure("anonymous_bytes_per_connection", Unit::Bytes, Better::Lower, None),
    figure(HELD, Unit::Count, Better::Higher, Some("held")),
    figure("crowd_arrived", Unit::Count, Better::Neither, None),
    figure("crowd_opened", Unit::Count, Better::Neither, None),
    figure("crowd_answered", Unit::Count, Better::Neither, None),
    figure("crowd_refused", Unit::Count, Better::Neither, Some("refused")),
    figure("crowd_timed_out", Unit::Count, Better::Neither, None),
    figure("crowd_cut", Unit::Count, Better::Neither, Some("cut")),
    figure("crowd_unreachable", Unit::Count, Better::Neither, None),
    figure("held_bytes", Unit::Bytes, Better::Lower, Some("memory with the crowd")),
    figure("idle_cpu_ms_per_s", Unit::CpuMilliseconds, Better::Lower, Some("idle CPU (ms/s)")),
    figure("free_requests_per_s", Unit::PerSecond, Better::Neither, Some("without (req/s)")),
    figure("kept_share", Unit::Share, Better::Higher, Some("kept")),
    figure(GOODPUT_SHARE, Unit::Share, Better::Higher, Some("goodput")),
    figure("goodput_per_s", Unit::PerSecond, Better::Higher, None),
    figure("closed_capacity_per_s", Unit::PerSecond, Better::Neither, Some("capacity (req/s)")),
    figure("offered_per_s", Unit::PerSecond, Better::Neither, Some("offered (req/s)")),
    figure("admitted_p99_us", Unit::Microseconds, Better::Lower, Some("p99 of the admitted")),
    figure("admitted_p99_to_unloaded", Unit::Count, Better::Lower, Some("to unloaded")),
    figure("unloaded_p99_us", Unit::Microseconds, Better::Neither, None),
    figure("recovery_ms", Unit::Milliseconds, Better::Lower, Some("recovery (ms)")),
    figure("retries_per_s", Unit::PerSecond, Better::Neither, Some("retries/s")),
    figure("rejected_per_s", Unit::PerSecond, Better::Neither, Some("rejected/s")),
    figure("timeouts_per_s", Unit::PerSecond, Better::Lower, Some("timeouts/s")),
    figure("late_per_s", Unit::PerSecond, Better::Lower, None),
    figure("given_up_share", Unit::Share, Better::Lower, Some("given up")),
    figure(ERRORS, Unit::Count, Better::Lower, Some("errors")),
    figure(THROUGHPUT_RATIO, Unit::Count, Better::Neither, Some("throughput ratio")),
    figure("throughput_verdict", Unit::Count, Better::Neither, None),
    figure("cost_ratio", Unit::Count, Better::Neither, Some("cost ratio")),
    figure("cost_verdict", Unit::Count, Better::Neither, None),
    figure("comparison_rounds", Unit::Count, Better::Neither, Some("rounds")),
    figure(SAMPLES, Unit::Number, Better::Neither, Some("samples")),
    figure(VERIFIED, Unit::Number, Better::Higher, Some("verified")),
    figure(REFUSED, Unit::Number, Better::Lower, Some("refused")),
    figure("connections_at_once", Unit::Number, Better::Neither, None),
    figure("connections_opened", Unit::Number, Better::Neither, None),
    figure("server_answered", Unit::Number, Better::Neither, Some("answered by the server")),
    figure("server_cut", Unit::Number, Better::Lower, Some("cut")),
    figure("server_stuck", Unit::Number, Better::Lower, None),
    figure(STORED, Unit::Number, Better::Neither, Some("stored")),
    figure("final_checked", Unit::Number, Better::Neither, None),
    figure("final_present", Unit::Number, Better::Neither, Some("present")),
    figure("final_wrong", Unit::Number, Better::Lower, Some("wrong")),
    figure("control_share", Unit::Share, Better::Neither, None),
    figure("errors_after", Unit::Count, Better::Lower, Some("errors after")),
    figure("before_p99_us", Unit::Microseconds, Better::Neither, Some("p99 before")),
    figure("after_p99_us", Unit::Microseconds, Better::Lower, Some("p99 after")),
    figure("descriptors", Unit::Count, Better::Neither, None),
    figure(REQUESTS_PER_S, Unit::PerSecond, Better::Higher, Some("req/s")),
    figure(CPU_US, Unit::CpuMicroseconds, Better::Lower, Some("CPU us/req")),
    figure(RATE_PER_S, Unit::PerSecond, Better::Neither, Some("rate (req/s)")),
    figure(CPU_US_AT_RATE, Unit::CpuMicroseconds, Better::Lower, Some("CPU us/req at rate")),
    figure(OPERATIONS_PER_S, Unit::PerSecond, Better::Higher, Some("operations/s")),
    figure(WINDOWED_PER_S, Unit::PerSecond, Better::Higher, Some("operations/s, 64 outstanding")),
    figure(CPU_US_PER_OPERATION, Unit::CpuMicroseconds, Better::Lower, Some("CPU us/operation")),
    figure(FILLED_BYTES, Unit::Count, Better::Lower, Some("bytes/entity")),
    figure("emptied_bytes_per_entity", Unit::Count, Better::Lower, Some("after removal")),
    figure("refilled_bytes_per_entity", Unit::Count, Better::Lower, Some("filled again")),
    figure("filled_s", Unit::Seconds, Better::Lower, Some("filling (s)")),
    figure("emptied_s", Unit::Seconds, Better::Lower, Some("removal (s)")),
    figure("refilled_s", Unit::Seconds, Better::Lower, None),
    figure(P50_US, Unit::Microseconds, Better::Lower, Some("p50")),
    figure(P99_US, Unit::Microseconds, Better::Lower, Some("p99")),
    figure(P999_US, Unit::Microseconds, Better::Lower, None),
    figure("max_us", Unit::Microseconds, Better::Lower, None),
    figure("clock_us", Unit::Microseconds, Better::Neither, None),
    figure(LATENESS_P99_US, Unit::Microseconds, Better::Neither, None),
    figure(BEHIND, Unit::Share, Better::Lower, None),
    figure(LOADED_MEMORY, Unit::Bytes, Better::Lower, Some("memory")),
    figure(FILLED_MEMORY, Unit::Bytes, Better::Lower, None),
    figure(SERVER_BUSY, Unit::Share, Better::Neither, Some("server CPU")),
    figure(CLIENT_BUSY, Unit::Share, Better::Neither, Some("client CPU")),
    figure(TOTAL_DURATION_MS, Unit::Milliseconds, Better::Lower, Some("total (ms)")),
    figure(MEAN_DURATION_MS, Unit::Milliseconds, Better::Lower, Some("mean (ms)")),
    figure("std_dev_ms", Unit::Milliseconds, Better::Lower, Some("std dev (ms)")),
    figure("profit_pct", Unit::Percent, Better::Higher, Some("profit (%)")),
    figure("cost_pct", Unit::Percent, Better::Lower, Some("cost (%)")),
    figure("working_pct", Unit::Percent, Better::Higher, Some("working (%)")),
    figure("waiting_pct", Unit::Percent, Better::Lower, Some("waiting (%)")),
    figure("overhead_pct", Unit::Percent, Better::Lower, Some("overhead (%)")),
    figure("threads", Unit::Number, Better::Neither, Some("threads")),
    figure("cpu_ms", Unit::Milliseconds, Better::Lower, None),
    figure("cpu_of_process", Unit::Number, Better::Neither, None),
    figure("d1_ms", Unit::Milliseconds, Better::Lower, None),
    figure("cpu1_ms", Unit::Milliseconds, Better::Lower, None),
    figure("others_share", Unit::Share, Better::Neither, None),
    figure("cores", Unit::Number, Better::Neither, None),
    figure("tasks_per_core", Unit::Count, Better::Neither, None),
    figure("profit_to_ideal", Unit::Count, Better::Higher, None),
    figure("total_to_single", Unit::Count, Better::Lower, None),
    figure("total_to_ideal", Unit::Count, Better::Lower, None),
    figure("total_to_at_once", Unit::Count, Better::Lower, None),
    figure("last_start_pct", Unit::Percent, Better::Lower, None),
    figure("start_order", Unit::Count, Better::Neither, None),
    figure("spread_of_starts", Unit::Count, Better::Lower, None),
    figure("spread_of_durations", Unit::Count, Better::Lower, None),
    figure("threads_beyond_cores", Unit::Number, Better::Neither, None),
    figure("threads_beyond_tasks", Unit::Number, Better::Neither, None),
    figure("line_to_steps", Unit::Count, Better::Neither, None),
    figure("scatter_on_a_line", Unit::Count, Better::Neither, None),
    figure("slope_after_to_before", Unit::Count, Better::Neither, None),
    figure("steps_to_those_in_go", Unit::Count, Better::Higher, None),
    figure("total_s", Unit::Seconds, Better::Lower, Some("total (s)")),
    figure("share_of_bound", Unit::Share, Better::Higher, Some("of bound")),
    figure("bound_per_s", Unit::PerSecond, Better::Neither, None),
    figure("connections_bound_per_s", Unit::PerSecond, Better::Neither, None),
    figure("share_of_workers_bound", Unit::Share, Better::Higher, None),
    figure("share_without_a_bound", Unit::Share, Better::Higher, None),
    figure("mean_ms", Unit::Milliseconds, Better::Lower, Some("mean (ms)")),
    figure("p50_ms", Unit::Milliseconds, Better::Lower, Some("p50 (ms)")),
    figure("p66_ms", Unit::Milliseconds, Better::Lower, None),
    figure("p75_ms", Unit::Milliseconds, Better::Lower, None),
    figure("p80_ms", Unit::Milliseconds, Better::Lower, None),
    figure("p90_ms", Unit::Milliseconds, Better::Lower, None),
    figure("p95_ms", Unit::Milliseconds, Better::Lower, None),
    figure("p98_ms", Unit::Milliseconds, Better::Lower, None),
    figure("p99_ms", Unit::Milliseconds, Better::Lower, Some("p99 (ms)")),
    figure("max_ms", Unit::Milliseconds, Better::Lower, Some("max (ms)")),
    figure("connect_min_ms", Unit::Milliseconds, Better::Lower, None),
    figure("connect_mean_ms", Unit::Milliseconds, Better::Lower, None),
    figure("connect_sd_ms", Unit::Milliseconds, Better::Lower, None),
    figure("connect_median_ms", Unit::Milliseconds, Better::Lower, None),
    figure("connect_max_ms", Unit::Milliseconds, Better::Lower, None),
    figure("processing_min_ms", Unit::Milliseconds, Better::Lower, None),
    figure("processing_mean_ms", Unit::Milliseconds, Better::Lower, None),
    figure("processing_sd_ms", Unit::Milliseconds, Better::Lower, None),
    figure("processing_median_ms", Unit::Milliseconds, Better::Lower, None),
    figure("processing_max_ms", Unit::Milliseconds, Better::Lower, None),
    figure("waiting_min_ms", Unit::Milliseconds, Better::Lower, None),
    figure("waiting_mean_ms", Unit::Milliseconds, Better::Lower, None),
    figure("waiting_sd_ms", Unit::Milliseconds, Better::Lower, None),
    figure("waiting_median_ms", Unit::Milliseconds, Better::Lower, None),
    figure("waiting_max_ms", Unit::Milliseconds, Better::Lower, None),
    figure("total_min_ms", Unit::Milliseconds, Better::Lower, None),
    figure("total_mean_ms", Unit::Milliseconds, Better::Lower, None),
    figure("total_sd_ms", Unit::Milliseconds, Better::Lower, None),
    figure("total_median_ms", Unit::Milliseconds, Better::Lower, None),
    figure("total_max_ms", Unit::Milliseconds, Better::Lower, None),
    figure("document_bytes", Unit::Number, Better::Neither, None),
    figure("total_bytes", Unit::Number, Better::Neither, None),
    figure("html_bytes", Unit::Number, Better::Neither, None),
    figure("received_kB_s", Unit::Count, Better::Higher, None),
    figure("sent_kB_s", Unit::Count, Better::Higher, None),
    figure("per_request_ms", Unit::Count, Better::Lower, Some("request (ms)")),
    figure("connect_ms", Unit::Count, Better::Lower, Some("connecting (ms)")),
    figure("processing_ms", Unit::Count, Better::Lower, Some("processing (ms)")),
    figure("processing_p99_ms", Unit::Count, Better::Lower, None),
    figure("avg_cpu_pct", Unit::Percent, Better::Neither, Some("CPU (%)")),
    figure("max_cpu_pct", Unit::Percent, Better::Neither, None),
    figure("avg_mem_pct", Unit::Count, Better::Lower, Some("memory (%)")),
    figure("max_mem_pct", Unit::Count, Better::Lower, None),
    figure("anonymous_bytes", Unit::Bytes, Better::Lower, None),
    figure("workers_per_core", Unit::Count, Better::Neither, None),
    figure(CLIENT_FULL, Unit::Number, Better::Neither, None),
    figure("peak_memory_mib", Unit::Count, Better::Lower, Some("peak memory (MiB)")),
    figure("requests", Unit::Number, Better::Neither, None),
    figure("connections", Unit::Number, Better::Neither, None),
    figure("every", Unit::Number, Better::Neither, None),
    figure("wait_s", Unit::Seconds, Better::Neither, None),
    figure(SWITCHES, Unit::Count, Better::Lower, None),
    figure(UNDER_WAY, Unit::Share, Better::Neither, None),
    figure("retried", Unit::Count, Better::Neither, None),
    figure("reconnects", Unit::Count, Better::Neither, None),
    figure(ANSWERED, Unit::Count, Better::Neither, None),
    figure("elapsed_s", Unit::Seconds, Better::Neither, None),
    figure(SERVER_CPU_S, Unit::Seconds, Better::Neither, None),
    figure(CLIENT_CPU_S, Unit::Seconds, Better::Neither, None),
    figure(SERVER_IDLE_S, Unit::Seconds, Better::Neither, None),
    figure(CLIENT_IDLE_S, Unit::Seconds, Better::Neither, None),
];

const fn figure(name: &'static str, unit: Unit, better: Better, column: Option<&'static str>) -> NamedFigure {
    NamedFigure { name, unit, better, column }
}

impl NamedFigure {
    /// The figure of this name.
    pub fn named(name: &str) -> Option<Self> {
        ALL.iter().find(|figure| figure.name == name).copied()
    }

    /// A value with its unit, for tables.
    pub fn text(&self, value: f64) -> String {
        match self.unit {
            Unit::PerSecond if value >= 1e6 => format!("{:.2} M", value / 1e6),
            Unit::PerSecond => count(value),
            Unit::Number => count(value),
            Unit::Milliseconds | Unit::Percent => format!("{value:.1}"),
            Unit::Count if value.fract() == 0.0 => count(value),
            Unit::CpuMicroseconds | Unit::CpuMilliseconds | Unit::Count | Unit::Seconds => format!("{value:.2}"),
            Unit::Microseconds => time_us(value),
            Unit::Bytes => bytes(value),
            Unit::Share => format!("{:.0} %", value * 100.0),
        }
    }
}

/// By its name.
impl Serialize for NamedFigure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for NamedFigure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::named(&name).ok_or_else(|| D::Error::custom(unknown(&name)))
    }
}

/// Why a name is not the name of a figure.
pub(crate) fn unknown(name: &str) -> String {
    let names: Vec<&str> = ALL.iter().map(|figure| figure.name).collect();
    format!("there is no figure {name:?}; there are {}", names.join(", "))
}

/// A figure of a sample. Without an answer, a latency and the CPU time of a request are not unknown: they are infinite.
pub(crate) fn value(own: &NamedFigures, name: &str) -> Option<f64> {
    let is_without_answer = match name {
        P50_US | P99_US | P999_US => own.contains_key(RATE_PER_S),
        CPU_US => own.get(ANSWERED) == Some(&0.0) && own.contains_key(SERVER_CPU_S),
        _ => false,
    };
    own.get(name).copied().or(is_without_answer.then_some(f64::INFINITY))
}

/// All figures of a sample, each as [`value`]. A record has no infinite ones.
pub(crate) fn complete(own: &NamedFigures) -> NamedFigures {
    let infinite =
        [P50_US, P99_US, P999_US, CPU_US].into_iter().filter_map(|name| Some((name.into(), value(own, name)?)));
    own.clone().into_iter().chain(infinite).collect()
}

/// The figures that are known. One that is not, or is infinite, is left out.
pub(crate) fn known<'a>(all: impl IntoIterator<Item = (&'a str, Option<f64>)>) -> impl Iterator<Item = (String, f64)> {
    let named = all.into_iter().map(|(name, value)| Some((name.to_owned(), value.filter(|value| value.is_finite())?)));
    named.flatten()
}
