//! Servers of a user's own file of contestants.

use std::io::Write as _;

use super::{Dir, array, ended, has, json, misused, one, parsed, text, texts};

pub(super) const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/contestants/python.toml");
const BENCH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/contestants/python-bench.toml");

const TINY: &str = "--repos=std_mutex --rounds=1 --slice=30ms --warm-up=20ms --connections=2 --no-latency";

/// Whether the example's language is installed. If not, the test is reported as not run.
pub(super) fn has_python(test: &str) -> bool {
    let python = polyserve_bench::contestants::Registry::load(Some(EXAMPLE.as_ref())).unwrap();
    let installed = python.named("python").unwrap().is_installed();
    if let Err(why) = &installed {
        let _ = writeln!(std::io::stderr(), "not run: {test}: {why}"); // past the harness's capture
    }
    installed.is_ok()
}

/// A server in Python is started, verified and ranked, among servers of the catalog and as the baseline.
#[test]
fn a_server_in_another_language_takes_part() {
    if !has_python("a_server_in_another_language_takes_part") {
        return;
    }
    let mix = "--mix=get=3,put=1 --keys=10";
    let ranking = json(&format!("compare --contestants={EXAMPLE} --servers=python,sequential {mix} {TINY}"));
    assert_eq!(array(&ranking["rows"]).len(), 4, "with the baseline again and the limit: {ranking}");
    let row = |name: &str| one(&ranking["rows"], "name", name);
    assert!(row("python")["requests_per_s"].as_f64() > Some(0.0), "{ranking}");
    assert!(row("sequential/std_mutex")["requests_per_s"].as_f64() > Some(0.0), "{ranking}");
    let contract = one(&ranking["contracts"], "name", "python");
    assert!(!array(&contract["failed"]).is_empty(), "it has no PATCH: {ranking}");
    // Regression test: it does not announce the close of a connection, and was wrong.
    let alone =
        json(&format!("compare --contestants={EXAMPLE} --servers=python --baseline=python --no-keepalive {TINY}"));
    assert_eq!(texts(array(&alone["rows"]), "name")[..2], ["python", "python (again)"], "{alone}");
}

/// The example's definition: the server in Python has rows, its contract is listed, and the claim about it is judged. A quick
/// run judges no claim.
#[test]
fn a_definition_names_a_server_of_ones_own() {
    if !has_python("a_definition_names_a_server_of_ones_own") {
        return;
    }
    let dir = Dir::new("contestants-bench");
    let line =
        format!("bench {BENCH} --contestants={EXAMPLE} --set mode.slice=30ms --set mode.warm_up=20ms --out={dir}");
    let report = json(&line);
    let python = one(&report["rows"], "contestant", "python");
    assert!(python["figures"]["requests_per_s"].as_f64() > Some(0.0) && python["rounds"] == 10, "{python}");
    let contract = one(&report["contracts"], "name", "python");
    assert!(!array(&contract["failed"]).is_empty(), "it has no PATCH: {report}");
    let [claim] = array(&report["claims"]) else { panic!("{report}") };
    has(claim["figure"].as_str().unwrap(), &["python "]);
    has(&text(&ended(0, &line).stdout), &["the server in Python serves fewer requests", "here: python "]);
    // Regression test: the record had the server's name, but not how it was started.
    let changed = std::fs::read_to_string(EXAMPLE).unwrap() + "env = { PYTHONOPTIMIZE = \"1\" }\n";
    dir.write(
        "changed.toml",
        changed.replace("{directory}", concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/contestants")),
    );
    has(&misused(&line.replace(EXAMPLE, &format!("{dir}/changed.toml"))), &["its plan is", "PYTHONOPTIMIZE"]);
    let quick = json(&format!("{line}-quick --quick"));
    assert!(array(&quick["claims"]).is_empty() && quick["answer"].as_str().unwrap().contains("quick part"), "{quick}");
    has(&misused(&format!("bench {BENCH}")), &["python-bench.toml:7: contestants: there is no peer:python"]);
}

/// The service `echo` in Python. Its second argument ends each body: with one, all answers are wrong.
const ECHO: &str = r#"
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))) + sys.argv[2].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_):
        pass

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

/// A server in Python that answers the requests to a service of the program's own is ranked, by `compare` and by a definition. One
/// with other answers is not.
#[test]
fn a_server_in_another_language_answers_the_requests_to_a_service() {
    if !has_python("a_server_in_another_language_answers_the_requests_to_a_service") {
        return;
    }
    let dir = Dir::new("contestants-service");
    dir.write("echo.py", ECHO);
    dir.write(
        "echo.requests",
        "{\"url\": \"/a\"}\n{\"url\": \"/b\", \"method\": \"POST\", \"body\": \"x{id}\", \"id\": \"1-9\"}\n",
    );
    let entry = |name: &str, end: &str| {
        format!(
            "[[contestant]]\nname = \"{name}\"\nprogram = \"python3\"\nargs = [\"{{directory}}/echo.py\", \"{{port}}\", \"{end}\"]\n\
             ready = \"port\"\nserves = {{ service = \"echo\" }}\n"
        )
    };
    dir.write("mine.toml", entry("right", "") + &entry("wrong", "!"));
    let (file, requests) = (format!("{dir}/mine.toml"), format!("{dir}/echo.requests"));
    let tiny = "--rounds=1 --slice=50ms --warm-up=20ms --connections=2 --no-latency";
    let line = format!(
        "compare --contestants={file} --service=echo --requests={requests} --servers=pool_server,right,wrong {tiny}"
    );
    let ranking = parsed(&ended(1, &format!("{line} --json")));
    let row = |name: &str| one(&ranking["rows"], "name", name);
    assert!(row("right")["requests_per_s"].as_f64() > Some(0.0), "{ranking}");
    let failed = array(&ranking["failed"]);
    assert!(failed.iter().any(|failed| failed["name"] == "wrong") && failed.len() == 1, "{ranking}");
    let definition = "name = \"echoes\"\nrounds = 1\nworkload = { service = \"echo\", requests = \"echo.requests\", connections = 2 }\n\
         contestants = [\"catalog:pool_server\", \"peer:right\"]\nmode = { slice = \"50ms\", warm_up = \"20ms\", latency = false }\n";
    dir.write("echoes.toml", definition);
    let report = json(&format!("bench {dir}/echoes.toml --contestants={file}"));
    let names = texts(array(&report["rows"]), "contestant");
    assert!(names.contains(&"right") && names.contains(&"pool_server/mpsc_pool"), "{report}");
    // Its requests are not those of the entities, and of no other service.
    let entities = format!("compare --contestants={file} --servers=right,sequential {TINY}");
    has(&misused(&entities), &["peer:right does not serve what this mode measures"]);
    dir.write("echoes.toml", definition.replace("peer:right", "peer:hyper"));
    has(
        &misused(&format!("bench {dir}/echoes.toml --contestants={file}")),
        &["echoes.toml:4: contestants", "no serves = { service = \"echo\" }", "there are right, wrong"],
    );
}

/// A server that cannot start is listed with the reason, and the others are measured.
#[test]
fn a_server_that_does_not_run_is_listed() {
    let dir = Dir::new("contestants-broken");
    let file = dir.path("mine.toml");
    let entries = "[[contestant]]\nname = \"unbuilt\"\nbuild = [\"sh\", \"-c\", \"echo error: no sources >&2; exit 1\"]\n\
         program = \"./mine\"\nready = \"json\"\n\
         [[contestant]]\nname = \"ends\"\nprogram = \"sh\"\nargs = [\"-c\", \"echo no port {port} >&2; exit 3\"]\nready = \"port\"\n";
    dir.write("mine.toml", entries);
    let line = format!("compare --contestants={} --servers=sequential,unbuilt,ends --json {TINY}", file.display());
    let ranking = parsed(&ended(1, &line));
    let why = |name: &str| one(&ranking["failed"], "name", name)["why"].as_str().unwrap();
    assert_eq!(why("unbuilt"), "error: no sources");
    has(why("ends"), &["exit status: 3", "no port "]);
    assert!(texts(array(&ranking["rows"]), "name").contains(&"sequential/std_mutex"));
    dir.write("mine.toml", "[[contestant]]\nname = \"mine\"\nprogramm = \"x\"\n");
    has(&misused(&line), &["mine.toml", "line 3", "`programm`"]);
}
