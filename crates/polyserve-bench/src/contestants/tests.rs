use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use super::*;
use crate::allocator;
use crate::fixtures::TestDir;
use crate::launch::process::Process;
use crate::machine::Cores;

fn named(name: &str) -> Program {
    Registry::repository().named(name).unwrap().clone()
}

fn arguments(launch: &Launch) -> Vec<String> {
    launch.args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect()
}

/// A registry of one file in a directory of its own, which has these other files.
fn registry(dir: &Path, entries: &str, files: &[(&str, &str)]) -> Registry {
    for (file, text) in files.iter().chain([&("my.toml", entries)]) {
        let file = dir.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    Registry::load(Some(&dir.join("my.toml"))).unwrap()
}

#[test]
fn each_has_a_name_of_its_own_and_sources() {
    let all = Registry::repository();
    for program in &all.programs {
        assert_eq!(all.named(program.name()), Some(program));
        assert_eq!(all.named(program.short_name()), Some(program));
        let Keys { directory, source, build, .. } = &*program.0;
        let directory = Path::new(directory);
        assert!(directory.is_dir(), "{program:?}");
        let file = match build.first().map(String::as_str) {
            Some("go") => directory.join("cmd").join(source),
            Some("cargo") if !source.is_empty() => directory.join("src/bin").join(format!("{source}.rs")),
            _ => directory.to_owned(),
        };
        assert!(file.exists(), "{}", file.display());
    }
    assert_eq!(all.named("peer:hyper"), Some(&named("hyper")));
    for unknown in ["peer/nginx", "entity-rwmutex", "twin", "go/entity"] {
        assert_eq!(all.named(unknown), None);
    }
    let servers: Vec<_> = all.servers().map(Program::short_name).collect();
    let peers = ["hyper", "axum", "actix-web", "ntex", "warp", "may_minihttp"];
    let others = ["go/nethttp", "go/fasthttp", "nginx"];
    assert_eq!(servers, [&peers[..], &others[..]].concat());
    assert_eq!(named("go/entity-syncmap").shape(), Shape::OnePerThread);
    assert_eq!(named("go/fasthttp").shape(), Shape::Multiplexed);
    assert_eq!(named("ladder/go-fasthttp").serves(), &Serves::Welcome);
}

/// The rungs of the listing have their published names, and build directories with their settings.
#[test]
fn the_published_rungs_are_contestants() {
    for line in crate::published::LADDER.lines().filter(|line| line.starts_with("warp") && !line.contains("waker")) {
        let name = line.split(',').next().unwrap();
        let rung = named(&format!("ladder/{}", name.replacen("warp", "listing", 1)));
        let target = rung.0.target.rsplit('/').next().unwrap();
        assert_eq!((rung.serves(), rung.0.source.as_str()), (&Serves::Welcome, "welcome"));
        assert_eq!(name.strip_prefix("warp+").unwrap_or("base"), target, "{name}");
    }
}

/// Each rung has one step more than another one of the same server, in the directory of the steps of its build.
#[test]
fn each_rung_has_one_step_more_than_another() {
    let registry = Registry::repository();
    let is_rung = |one: &&Program| {
        one.0.name.starts_with("ladder/") && one.0.build.first().is_some_and(|script| script == "./build.sh")
    };
    let rungs: Vec<&Program> = registry.programs.iter().filter(is_rung).collect();
    assert!(rungs.len() > 20, "{}", rungs.len());
    for rung in rungs {
        let name = rung.0.name.as_str();
        let (below, _) = name.rsplit_once('+').unwrap_or((name, ""));
        assert!(registry.named(below).is_some(), "{name}: there is no {below}");
        let steps = name.split_once('+').map_or("", |(_, steps)| steps);
        // warp has flags for two of the steps.
        let is_built = |step: &&str| rung.0.source != "warp" || !["pipeline-flush", "date-each"].contains(step);
        let built = steps.split('+').filter(|step| !step.is_empty()).filter(is_built).collect::<Vec<_>>().join("+");
        let target = rung.0.target.rsplit('/').next().unwrap();
        assert_eq!(if built.is_empty() { "base" } else { built.as_str() }, target, "{name}");
    }
}

#[test]
fn every_patch_of_the_ladder_applies() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/ladder/build.sh");
    let output = std::process::Command::new(script).arg("--check").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The listings of the entity server: the same program, quiet or printing, in a release or a debug build.
#[test]
fn the_listings_of_the_entity_server() {
    let print = |name: &str| arguments(&named(name).unbuilt(None).unwrap()).iter().any(|arg| arg.contains("print="));
    let is_debug = |name: &str| !named(name).build_command("").unwrap().contains(&String::from("--release"));
    let rust = ["twin/entity", "twin/entity-printing", "twin/entity-debug", "twin/entity-debug-printing"];
    assert_eq!(rust.map(print), [false, true, false, true]);
    assert_eq!(rust.map(is_debug), [false, false, true, true]);
    assert_eq!(
        ["go/entity-rwmutex", "go/entity-syncmap", "go/entity-rwmutex-printing"].map(print),
        [false, false, true]
    );
    for name in rust.into_iter().chain(["go/entity-rwmutex"]) {
        assert!(named(name).keeps_entities() && named(name).is_without_date(), "{name}");
    }
    assert!(!named("go/nethttp").is_without_date());
    let gc_off = named("go/entity-rwmutex-printing-gc-off");
    assert_eq!(gc_off.unbuilt(None).unwrap().env, [("GOGC".into(), "off".into())]);
    assert!(print(gc_off.name()) && named("go/entity-rwmutex-printing").unbuilt(None).unwrap().env.is_empty());
    for name in rust.into_iter().chain(["go/entity-rwmutex", gc_off.name()]) {
        assert_eq!((named(name).shape(), named(name).max_concurrent(Some(3), 2)), (Shape::OnePerThread, Some(3)));
        assert!(named(name).max_concurrent(None, 1) < named(name).max_concurrent(None, 2), "{name}");
        assert!(Registry::repository().servers().all(|server| server.name() != name), "it takes part by its name only");
    }
    assert_eq!(named("go/nethttp").max_concurrent(Some(3), 2), None);
}

#[test]
fn command_lines() {
    let launch = named("go/nethttp").launch(Path::new("/nethttp"), Some(8)).unwrap();
    let args = ["-json", "-until-stdin-ends", "-listen=127.0.0.1:0", "-workers=8"];
    assert_eq!((arguments(&launch), launch.address), (args.map(String::from).to_vec(), AddressFrom::Json));
    let syncmap = ["-until-stdin-ends", "-listen=127.0.0.1:0", "-store=syncmap", "-workers=8"];
    assert_eq!(arguments(&named("go/entity-syncmap").unbuilt(Some(8)).unwrap()), syncmap);
    let pool = ["--until-stdin-ends", "--listen=127.0.0.1:0", "--workers=100"];
    assert_eq!(arguments(&named("twin/thread_pool").unbuilt(None).unwrap()), pool);
    let deno = arguments(&named("twin/deno").unbuilt(None).unwrap());
    assert_eq!(deno[..5], ["run", "--quiet", "--no-config", "--allow-net", "--allow-read"]);
    assert!(deno[5].ends_with("/target/deno/page.mjs"), "{deno:?}");
    let java = arguments(&named("twin/java").unbuilt(None).unwrap());
    assert!(java[0].ends_with("/benches/peers/java/Page.java"), "{java:?}");
    assert_eq!(java[1..], pool);
}

/// Entries in place of those of frameworks in Rust, with the sources in this directory.
fn rust_entries(directory: &str, names: &[&str]) -> String {
    let base = format!(
        "[base.few]\ndirectory = \"{directory}\"\ntarget = \"target\"\nprogram = \"{{target}}/debug/{{source}}\"\nready = \"json\"\n\
         build = [\"cargo\", \"build\", \"--locked\", \"--target-dir\", \"{{target}}\", \"--bin\", \"{{source}}\"]\n\
         variants = {{ jemalloc = [\"--features\", \"jemalloc\"] }}\n"
    );
    let entry = |name: &&str| format!("[[contestant]]\nname = \"peer/{name}\"\nbase = \"few\"\nsource = \"{name}\"\n");
    base + &names.iter().map(entry).collect::<String>()
}

#[test]
fn a_contestant_without_sources_is_listed() {
    let dir = TestDir::new("contestants-nowhere");
    let registry = registry(&dir, &rust_entries("/nonexistent", &["warp"]), &[]);
    let built = build([registry.named("warp").unwrap()], allocator::SYSTEM, &Shutdown::new());
    let why = built[0].launch(None).unwrap_err();
    assert!(why.contains("/nonexistent") && why.contains("holds no "), "{why}");
}

#[test]
fn what_is_not_installed_is_the_reason_and_a_missing_file_too() {
    let dir = TestDir::new("contestants-absent");
    let entries = "[[contestant]]\nname = \"a\"\nrequires = [\"no-such-language\", \"--version\"]\nprogram = \"x\"\nready = \"json\"\n\
         [[contestant]]\nname = \"b\"\nprogram = \"bin/none\"\nready = \"json\"\n";
    let registry = registry(&dir, entries, &[]);
    let built = build(["a", "b"].map(|name| registry.named(name).unwrap()), "any", &Shutdown::new());
    assert_eq!((built[0].file.clone(), built[0].is_absent), (Err("no-such-language is not installed".into()), true));
    assert!(built[1].launch(None).unwrap_err().contains("bin/none") && !built[1].is_absent);
}

/// A package with one good binary and one that does not compile.
#[test]
fn a_broken_program_does_not_prevent_the_others() {
    let dir = TestDir::new("contestants-rust");
    let manifest =
        "[package]\nname = \"few\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n[features]\njemalloc = []\n";
    let names = ["hyper", "axum", "warp"];
    let registry = registry(
        &dir,
        &rust_entries(".", &names),
        &[
            ("Cargo.toml", manifest),
            ("Cargo.lock", "version = 4\n\n[[package]]\nname = \"few\"\nversion = \"0.1.0\"\n"),
            ("src/bin/hyper.rs", "fn main() { assert!(cfg!(feature = \"jemalloc\")); }"),
            ("src/bin/warp.rs", "fn main() { does not compile }"),
        ],
    );
    let built = build(names.map(|name| registry.named(name).unwrap()), allocator::JEMALLOC, &Shutdown::new());
    let [hyper, axum, warp] = built.as_slice() else { panic!("{built:?}") };
    let program = hyper.file.as_ref().unwrap();
    assert!(Command::new(program).status().unwrap().success(), "it has the feature of the allocator");
    let why = |built: &BuiltProgram| built.launch(None).unwrap_err();
    assert!(why(axum).contains("axum"), "{}", why(axum));
    assert!(why(warp).starts_with("error"), "{}", why(warp));
}

/// A module with one good program and one that does not compile.
#[test]
fn a_broken_program_in_go_does_not_prevent_the_others() {
    if let Err(why) = named("go/nethttp").is_installed() {
        let _ = writeln!(io::stderr(), "not run: a_broken_program_in_go_does_not_prevent_the_others: {why}");
        return; // written directly, because the test harness captures `eprintln`
    }
    let dir = TestDir::new("contestants-go");
    let entries = [("twin", ""), ("nethttp", ""), ("tasks", ""), ("field", "fieldtrack")].map(|(name, experiment)| {
        let source = if experiment.is_empty() { name } else { "twin" };
        format!(
            "[[contestant]]\nname = \"{name}\"\nsource = \"{source}\"\ntarget = \"t\"\nready = \"json\"\n\
             build = [\"go\", \"build\", \"-o\", \"{{program}}\", \"./cmd/{{source}}\"]\n\
             build_env = {{ GOEXPERIMENT = \"{experiment}\" }}\nprogram = \"{{target}}/{name}\"\n"
        )
    });
    let files = [
        ("go.mod", "module few\n\ngo 1.24\n"),
        ("cmd/twin/main.go", "package main\n\nfunc main() {}\n"),
        ("cmd/tasks/main.go", "package main\n\nfunc main() { missing() }\n"),
    ];
    let registry = registry(&dir, &entries.concat(), &files);
    let asked = ["twin", "nethttp", "tasks", "field"].map(|name| registry.named(name).unwrap());
    let built = build(asked, "any", &Shutdown::new());
    let [twin, nethttp, tasks, experiment] = built.as_slice() else { panic!("{built:?}") };
    let has_experiment = |built: &BuiltProgram| {
        let output = Command::new("go").args(["version", "-m"]).arg(built.file.as_ref().unwrap()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains("GOEXPERIMENT=fieldtrack")
    };
    assert!(has_experiment(experiment) && !has_experiment(twin));
    assert!(Command::new(twin.file.as_ref().unwrap()).status().unwrap().success());
    let why = |built: &BuiltProgram| built.launch(None).unwrap_err();
    assert!(why(nethttp).contains("nethttp"), "{}", why(nethttp));
    assert!(why(tasks).contains("missing"), "{}", why(tasks));
}

#[test]
fn a_program_takes_only_the_workers_that_its_entry_allows() {
    assert!(named("nginx").unbuilt(Some(2)).unwrap_err().contains("one worker"));
    named("nginx").unbuilt(Some(1)).unwrap();
    assert!(named("twin/node").unbuilt(Some(1)).unwrap_err().contains("no key workers_arg"));
}

#[test]
fn a_variant_is_arguments_of_the_build() {
    let command = |name: &str, variant| named(name).build_command(variant).unwrap().join(" ");
    let best = "--features mimalloc --config profile.release.lto=\"fat\" --config profile.release.codegen-units=1";
    for name in ["hyper", "polyserve"] {
        assert!(command(name, "best").ends_with(best), "{}", command(name, "best"));
        assert!(command(name, allocator::JEMALLOC).ends_with("--features jemalloc"));
        assert!(!command(name, allocator::SYSTEM).contains("--features"));
    }
    assert_eq!(command("go/nethttp", "best"), command("go/nethttp", allocator::SYSTEM));
}

fn ask(addr: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn nginx_answers_and_ends() {
    let built = build([&named("nginx")], "any", &Shutdown::new());
    let launch = match built[0].launch(None) {
        Ok(launch) => launch,
        Err(why) => {
            let _ = writeln!(io::stderr(), "not run: nginx_answers_and_ends: {why}"); // past the capture of the test harness
            return;
        }
    };
    let process = Process::start(&launch, &Cores::available().unwrap()).unwrap();
    let addr = process.addr;
    for (path, status, body) in [("/1", "200", BODY), ("/-17", "200", BODY)] {
        let answer = ask(addr, path);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.ends_with(body), "{answer}");
        assert!(answer.contains("Content-Type: application/json\r\n"), "{answer}");
    }
    assert!(ask(addr, "/none").starts_with("HTTP/1.1 404 "));
    process.end().unwrap();
    assert!(TcpStream::connect(addr).is_err());
}
