//! What a process logs, for tests: a subscriber that collects events.

use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};

use tracing::field::{Field, Visit};
use tracing::subscriber::set_global_default;
use tracing::{Event, Level, Metadata, Subscriber, span};

/// Collects the messages that this process logs from now on, each with its level and its fields: `message=cannot accept error=...`.
///
/// # Panics
///
/// Panics if the process has a subscriber already. So a program has one test that calls this.
pub fn messages() -> Receiver<(Level, String)> {
    let (sender, messages) = channel();
    set_global_default(Messages(sender)).expect("no other test of this program sets a subscriber");
    messages
}

struct Messages(Sender<(Level, String)>);

impl Subscriber for Messages {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = FieldText(String::new());
        event.record(&mut text);
        // The test may have ended.
        let _ = self.0.send((*event.metadata().level(), text.0));
    }
}

struct FieldText(String);

impl Visit for FieldText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{field}={value:?} ");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0 += &format!("{field}={value} ");
    }
}
