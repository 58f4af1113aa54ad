//! A violation for readers: the few operations that cannot be ordered, on a time scale, and a sentence with the reason.

use std::fmt;

use super::minimise::Core;
use super::plan::Register;
use super::{Call, CallAnswer, Operation};

/// Operations of one key that cannot be ordered.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The key.
    pub key: i64,
    /// The number of operations of the key.
    pub of: usize,
    /// The operations that cannot be ordered, sorted by their calls. No order explains all their answers, whatever effects
    /// the omitted operations had.
    pub core: Vec<Operation>,
    /// Puts of values that they saw or that their conditions name, if these puts are not among them.
    pub observed_puts: Vec<Operation>,
    /// The violation in one sentence.
    pub sentence: String,
}

/// The number of rows that are shown.
const MAX_ROWS: usize = 40;
/// The number of columns of the time scale.
const SCALE_WIDTH: usize = 32;

impl Violation {
    pub(super) fn new(register: &Register<'_>, core: &Core) -> Self {
        let all = register.operations;
        let mut observed_puts: Vec<u32> = Vec::new();
        for &place in &core.places {
            let Some(value) = all[place].named_value() else { continue };
            observed_puts
                .extend(register.puts.get(&value).filter(|put| core.places.binary_search(&(**put as usize)).is_err()));
        }
        observed_puts.sort_unstable();
        observed_puts.dedup();
        let stuck = &all[core.stuck];
        let core: Vec<Operation> = core.places.iter().map(|place| all[*place]).collect();
        let sentence = sentence(register, &core, stuck);
        let observed_puts = observed_puts.into_iter().map(|place| all[place as usize]).collect();
        Self { key: stuck.key, of: all.len(), core, observed_puts, sentence }
    }
}

/// The operation's kind: `put 5 if absent`. `of` stands before the value of a put.
fn name(operation: &Operation, of: &str) -> String {
    let word = operation.call.word();
    let value = operation.put_value().map(|value| format!(" {of}{value}")).unwrap_or_default();
    let condition = operation.condition.map(|condition| format!(" if {condition}")).unwrap_or_default();
    format!("{word}{value}{condition}")
}

/// The operation's client and kind.
fn subject_phrase(operation: &Operation) -> String {
    format!("client {}'s {}", operation.process, name(operation, "of "))
}

/// The operation's answer in a table.
fn answer(operation: &Operation) -> String {
    match operation.answer {
        Some(CallAnswer::Found(value)) => value.to_string(),
        answer => answer.map_or("unknown", CallAnswer::word).to_owned(),
    }
}

/// The operation's answer, as part of a sentence.
fn answer_phrase(operation: &Operation) -> String {
    String::from(match operation.answer {
        Some(CallAnswer::Found(value)) => return format!("saw {value}"),
        Some(CallAnswer::Absent) if operation.call == Call::Get => "saw nothing",
        Some(CallAnswer::Absent) => "found nothing there",
        Some(CallAnswer::Created) => "found nothing there, and created",
        Some(CallAnswer::Replaced) => "found something there, and replaced it",
        Some(CallAnswer::Removed) => "found something there, and removed it",
        Some(CallAnswer::Refused) => "was refused",
        None => "had no answer",
    })
}

/// Why the operations cannot be ordered.
fn sentence(register: &Register<'_>, core: &[Operation], stuck: &Operation) -> String {
    // The core is large only if a limit was reached. Then not every pair is compared.
    let compared = if core.len() > 1000 { &[] } else { core };
    for get in compared {
        let Some(CallAnswer::Found(value)) = get.answer else { continue };
        let observation = format!("{} saw {value}", subject_phrase(get));
        let Some(put) = register.puts.get(&value).map(|place| register.operations[*place as usize]) else {
            return format!("{observation}, which no client has put.");
        };
        if put.called > get.returned {
            return format!("{observation} and returned before {} began.", subject_phrase(&put));
        }
        let reason = core.iter().filter(|other| other.end() < get.called).find_map(|other| {
            let cause = gone_by(register, &put, other)?;
            Some(format!("{observation}{cause}."))
        });
        if let Some(reason) = reason {
            return reason;
        }
    }
    let order = match core.len() {
        0 | 1 => String::from("by itself"),
        2 => String::from("whichever of the two was first"),
        _ => String::from("in whatever order they took effect"),
    };
    format!("{} {}, which cannot be, {order}.", subject_phrase(stuck), answer_phrase(stuck))
}

/// Returns the sentence part that explains why the value of `put` was gone, if `other` proves that.
fn gone_by(register: &Register<'_>, put: &Operation, other: &Operation) -> Option<String> {
    let (mut later, client) = (*other, subject_phrase(other));
    let cause = match other.answer? {
        CallAnswer::Created | CallAnswer::Replaced => format!(", which {client} had replaced before it began"),
        CallAnswer::Removed => format!(", which {client} had removed before it began"),
        CallAnswer::Found(value) => {
            later = register.operations[*register.puts.get(&value)? as usize];
            format!(" after {client} had seen {value}, which was put later")
        }
        CallAnswer::Absent => format!(" after {client} had found nothing there any more"),
        CallAnswer::Refused => return None,
    };
    (later.called > put.end()).then_some(cause)
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, of, core, observed_puts, sentence } = self;
        writeln!(f, "key {key}: {sentence}")?;
        let mut rows: Vec<(&Operation, bool)> = core.iter().map(|operation| (operation, true)).collect();
        rows.extend(observed_puts.iter().map(|operation| (operation, false)));
        rows.sort_by_key(|(operation, _)| (operation.called, operation.end()));
        let start = rows.first().map_or(0, |(operation, _)| operation.called);
        let end = rows.iter().map(|(operation, _)| operation.end()).filter(|end| *end != u64::MAX).max();
        let scale = TimeScale { start, end: end.unwrap_or(start).max(start + 1) };
        writeln!(f, "  {:>6}  {:<22}  {:<9}  {:>24}", "client", "operation", "answer", "microseconds")?;
        for (operation, is_core) in rows.iter().take(MAX_ROWS) {
            let &Operation { process, called, .. } = *operation;
            let micros = |at: u64| format!("{:.1}", (at.saturating_sub(start)) as f64 / 1e3);
            let end = if operation.is_unknown() { String::new() } else { micros(operation.returned) };
            let time = format!("{}..{end}", micros(called));
            let mark = if *is_core { ' ' } else { '(' };
            let bar = scale.bar(operation);
            let (name, answer) = (name(operation, ""), answer(operation));
            let row = format!("{mark} {process:>6}  {name:<22}  {answer:<9}  {time:>24}  {bar}");
            writeln!(f, "{}{}", row.trim_end(), if *is_core { "" } else { " )" })?;
        }
        if rows.len() > MAX_ROWS {
            writeln!(f, "  and {} more", rows.len() - MAX_ROWS)?;
        }
        if !observed_puts.is_empty() {
            writeln!(f, "  (in parentheses: the puts of the values that were seen or named)")?;
        }
        let count = core.len();
        writeln!(f, "No order of these {count} of the key's {of} operations is right, whatever the others did.")
    }
}

/// The time that is shown.
struct TimeScale {
    start: u64,
    end: u64,
}

impl TimeScale {
    /// An operation's part of the time scale.
    fn bar(&self, operation: &Operation) -> String {
        let length = (self.end - self.start) as f64;
        let column = |at: u64| {
            let share = (at.clamp(self.start, self.end) - self.start) as f64 / length;
            (share * (SCALE_WIDTH - 1) as f64) as usize
        };
        let (from, to) = (column(operation.called), column(operation.end()));
        let width = to - from;
        let body = match width {
            0 => String::from("|"),
            _ => format!("[{}{}", "-".repeat(width - 1), if operation.is_unknown() { '>' } else { ']' }),
        };
        format!("{}{body}", " ".repeat(from))
    }
}
