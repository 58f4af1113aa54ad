use super::record::Row;
use super::*;

/// A row with invented figures, at the published connections and waits.
pub(super) fn row(part: Part, server: &str, workers: Option<usize>, requests_per_s: f64) -> Row {
    let waiting = workers.unwrap_or(100).min(100);
    let figures = PageFigures {
        total_s: 10_000.0 / requests_per_s,
        requests_per_s,
        mean_ms: 200.0,
        p50_ms: 1.0,
        p90_ms: 2000.0,
        p99_ms: 2002.0,
        max_ms: 2010.0,
        ..PageFigures::default()
    };
    let bounds = Bounds {
        bound_per_s: None,
        connections_bound_per_s: 500.0,
        of_bound: requests_per_s / (waiting as f64 * 5.0),
        requests: 10_000,
        connections: 100,
        every: 10,
        wait_s: 2.0,
        server_busy: Some(0.1),
    };
    let key = Key { part, server: server.to_owned(), workers };
    Row { key, sample: Sample { figures, published_as: None, bounds } }
}

fn conditions(connections: usize, every: u64, wait: Duration) -> Conditions {
    let cores = Cores::from(0);
    let (server_cores, client_cores) = (cores.clone(), cores);
    Conditions { server_cores, client_cores, connections, every, wait, stop: Shutdown::new() }
}

/// The published text's own example, and the published figures' bound.
#[test]
fn bounds() {
    let published = conditions(100, 10, Duration::from_secs(2));
    assert_eq!((published.bound(8), published.bound(100)), (40.0, 500.0));
    assert_eq!((published.least_bound(Some(8)), published.least_bound(Some(1000))), (40.0, 500.0));
    assert_eq!(published.least_bound(None), 500.0);
}

#[test]
fn the_number_of_requests_fits_the_time() {
    let published = conditions(100, 10, Duration::from_secs(2));
    let within = |waiting, seconds| published.requests(waiting, Duration::from_secs(seconds));
    assert_eq!((within(Some(8), 30), within(Some(8), 3600)), (1200, 10_000));
    assert_eq!((within(Some(1), 1), within(None, 30)), (100, 10_000));
    let odd = conditions(5, 7, Duration::from_secs(1));
    assert_eq!(odd.requests(Some(1), Duration::from_millis(1)), 7);
}
