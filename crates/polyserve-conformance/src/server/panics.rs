//! Panics in the service: an error for that client, and no effect on others. Those of single requests are dialogues of the
//! [wire corpus](crate::wire).

use super::prelude::*;

/// If a completer is dropped, the answer is the default of its promise.
pub(super) fn a_dropped_completer_answers(subject: &ServerSubject) {
    let (_live, held_answers, mut client) = hold_one(subject, defaults());
    held_answers.drop_all();
    check_problem(&client.expect(503));
}

/// A server still serves after more panics than it has workers, one by one and pipelined.
pub(super) fn more_panics_than_workers_leave_a_serving_server(subject: &ServerSubject) {
    let live = subject.live(PanickingService::shared(), subject.with_workers(2));
    for n in 0..20 {
        let path = ["/call", "/later", "/woken", "/visit", "/partly"][n % 5];
        live.ask(&get(path), 500);
    }
    let mut client = live.sending(&[get("/"), get("/call"), get("/call")].concat());
    client.expect(200);
    let first = client.expect(500);
    if !first.closes() {
        client.expect(500);
    }
    drop(client);
    for _ in 0..10 {
        live.ask(&get("/"), 200);
    }
}
