//! Made-up lines of records, for tests.

use crate::journal::FORMAT;
use serde_json::{Value, json};

/// The header of a record.
pub(super) fn header(plan: &Value, server_cores: &str) -> Value {
    json!({
        "kind": "environment", "experiment": super::NAME, "format": FORMAT, "plan": plan, "cpu": "any", "cores": 8,
        "server_cores": server_cores, "client_cores": "4", "kernel": "any", "rustc": "any", "profile": "release",
        "allocator": "any", "commit": "any", "seed": 0, "command": ["polyserve"], "date": "2026-01-01T00:00:00Z",
    })
}

/// The line of a cell: GETs over 10 connections to a pool of 4 workers.
pub(super) fn cell(contestant: &str, lang: &str, control: bool, round: u32) -> Value {
    json!({
        "kind": "cell", "contestant": contestant, "lang": lang, "server": "any", "executor": "any", "repo": "any",
        "variant": "any", "control": control, "method": "get", "pool_size": 4, "requests": 1000, "connections": 10,
        "round": round, "avg_cpu_pct": 90.0, "max_cpu_pct": null, "avg_mem_pct": 0.5, "max_mem_pct": 0.7, "total_s": 5.0,
        "per_request_ms": 0.25, "received_kB_s": 1.0, "sent_kB_s": 1.0, "connect_ms": 0.005, "processing_ms": 0.2,
        "requests_per_s": 1.0, "connect_p50_ms": 1.0, "processing_p50_ms": 1.0, "processing_p99_ms": 1.0,
        "server_cpu_us_per_request": 1.0, "client_busy_pct": 1.0, "avg_resident_kB": 1.0, "max_resident_kB": 1.0,
        "avg_anonymous_kB": null, "samples": 9, "server_answered": 1,
    })
}
