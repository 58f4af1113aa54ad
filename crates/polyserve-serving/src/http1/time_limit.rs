//! The limits on the time of a connection's waits: one rule for every server.
//!
//! The limit of a body grows with the bytes that have arrived, and that of a write with the bytes that were unsent when the
//! wait began. That of a connection that lingers grows while its client goes on sending. So a slow client that makes progress has more
//! time, and a client that drips has a bound: whatever progress it makes, no wait begins anew.

use std::time::Duration;

use polyserve_core::ServerConfig;

/// The time that a body has before [`min_body_rate`](ServerConfig::min_body_rate) counts.
pub const BODY_GRACE: Duration = Duration::from_secs(5);

/// A write has one second more for each piece of this length that was unsent when the wait began.
const WRITE_PIECE: usize = 64 * 1024;

/// A wait of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeLimit {
    /// From accept to the first byte of the connection.
    FirstByte,
    /// From the last answer to the first byte of the next request.
    Idle,
    /// From the first byte of a head to its end.
    Head,
    /// From the end of a head to the end of its body.
    Body {
        /// Number of bytes of the body that have arrived.
        received: u64,
    },
    /// From a request to its deferred answer.
    Answer,
    /// From a write that the kernel did not take whole to its last byte. A streamed answer of unknown length waits for
    /// each piece.
    Write {
        /// Number of bytes that were unsent when the wait began.
        unsent: usize,
    },
    /// From the last answer until the client closes.
    Linger {
        /// The time from the last answer to the last bytes that extended the wait: see [`LingerWait`](crate::LingerWait). Zero if none did.
        sent: Duration,
    },
}

impl TimeLimit {
    /// Returns the max time of the wait, from its begin on.
    ///
    /// ```
    /// use polyserve_core::ServerConfig;
    /// use polyserve_serving::http1::TimeLimit;
    /// use std::time::Duration;
    ///
    /// let config = ServerConfig::default();
    /// assert_eq!(TimeLimit::Write { unsent: 128 * 1024 }.of(&config), Duration::from_secs(32));
    /// assert_eq!(TimeLimit::Body { received: 0 }.of(&config), Duration::from_secs(5));
    /// assert_eq!(TimeLimit::Body { received: 480 }.of(&config), Duration::from_secs(7));
    /// assert_eq!(TimeLimit::Body { received: 1 << 20 }.of(&config), Duration::from_secs(30));
    /// assert_eq!(TimeLimit::Linger { sent: Duration::from_secs(7) }.of(&config), Duration::from_secs(8));
    /// assert_eq!(TimeLimit::Linger { sent: Duration::from_secs(40) }.of(&config), Duration::from_secs(30));
    /// ```
    #[inline]
    pub fn of(self, config: &ServerConfig) -> Duration {
        match self {
            Self::FirstByte => config.first_byte_timeout,
            Self::Idle => config.idle_timeout,
            Self::Head => config.head_timeout,
            Self::Body { received } => {
                let at_rate = received.saturating_mul(1000).checked_div(u64::from(config.min_body_rate));
                let limit = at_rate.map(|millis| BODY_GRACE.saturating_add(Duration::from_millis(millis)));
                limit.map_or(config.body_timeout, |limit| limit.min(config.body_timeout))
            }
            Self::Answer => config.answer_timeout,
            Self::Linger { sent } => {
                let longest = config.body_timeout.max(config.linger_timeout);
                sent.saturating_add(config.linger_timeout).min(longest)
            }
            Self::Write { unsent } => {
                let millis = (unsent as u64).saturating_mul(1000).checked_div(WRITE_PIECE as u64).unwrap_or(0);
                config.write_timeout.saturating_add(Duration::from_millis(millis))
            }
        }
    }
}
