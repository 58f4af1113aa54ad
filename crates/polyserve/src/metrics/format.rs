//! The two formats of metrics, and which of them a client asks for.
//!
//! The older format of Prometheus differs from OpenMetrics in two ways: the lines about a counter have the name with `_total`, and
//! there are no lines `# UNIT` and `# EOF`.

use std::collections::HashSet;

/// The media type of [`Metrics::text`](super::Metrics::text): OpenMetrics 1.0.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The media type of the older text format of Prometheus.
pub const TEXT_MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether a field `Accept` names OpenMetrics, and nothing else that can be had with more weight. A wildcard is satisfied by any format.
pub(super) fn prefers_openmetrics(accept: &str) -> bool {
    let best = |wanted: &str, version: Option<&str>| {
        let weights = accept.split(',').filter_map(|range| weight(range, wanted, version));
        weights.fold(0.0, f32::max)
    };
    let openmetrics = best("application/openmetrics-text", Some("1.0.0"));
    openmetrics > 0.0 && openmetrics >= best("text/plain", Some("0.0.4"))
}

/// The weight of a media range of `Accept` (RFC 9110, 12.4.2); `None` if it is about another type, or about another version than the
/// one that is had.
fn weight(range: &str, wanted: &str, version: Option<&str>) -> Option<f32> {
    let mut parts = range.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(wanted) {
        return None;
    }
    let mut weight = 1.0;
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match name.trim().to_ascii_lowercase().as_str() {
            "q" => weight = value.trim().parse().ok().filter(|weight| (0.0..=1.0).contains(weight))?,
            "version" if Some(value.trim().trim_matches('"')) != version => return None,
            _ => {}
        }
    }
    Some(weight)
}

/// Returns OpenMetrics as the older text format.
pub(super) fn to_text(openmetrics: &str) -> String {
    let counters: HashSet<&str> =
        openmetrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut text = String::with_capacity(openmetrics.len() + 64);
    for line in openmetrics.lines() {
        let about = ["# HELP ", "# TYPE "].into_iter().find_map(|start| Some((start, line.strip_prefix(start)?)));
        match about.and_then(|(start, rest)| Some((start, rest.split_once(' ')?))) {
            Some((start, (name, rest))) => {
                let suffix = if counters.contains(name) { "_total" } else { "" };
                text.extend([start, name, suffix, " ", rest, "\n"]);
            }
            None if line.starts_with("# ") => {}
            None => text.extend([line, "\n"]),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_what_it_prefers() {
        // As Prometheus 3 and 2 ask for it.
        const PROMETHEUS_3: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
             application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
             text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        const PROMETHEUS_2: &str = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
             text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for accept in [
            PROMETHEUS_3,
            PROMETHEUS_2,
            "Application/OpenMetrics-Text",
            "text/plain;q=0.5, application/openmetrics-text",
        ] {
            assert!(prefers_openmetrics(accept), "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "text/plain",
            "text/html, */*;q=0.1",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=x",
            "application/openmetrics-text; version=0.0.1",
            "application/openmetrics-text;q=0.2,text/plain;version=0.0.4;q=0.3",
        ] {
            assert!(!prefers_openmetrics(accept), "{accept}");
        }
    }

    #[test]
    fn the_older_format_names_the_samples_of_a_counter() {
        let openmetrics = "# HELP a_seconds A # TYPE of help.\n# TYPE a_seconds histogram\n# UNIT a_seconds seconds\n\
             a_seconds_sum 1.0\n# HELP b Help.\n# TYPE b counter\nb_total{server=\"# EOF\"} 3\n# EOF\n";
        let text = "# HELP a_seconds A # TYPE of help.\n# TYPE a_seconds histogram\na_seconds_sum 1.0\n\
             # HELP b_total Help.\n# TYPE b_total counter\nb_total{server=\"# EOF\"} 3\n";
        assert_eq!(to_text(openmetrics), text);
    }
}
