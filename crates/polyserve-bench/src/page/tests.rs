use super::record::PageRow;
use super::*;

/// A row with invented figures, at the published connections and waits.
pub(super) fn row(part: PagePart, server: &str, workers: Option<usize>, requests_per_s: f64) -> PageRow {
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
    let key = Key { part, server: server.to_owned(), workers, page: PageSource::Memory, round: 1 };
    PageRow { key, sample: Sample { figures, published_as: None, bounds, details: Details::default() } }
}

/// A line of a record that was written before there were pages from files, rounds and details.
#[test]
fn earlier_records_have_the_page_in_memory_and_one_round() {
    let row = row(PagePart::Sweep, "smol", Some(8), 499.0);
    let mut line = serde_json::to_value(&row).unwrap();
    let costs = ["cpu_us_per_request", "peak_memory_bytes", "page_bytes", "received_bytes", "phases"];
    for field in ["page", "round"].into_iter().chain(costs) {
        assert!(line.as_object_mut().unwrap().remove(field).is_some(), "{field}");
    }
    assert_eq!(serde_json::from_value::<PageRow>(line).unwrap(), row);
    let derived = record::cpu_us(&row).unwrap();
    assert!((derived - 0.1 / 499.0 * 1e6).abs() < 1e-6, "{derived}");
}

#[test]
fn medians_are_of_the_rounds_of_one_server() {
    let of = |workers, round, requests_per_s| {
        let mut row = row(PagePart::Twins, "a", Some(workers), requests_per_s);
        (row.key.round, row.sample.published_as) = (round, Some("a".into()));
        row.sample.details.peak_memory_bytes = Some(round as u64);
        row
    };
    let rows = [of(1, 1, 10.0), of(2, 1, 5.0), of(1, 2, 30.0), of(1, 3, 20.0), row(PagePart::Sweep, "a", Some(1), 1.0)];
    let medians = record::medians(&rows, PagePart::Twins);
    let seen: Vec<_> = medians.iter().map(|row| (row.key.workers, row.sample.figures.requests_per_s)).collect();
    assert_eq!(seen, [(Some(1), 20.0), (Some(2), 5.0)]);
    let Sample { published_as, details, .. } = &medians[0].sample;
    assert_eq!((published_as.as_deref(), details.peak_memory_bytes), (Some("a"), Some(2)));
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
