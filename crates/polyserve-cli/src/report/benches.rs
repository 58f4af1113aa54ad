//! The records of `cargo bench -p polyserve-benches`: a table for each group of benchmarks, for each load on servers in the benches'
//! process, and for the executors.

use polyserve_bench::benches::BenchLine;
use polyserve_bench::experiment::Recorded;
use polyserve_bench::experiment::distinct;
use polyserve_bench::journal::of_kind;
use polyserve_bench::report::figures::count;
use polyserve_bench::report::{Summary, Table};
use serde::Deserialize;
use serde_json::Value;

/// A server under a shape of load. The client is in the same process.
#[derive(Debug, Deserialize)]
struct ServerLine {
    shape: String,
    server: String,
    requests_per_s: f64,
    requests_per_cpu_s: f64,
    client_cores: f64,
    server_cores: f64,
}

/// The tables of the lines.
pub(super) fn recorded(lines: &[Value]) -> anyhow::Result<Recorded> {
    let benches: Vec<BenchLine> = of_kind(lines, BenchLine::KIND)?;
    let servers: Vec<ServerLine> = of_kind(lines, "server")?;
    let mut tables = Vec::new();
    for group in distinct(benches.iter().map(|bench| bench.group.as_str())) {
        let mut group_benches: Vec<&BenchLine> = benches.iter().filter(|bench| bench.group == group).collect();
        group_benches.sort_by(|a, b| a.ns.total_cmp(&b.ns));
        let table = Table::of_columns(
            &group_benches,
            &[
                ("benchmark", &|bench| bench.bench.clone()),
                ("ns/operation, median", &|bench| time(bench.ns)),
                ("95 %", &|bench| format!("[{}, {}]", time(bench.low_ns), time(bench.high_ns))),
            ],
        );
        tables.push((group.to_owned(), table));
    }
    for shape in distinct(servers.iter().map(|server| server.shape.as_str())) {
        let mut shape_servers: Vec<&ServerLine> = servers.iter().filter(|server| server.shape == shape).collect();
        shape_servers.sort_by(|a, b| b.requests_per_s.total_cmp(&a.requests_per_s));
        let table = Table::of_columns(
            &shape_servers,
            &[
                ("server", &|server| server.server.clone()),
                ("req/s", &|server| count(server.requests_per_s)),
                ("req/server CPU s", &|server| count(server.requests_per_cpu_s)),
                ("client (cores)", &|server| format!("{:.2}", server.client_cores)),
                ("server (cores)", &|server| format!("{:.2}", server.server_cores)),
            ],
        );
        tables.push((format!("servers in process: {shape}"), table));
    }
    Ok(Recorded { summary: Summary { tables, ..Summary::default() }, incomplete: None })
}

/// The dispatch of jobs by an executor, measured in turn with the others.
#[derive(Debug, Deserialize)]
struct ExecutorLine {
    executor: String,
    ns_a_job: f64,
    of_rayon: f64,
    quartiles: String,
}

/// The table of the record of the executors.
pub(super) fn dispatched(lines: &[Value]) -> anyhow::Result<Recorded> {
    let executors: Vec<ExecutorLine> = of_kind(lines, "executor")?;
    let table = Table::of_columns(
        &executors,
        &[
            ("executor", &|line| line.executor.clone()),
            ("ns/job, median", &|line| time(line.ns_a_job)),
            ("time as a share of rayon's, median", &|line| format!("{:.2}", line.of_rayon)),
            ("quartiles", &|line| line.quartiles.clone()),
        ],
    );
    let tables = vec![("dispatch of a job".to_owned(), table)];
    Ok(Recorded { summary: Summary { tables, ..Summary::default() }, incomplete: None })
}

fn time(ns: f64) -> String {
    if ns < 100.0 { format!("{ns:.2}") } else { count(ns) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn groups_and_servers_have_tables() {
        let bench = |group: &str, bench: &str, ns: f64| json!({"kind": "bench", "group": group, "bench": bench, "ns": ns, "low_ns": ns - 1.0, "high_ns": ns + 1.0});
        let server = json!({
            "kind": "server", "shape": "get", "server": "smol", "requests_per_s": 5000.0, "requests_per_cpu_s": 9000.0,
            "client_cores": 1.0, "server_cores": 0.5,
        });
        let lines =
            [bench("repos/get", "slow", 1500.0), bench("repos/get", "fast", 15.5), bench("hash", "a", 2.0), server];
        let tables = recorded(&lines).unwrap().summary.tables;
        let names: Vec<&str> = tables.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["repos/get", "hash", "servers in process: get"]);
        let text = tables[0].1.markdown();
        assert!(text.find("fast").unwrap() < text.find("slow").unwrap(), "{text}");
        assert!(text.contains("| 1,500 | ") && text.contains("| 15.50 | "), "{text}");
        assert!(tables[2].1.markdown().contains("| smol | 5,000 | 9,000 | 1.00 | 0.50 |"));
    }

    #[test]
    fn executors_have_a_table_with_units() {
        let line = json!({"kind": "executor", "executor": "mpsc_pool", "ns_a_job": 83.5, "of_rayon": 0.7, "quartiles": "0.67 to 0.85"});
        let table = dispatched(&[line]).unwrap().summary.tables.remove(0);
        assert_eq!(table.0, "dispatch of a job");
        let text = table.1.markdown();
        assert!(
            text.contains("ns/job, median") && text.contains("| mpsc_pool | 83.50 | 0.70 | 0.67 to 0.85 |"),
            "{text}"
        );
    }
}
