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
    for candidate in array(&report["ranked"]) {
        let settings: Vec<&str> = array(&candidate["settings"]).iter().filter_map(Value::as_str).collect();
        assert!(settings.contains(&"--spin=50000") && settings.contains(&"--blocking-wait=100us"), "{candidate}");
        assert!(settings.iter().any(|flag| flag.starts_with("--max-connections=")), "{candidate}");
        let rounds = &candidate["of_first"]["rounds"];
        assert!(rounds.is_null() || *rounds == 10, "{candidate}");
        assert!(candidate["p99_interval"]["low"].is_number(), "{candidate}");
    }
    let capacity = &array(&report["capacity"])[0];
    assert_eq!((&capacity["goal_us"], &capacity["searches"]), (&3_600_000_000_u64.into(), &6.into()), "{capacity}");
    assert!(capacity["requests_per_s"].as_f64() > Some(0.0), "{capacity}");
    let first = report["ranked"][0]["server"].as_str().unwrap();
    assert_eq!(report["client_full"], false, "a request costs the server at least 150 us: {report}");
    let expected = format!("use {first}/two_level: it keeps 99 % of the requests within 3600s");
    has(
        &printed(&line),
        &[&expected, "500 req/s (poisson), as given", "measured with: tokio_tcp ", "it keeps a p99 of "],
    );
}
