//! The entity service.

use super::probe::{Probe, ask, brief, first_line, get, has_status, put, request};

const ENTITY: &str = r#"{"id":-7001,"description":"a \"b\" c","value":60.750847}"#;
const PATH: &str = "/-7001";

/// A PUT of a new entity is answered with 201 and its `Location`; a PUT of a known entity is answered with 200. The id may be
/// negative.
pub(super) fn put_creates_and_replaces(probe: &Probe) -> Result<(), String> {
    // An earlier run may have stored the entity.
    let body = |id: u64| format!(r#"{{"id":-{id},"description":"d","value":1.5}}"#);
    let mut client = probe.client()?;
    for id in 7_100..7_200 {
        if ask(&mut client, &get(&format!("/-{id}")))?.status != 404 {
            continue;
        }
        let created = ask(&mut client, &put(&body(id)))?;
        has_status(&put(&body(id)), &created, &[201])?;
        let location = created.header("Location").map(str::to_owned);
        has_status(&put(&body(id)), &ask(&mut client, &put(&body(id)))?, &[200])?;
        return match location {
            Some(path) if path == format!("/-{id}") => Ok(()),
            other => Err(format!("the Location of a 201 is {other:?}")),
        };
    }
    Err(String::from("every entity from -7100 to -7199 is there already"))
}

/// A GET answers with the entity's JSON, byte for byte.
pub(super) fn get_shows_the_entity(probe: &Probe) -> Result<(), String> {
    probe.expect(&put(ENTITY), &[200, 201])?;
    let response = probe.expect(&get(PATH), &[200])?;
    let (text, media_type) = (response.text(), response.header("Content-Type"));
    match media_type {
        Some("application/json") if text == ENTITY => Ok(()),
        _ => Err(format!("it shows {text} as {media_type:?}")),
    }
}

/// An absent entity is answered with 404.
pub(super) fn absent_entities_are_not_found(probe: &Probe) -> Result<(), String> {
    probe.expect(&get("/-7998"), &[404]).map(drop)
}

/// The answer to HEAD has the status and the length of the answer to GET, and no body.
pub(super) fn head_is_get_without_the_body(probe: &Probe) -> Result<(), String> {
    probe.expect(&put(ENTITY), &[200, 201])?;
    let mut client = probe.client()?;
    let head = request("HEAD", PATH, "");
    client.send(&head).map_err(|error| error.to_string())?;
    let response = client.receive_head().map_err(|failure| format!("{} to {}", first_line(&failure), brief(&head)))?;
    has_status(&head, &response, &[200])?;
    let length = ENTITY.len().to_string();
    if response.header("Content-Length") != Some(length.as_str()) {
        return Err(format!("a HEAD says Content-Length {:?}", response.header("Content-Length")));
    }
    // A body would come before the next answer.
    has_status(&get(PATH), &ask(&mut client, &get(PATH))?, &[200])
}

/// A segment that is no i64 is answered with 400.
pub(super) fn a_path_that_is_no_id_is_a_bad_request(probe: &Probe) -> Result<(), String> {
    ["/x", "/1.5", "/9223372036854775808"].iter().try_for_each(|path| probe.expect(&get(path), &[400]).map(drop))
}

/// Another method on these paths is answered with 405, with `Allow`.
pub(super) fn other_methods_are_not_allowed(probe: &Probe) -> Result<(), String> {
    for path in ["/", PATH] {
        let post = request("POST", path, "Content-Length: 0\r\n");
        let response = probe.expect(&post, &[405])?;
        if response.header("Allow").is_none() {
            return Err(format!("the 405 to {} has no Allow", brief(&post)));
        }
    }
    Ok(())
}

/// A body that is not JSON is answered with 400.
pub(super) fn a_body_that_is_not_json_is_a_bad_request(probe: &Probe) -> Result<(), String> {
    ["{", "nonsense", ""].iter().try_for_each(|body| probe.expect(&put(body), &[400]).map(drop))
}

/// A body that is JSON and no entity is answered with 422.
pub(super) fn json_that_is_no_entity_is_unprocessable(probe: &Probe) -> Result<(), String> {
    let bodies = [r#"{"id":-7001,"value":2}"#, "[]", r#"{"id":"-7001","description":"d","value":2}"#];
    bodies.iter().try_for_each(|body| probe.expect(&put(body), &[422]).map(drop))
}
