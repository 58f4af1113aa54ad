//! A recommendation of ten rounds. It is the longest test of the command, a minute of measurements: tests start in the order of their
//! names, so this one stands first and runs next to the others.

use serde_json::Value;

use super::{Dir, array, has, json, printed};

/// Ten rounds decide: the choice is worded as one, unless the client was the limit.
#[test]
fn enough_rounds_are_a_decision() {
    let dir = Dir::new("recommend-decided");
    let line =
        "recommend --defaults --rounds=10 --time=5m --keys=10 --connections=4 --repos=two_level --p99=1h --rate=500";
    let line =
        format!("{line} --servers=tokio_tcp,pool_server --cpu-per-request=50us --blocking-wait=100us --out={dir}");
    let report = json(&line);
    assert_eq!(
        (&report["decided"], &report["rounds"], &report["goal_met"]),
        (&true.into(), &10.into(), &true.into()),
        "{report}"
    );
    let (rate, half_of) = (&report["rate"]["requests_per_s"], &report["rate"]["half_of"]);
    assert_eq!((rate.as_f64(), half_of), (Some(500.0), &Value::Null));
    let settings = array(&report["settings"]);
    assert_eq!(settings.len(), 2, "of both servers: {report}");
    for of_server in settings {
        let flags: Vec<&str> = array(&of_server[1]).iter().filter_map(Value::as_str).collect();
        assert!(flags.contains(&"--spin=50000") && flags.contains(&"--blocking-wait=100us"), "{of_server}");
        assert!(flags.iter().any(|flag| flag.starts_with("--max-connections=")), "{of_server}");
    }
    let ranked: Vec<&Value> = array(&report["rows"]).iter().filter(|row| !row["rank"].is_null()).collect();
    assert_eq!(ranked.len(), 2, "{report}");
    for row in ranked {
        let rounds = &row["of_first"]["rounds"];
        assert!(rounds.is_null() || *rounds == 10, "{row}");
        assert!(row["p99_interval"]["low"].is_number(), "{row}");
    }
    let capacity = &array(&report["capacity"])[0];
    assert_eq!((&capacity["goal_us"], &capacity["searches"]), (&3_600_000_000_u64.into(), &6.into()), "{capacity}");
    assert!(capacity["requests_per_s"].as_f64() > Some(0.0), "{capacity}");
    let first = report["choice"]["server"].as_str().unwrap();
    assert_eq!(report["client_full"], false, "a request costs the server at least 150 us: {report}");
    let output = printed(&line);
    assert!(output.starts_with(&format!("use {first}/two_level\nit keeps a p99 of ")), "{output}");
    let goal = ["of those that keep a p99 of 3600s, ", "99 % of the requests within 3600s"];
    has(&output.replace("\n   ", " "), &goal);
    has(&output, &["500 req/s (poisson), as given", "measured with: tokio_tcp "]);
}
