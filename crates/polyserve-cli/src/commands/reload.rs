//! New certificates and users while a server runs.

use std::time::Duration;

use anyhow::Context as _;
use polyserve::TlsConfig;
use polyserve::signals::on_hangup;

use super::access::TokensFile;

/// The time between two looks at the files. A change is used when it is seen twice.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Reads the files again on SIGHUP, and if they change. To be called before the signals are taken over. Without files, SIGHUP is left
/// alone, and drains.
pub(crate) fn watch(tls: Option<&TlsConfig>, tokens: Option<&TokensFile>) -> anyhow::Result<()> {
    let (mut tls, mut tokens) = (tls.cloned(), tokens.cloned());
    if tls.is_none() && tokens.is_none() {
        return Ok(());
    }
    let (mut certificate, mut users) = (Watched::new("TLS certificate"), Watched::new("file of users"));
    let reload = move |is_asked: bool| {
        if let Some(tls) = &mut tls {
            let result = if is_asked { tls.reload().map(|()| true) } else { tls.reload_if_changed() };
            certificate.note(is_asked, result.map_err(|error| error.to_string()));
        }
        if let Some(tokens) = &mut tokens {
            users.note(is_asked, tokens.reload(is_asked));
        }
    };
    on_hangup(LOOK_PAUSE, reload).context("SIGHUP cannot be taken over")
}

/// What is logged about a file.
struct Watched {
    what: &'static str,
    /// The error that was logged last, until the file has none. A file that stays unreadable is logged once, and so is a certificate that
    /// begins later.
    refused: Option<String>,
}

impl Watched {
    fn new(what: &'static str) -> Self {
        Self { what, refused: None }
    }

    /// `result`: whether the file was used, or what is wrong with it. Returns whether a line was logged.
    fn note(&mut self, is_asked: bool, result: Result<bool, String>) -> bool {
        let what = self.what;
        match result {
            Ok(is_used) => {
                self.refused = None;
                if is_used {
                    tracing::info!("the {what} was read again");
                }
                is_used
            }
            Err(error) if !is_asked && self.refused.as_ref() == Some(&error) => false,
            Err(error) => {
                tracing::error!(%error, "the new {what} is refused, and the old one stays in use");
                self.refused = Some(error);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: the second outage of a file had no line.
    #[test]
    fn each_outage_has_a_line() {
        let mut file = Watched::new("file");
        let gone = || Err(String::from("it is gone"));
        let looks = [gone(), gone(), Ok(false), gone(), gone(), Ok(true), Ok(false), gone()];
        let logged = looks.map(|look| file.note(false, look));
        assert_eq!(logged, [true, false, false, true, false, true, false, true]);
        assert!(file.note(true, gone()), "an answer to SIGHUP is never left out");
    }
}
