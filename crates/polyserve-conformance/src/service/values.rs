//! Values that are stored without loss, and errors that repeat little.

use polyserve_core::EntityService;

use super::Unconnected;
use crate::history::mixed;
use crate::repo::Reference;
use crate::server::status_table::ONE;
use crate::server::wire::{get, put, with_body};

/// A value round-trips bit for bit: integers, the smallest and the largest numbers, and numbers that are hard to parse.
pub(super) fn a_value_comes_back_bit_for_bit() {
    let live = Unconnected::new(EntityService::<_>::new(Reference::default()));
    let mut values = vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        5.0,
        0.1,
        1.0 / 3.0,
        60.750_847,
        1e15,
        1e16,
        1e21,
        1e22,
        1e23,
        9_007_199_254_740_993.0,
        5e-324,
        2.225_073_858_507_201e-308,
        f64::MIN_POSITIVE,
        f64::MAX,
        f64::MIN,
        f64::EPSILON,
    ];
    values.extend((0..200).map(|number| f64::from_bits(mixed(number))).filter(|value| value.is_finite()));
    for value in values {
        for form in [format!("{value:?}"), format!("{value:e}")] {
            live.exchange(&put("/", &format!(r#"{{"id":1,"description":"","value":{form}}}"#)));
            let text = live.ask(&get("/1"), 200).text();
            let digits = text.split("\"value\":").nth(1).and_then(|rest| rest.strip_suffix('}'));
            let parsed: f64 = digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(parsed.to_bits(), value.to_bits(), "{form} came back as {text}");
        }
    }
}

/// A description round-trips: empty, long, with quotes, with control characters, and with characters of every Unicode plane.
pub(super) fn a_description_comes_back_whole() {
    let live = Unconnected::new(EntityService::<_>::new(Reference::default()));
    let long = "long \u{2603} \" \\ ".repeat(5_000);
    for text in [
        "",
        "\"",
        "\\",
        "\\n",
        "a\r\n\t\u{8}\u{c}\0\u{1f}\u{7f}",
        "\u{e9}\u{2028}\u{ffff}\u{1f980}",
        "</script>",
        &long,
    ] {
        let entity = serde_json::json!({"id": 1, "description": text, "value": 1.5});
        live.exchange(&put("/", &entity.to_string()));
        let got: serde_json::Value = serde_json::from_slice(&live.ask(&get("/1"), 200).body).expect("it is JSON");
        assert_eq!(got, entity);
    }
}

/// No error repeats more than 100 bytes of the request, from its head or its body.
pub(super) fn errors_do_not_echo_the_request() {
    let live = Unconnected::new(EntityService::<_>::new(Reference::default()));
    let z = "z".repeat(5_000);
    for (request, status) in [
        (get(&format!("/{z}")), 400),
        (get(&format!("/{z}/{z}")), 404),
        (with_body("PUT", "/", &format!("Content-Encoding: {z}\r\n"), ONE.as_bytes()), 415),
        (put("/", &format!(r#"{{"id":"{z}","description":"d","value":2}}"#)), 422),
        (put("/", &format!(r#"{{"id":1,"description":"d","{z}":1,"{z}":2}}"#)), 422),
        (put("/", &format!(r#"{{"id":1,"description":"d","value":2,"{z}"}}"#)), 400),
        (put("/", &z), 400),
        (get(&format!("/{}", "9".repeat(5_000))), 400),
    ] {
        let text = live.ask(&request, status).text();
        let echoed = text.matches('z').count().max(text.matches('9').count());
        assert!(echoed <= 100, "{echoed} bytes are echoed: {text}");
    }
}
