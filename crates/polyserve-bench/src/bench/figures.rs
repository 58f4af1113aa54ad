//! The registry of figures: the name of each, its unit, and which direction is better.

use std::collections::BTreeMap;

use crate::report::figures::{bytes, count, time_us};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The figures of a sample, by their names.
pub(crate) type NamedFigures = BTreeMap<String, f64>;

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

/// Defines each figure: its name, its unit, which direction is better, and its column of tables, if it has one. A name that several
/// places have is a constant.
macro_rules! figures {
    ($($($(#[doc = $doc:literal])+ $constant:ident =)? $name:literal: $unit:ident, $better:ident $(, $column:literal)?;)*) => {
        $($($(#[doc = $doc])+ pub(crate) const $constant: &str = $name;)?)*

        /// All figures, in the order of tables.
        pub(crate) const ALL: &[NamedFigure] = &[$(NamedFigure {
            name: $name,
            unit: Unit::$unit,
            better: Better::$better,
            column: [$(Some($column),)? None][0],
        }),*];
    };
}

figures! {
    /// The max rate of arrivals at which the p99 meets the goal.
    CAPACITY_PER_S = "capacity_per_s": PerSecond, Higher, "capacity (req/s)";
    /// The capacity as a share of the null server's throughput.
    LIMIT_SHARE = "limit_share": Share, Higher, "of the limit";
    /// The end of a search: -1 if the lowest rate was not met, 1 if the null server's throughput was met, else 0.
    SEARCH_END = "search_end": Count, Neither;
    /// The growth of a server's memory for each connection that it holds.
    BYTES_PER_CONNECTION = "bytes_per_connection": Bytes, Lower, "per connection";
    "anonymous_bytes_per_connection": Bytes, Lower;
    /// The connections of a crowd that are open at its end.
    HELD = "crowd_held": Count, Higher, "held";
    "crowd_arrived": Count, Neither;
    "crowd_opened": Count, Neither;
    "crowd_answered": Count, Neither;
    "crowd_refused": Count, Neither, "refused";
    "crowd_timed_out": Count, Neither;
    "crowd_cut": Count, Neither, "cut";
    "crowd_unreachable": Count, Neither;
    "held_bytes": Bytes, Lower, "memory with the crowd";
    "idle_cpu_ms_per_s": CpuMilliseconds, Lower, "idle CPU (ms/s)";
    "free_requests_per_s": PerSecond, Neither, "without (req/s)";
    "kept_share": Share, Higher, "kept";
    /// The answers in time a second under overload, as a share of the capacity.
    GOODPUT_SHARE = "goodput_share": Share, Higher, "goodput";
    "goodput_per_s": PerSecond, Higher;
    "closed_capacity_per_s": PerSecond, Neither, "capacity (req/s)";
    "offered_per_s": PerSecond, Neither, "offered (req/s)";
    "admitted_p99_us": Microseconds, Lower, "p99 of the admitted";
    "admitted_p99_to_unloaded": Count, Lower, "to unloaded";
    "unloaded_p99_us": Microseconds, Neither;
    "recovery_ms": Milliseconds, Lower, "recovery (ms)";
    "retries_per_s": PerSecond, Neither, "retries/s";
    "rejected_per_s": PerSecond, Neither, "rejected/s";
    "timeouts_per_s": PerSecond, Lower, "timeouts/s";
    "late_per_s": PerSecond, Lower;
    "given_up_share": Share, Lower, "given up";
    /// Errors: requests without a right answer, and in the mode `scenario` a wrong final state.
    ERRORS = "errors": Count, Lower, "errors";
    /// The ratio that a comparison of a contestant with itself found.
    THROUGHPUT_RATIO = "throughput_ratio": Count, Neither, "throughput ratio";
    "throughput_verdict": Count, Neither;
    "cost_ratio": Count, Neither, "cost ratio";
    "cost_verdict": Count, Neither;
    "comparison_rounds": Count, Neither, "rounds";
    /// The requests of a scenario.
    SAMPLES = "samples": Number, Neither, "samples";
    /// Those with a right answer that is no refusal.
    VERIFIED = "verified": Number, Higher, "verified";
    /// Those with a right refusal: a 503 from a full queue.
    REFUSED = "refused": Number, Lower, "refused";
    "connections_at_once": Number, Neither;
    "connections_opened": Number, Neither;
    "server_answered": Number, Neither, "answered by the server";
    "server_cut": Number, Lower, "cut";
    "server_stuck": Number, Lower;
    /// The entities of a store at the end, by the server's own count.
    STORED = "stored_entities": Number, Neither, "stored";
    "final_checked": Number, Neither;
    "final_present": Number, Neither, "present";
    "final_wrong": Number, Lower, "wrong";
    "control_share": Share, Neither;
    "errors_after": Count, Lower, "errors after";
    "before_p99_us": Microseconds, Neither, "p99 before";
    "after_p99_us": Microseconds, Lower, "p99 after";
    "descriptors": Count, Neither;
    /// Right answers a second in closed loop.
    REQUESTS_PER_S = "requests_per_s": PerSecond, Higher, "req/s";
    /// CPU time of the server for each right answer in closed loop.
    CPU_US = "cpu_us_per_request": CpuMicroseconds, Lower, "CPU us/req";
    /// The fixed rate.
    RATE_PER_S = "rate_per_s": PerSecond, Neither, "rate (req/s)";
    /// CPU time of the server for each right answer at the fixed rate.
    CPU_US_AT_RATE = "cpu_us_at_rate": CpuMicroseconds, Lower, "CPU us/req at rate";
    /// Operations a second on a store. Each thread waits for an answer before its next operation.
    OPERATIONS_PER_S = "operations_per_s": PerSecond, Higher, "operations/s";
    /// The same with many operations outstanding, of a store with deferred answers.
    WINDOWED_PER_S = "windowed_operations_per_s": PerSecond, Higher, "operations/s, 64 outstanding";
    /// CPU time of the threads for each operation on a store.
    CPU_US_PER_OPERATION = "cpu_us_per_operation": CpuMicroseconds, Lower, "CPU us/operation";
    /// Resident memory of the process for each stored entity.
    FILLED_BYTES = "filled_bytes_per_entity": Count, Lower, "bytes/entity";
    "emptied_bytes_per_entity": Count, Lower, "after removal";
    "refilled_bytes_per_entity": Count, Lower, "filled again";
    "filled_s": Seconds, Lower, "filling (s)";
    "emptied_s": Seconds, Lower, "removal (s)";
    "refilled_s": Seconds, Lower;
    /// Latency at the fixed rate from the intended start, 50 %.
    P50_US = "p50_us": Microseconds, Lower, "p50";
    /// Latency, 99 %.
    P99_US = "p99_us": Microseconds, Lower, "p99";
    /// Latency, 99.9 %.
    P999_US = "p999_us": Microseconds, Lower;
    "max_us": Microseconds, Lower;
    "clock_us": Microseconds, Neither;
    /// The delay of the load generator itself, 99 %.
    LATENESS_P99_US = "lateness_p99_us": Microseconds, Neither;
    /// Requests that were due at the fixed rate and not sent in time, as a share of those due.
    BEHIND = "behind_share": Share, Lower;
    /// Resident memory with all connections open.
    LOADED_MEMORY = "loaded_bytes": Bytes, Lower, "memory";
    /// Resident memory before the first connection, with the entities.
    FILLED_MEMORY = "filled_bytes": Bytes, Lower;
    /// The server's CPU time as a share of its cores' time.
    SERVER_BUSY = "server_busy": Share, Neither, "server CPU";
    /// The client's CPU time as a share of its threads' time.
    CLIENT_BUSY = "client_busy": Share, Neither, "client CPU";
    /// From the start of the first task to the end of the last one.
    TOTAL_DURATION_MS = "total_duration_ms": Milliseconds, Lower, "total (ms)";
    /// The mean of the tasks' durations.
    MEAN_DURATION_MS = "mean_duration_ms": Milliseconds, Lower, "mean (ms)";
    "std_dev_ms": Milliseconds, Lower, "std dev (ms)";
    "profit_pct": Percent, Higher, "profit (%)";
    "cost_pct": Percent, Lower, "cost (%)";
    "working_pct": Percent, Higher, "working (%)";
    "waiting_pct": Percent, Lower, "waiting (%)";
    "overhead_pct": Percent, Lower, "overhead (%)";
    "threads": Number, Neither, "threads";
    "cpu_ms": Milliseconds, Lower;
    "cpu_of_process": Number, Neither;
    "d1_ms": Milliseconds, Lower;
    "cpu1_ms": Milliseconds, Lower;
    "others_share": Share, Neither;
    "cores": Number, Neither;
    "tasks_per_core": Count, Neither;
    "profit_to_ideal": Count, Higher;
    "total_to_single": Count, Lower;
    "total_to_ideal": Count, Lower;
    "total_to_at_once": Count, Lower;
    "last_start_pct": Percent, Lower;
    "start_order": Count, Neither;
    "spread_of_starts": Count, Lower;
    "spread_of_durations": Count, Lower;
    "threads_beyond_cores": Number, Neither;
    "threads_beyond_tasks": Number, Neither;
    "line_to_steps": Count, Neither;
    "scatter_on_a_line": Count, Neither;
    "slope_after_to_before": Count, Neither;
    "steps_to_those_in_go": Count, Higher;
    "total_s": Seconds, Lower, "total (s)";
    "share_of_bound": Share, Higher, "of bound";
    "bound_per_s": PerSecond, Neither;
    "connections_bound_per_s": PerSecond, Neither;
    "share_of_workers_bound": Share, Higher;
    "share_without_a_bound": Share, Higher;
    "mean_ms": Milliseconds, Lower, "mean (ms)";
    "p50_ms": Milliseconds, Lower, "p50 (ms)";
    "p66_ms": Milliseconds, Lower;
    "p75_ms": Milliseconds, Lower;
    "p80_ms": Milliseconds, Lower;
    "p90_ms": Milliseconds, Lower;
    "p95_ms": Milliseconds, Lower;
    "p98_ms": Milliseconds, Lower;
    "p99_ms": Milliseconds, Lower, "p99 (ms)";
    "max_ms": Milliseconds, Lower, "max (ms)";
    "connect_min_ms": Milliseconds, Lower;
    "connect_mean_ms": Milliseconds, Lower;
    "connect_sd_ms": Milliseconds, Lower;
    "connect_median_ms": Milliseconds, Lower;
    "connect_max_ms": Milliseconds, Lower;
    "processing_min_ms": Milliseconds, Lower;
    "processing_mean_ms": Milliseconds, Lower;
    "processing_sd_ms": Milliseconds, Lower;
    "processing_median_ms": Milliseconds, Lower;
    "processing_max_ms": Milliseconds, Lower;
    "waiting_min_ms": Milliseconds, Lower;
    "waiting_mean_ms": Milliseconds, Lower;
    "waiting_sd_ms": Milliseconds, Lower;
    "waiting_median_ms": Milliseconds, Lower;
    "waiting_max_ms": Milliseconds, Lower;
    "total_min_ms": Milliseconds, Lower;
    "total_mean_ms": Milliseconds, Lower;
    "total_sd_ms": Milliseconds, Lower;
    "total_median_ms": Milliseconds, Lower;
    "total_max_ms": Milliseconds, Lower;
    "document_bytes": Number, Neither;
    "total_bytes": Number, Neither;
    "html_bytes": Number, Neither;
    "received_kB_s": Count, Higher;
    "sent_kB_s": Count, Higher;
    "per_request_ms": Count, Lower, "request (ms)";
    "connect_ms": Count, Lower, "connecting (ms)";
    "processing_ms": Count, Lower, "processing (ms)";
    "processing_p99_ms": Count, Lower;
    "avg_cpu_pct": Percent, Neither, "CPU (%)";
    "max_cpu_pct": Percent, Neither;
    "avg_mem_pct": Count, Lower, "memory (%)";
    "max_mem_pct": Count, Lower;
    "anonymous_bytes": Bytes, Lower;
    "workers_per_core": Count, Neither;
    /// 1 if the client had no time left, so that all servers seem alike; else 0.
    CLIENT_FULL = "client_full": Number, Neither;
    "peak_memory_mib": Count, Lower, "peak memory (MiB)";
    "requests": Number, Neither;
    "connections": Number, Neither;
    "every": Number, Neither;
    "wait_s": Seconds, Neither;
    /// Context switches of the server's threads for each request, while the load warms it up.
    SWITCHES = "switches_per_request": Count, Lower;
    /// The requests under way by Little's law, as a share of the connections.
    UNDER_WAY = "under_way": Share, Neither;
    "retried": Count, Neither;
    "reconnects": Count, Neither;
    /// Right answers in closed loop.
    ANSWERED = "answered": Count, Neither;
    "elapsed_s": Seconds, Neither;
    /// The server's CPU time in closed loop, in seconds.
    SERVER_CPU_S = "server_cpu_s": Seconds, Neither;
    /// The client's CPU time in closed loop, in seconds.
    CLIENT_CPU_S = "client_cpu_s": Seconds, Neither;
    /// The idle time of the server's cores in closed loop, in seconds.
    SERVER_IDLE_S = "server_idle_s": Seconds, Neither;
    /// The idle time of the client's cores in closed loop, in seconds.
    CLIENT_IDLE_S = "client_idle_s": Seconds, Neither;
}

impl NamedFigure {
    /// The figure of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        ALL.iter().find(|figure| figure.name == name).copied()
    }

    /// A value with its unit, for tables.
    pub(crate) fn text(&self, value: f64) -> String {
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
