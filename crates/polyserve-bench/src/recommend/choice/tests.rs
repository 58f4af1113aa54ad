use super::super::table;
use super::super::workload::tests::workload;
use super::*;
use crate::bench::SweepCell;
use crate::bench::figures::NamedFigures;
use crate::bench::ranking::{Intervals, RankingEntry};
use crate::experiment::again;
use crate::fixtures::latencies;
use crate::output::INDENT;
use crate::report::{WIDTH, wrapped};
use crate::turn::{Rate, Role};
use polyserve_load::Arrivals;

/// A measurement with this throughput, which varies by 10 % from round to round, and this p99.
fn measurement(round: usize, per_second: f64, p99_ms: f64) -> NamedFigures {
    let drift = 1.0 + 0.1 * (round % 3) as f64;
    let mut figures = latencies(p99_ms * (0.9 + 0.02 * (round % 11) as f64) * 1000.0);
    figures.insert(figures::REQUESTS_PER_S.to_owned(), per_second * drift);
    figures
}

/// The recommendation for candidates of these throughputs and p99s, and with this goal. The first is the baseline.
fn of(goal_ms: Option<f64>, rounds: usize, of: &[(&str, f64, f64)]) -> Recommendation {
    of_repo(goal_ms, rounds, of, "two_level")
}

/// [`of`], over this repo.
fn of_repo(goal_ms: Option<f64>, rounds: usize, of: &[(&str, f64, f64)], repo: &str) -> Recommendation {
    let candidate = |name: &str| Candidate { server: name.into(), repo: repo.into(), workers: None };
    let candidates: Vec<Candidate> = of.iter().map(|(name, ..)| candidate(name)).collect();
    let figures = |per_second: f64, p99_ms: f64| -> Vec<NamedFigures> {
        (0..rounds).map(|round| measurement(round, per_second, p99_ms)).collect()
    };
    let mut contestants: Vec<(String, Role, Vec<NamedFigures>)> = (of.iter().enumerate())
        .map(|(place, (name, per_second, p99_ms))| {
            let role = if place == 0 { Role::Baseline } else { Role::Ranked };
            (candidate(name).name(), role, figures(*per_second, *p99_ms))
        })
        .collect();
    let (_, per_second, p99_ms) = of[0];
    contestants.push((again(&contestants[0].0), Role::Same, figures(per_second * 1.01, p99_ms)));
    let entries: Vec<RankingEntry<'_>> = contestants
        .iter()
        .map(|(name, role, figures)| {
            // The last round was cut short.
            let rounds = figures.iter().map(Some).chain([None]).collect();
            RankingEntry { name: name.clone(), role: *role, bound: None, rounds }
        })
        .collect();
    let goal_us = goal_ms.map(|goal| goal * 1000.0);
    let ranking = Ranking::new(&entries, None, Intervals::FixedRounds { seed: 0 }, goal_us);
    let settings: Vec<(String, Vec<String>)> =
        candidates.iter().map(|one| (one.name(), vec![String::from("--queue=7")])).collect();
    let workload = Workload { p99_goal_ms: goal_ms, ..workload() };
    let basis = Basis {
        catalog: &Catalog::builtin(),
        workload: &workload,
        defaulted: &[],
        candidates: &candidates,
        settings: &settings,
        because: &[],
        cores: ["0,1", "2"].map(|cores| cores.parse().unwrap()),
        time_up: None,
    };
    Recommendation::of(&basis, ranking)
}

/// The ratio to the next candidate, and the ties, are in the answer of the ranking.
#[test]
fn the_first_of_the_ranking_is_the_choice() {
    let recommended = of(None, 12, &[("a", 100.0, 1.0), ("b", 150.0, 1.0), ("c", 149.5, 1.0), ("d", 75.0, 1.0)]);
    let text = recommended.to_string();
    assert!(
        text.starts_with("use b/two_level\n`b/two_level` serves 1.50 [1.50, 1.50] times the requests of"),
        "{text}"
    );
    assert!(text.replace("\n  ", "").contains("no difference was found between it and `c/two_level`"), "{text}");
    assert_eq!((recommended.choice.unwrap().candidate.server.as_str(), recommended.decided), ("b", true));
    let read: Recommendation =
        serde_json::from_value(serde_json::to_value(of(None, 12, &[("a", 1.0, 1.0)])).unwrap()).unwrap();
    assert!(read.to_string().starts_with("use a/two_level\n"), "it is read as it was recorded: {read}");
}

#[test]
fn the_goal_decides_before_the_throughput() {
    let candidates = [("a", 100.0, 1.0), ("b", 150.0, 9.0), ("c", 80.0, 4.5)];
    let text = of(Some(5.0), 12, &candidates).to_string();
    assert!(text.starts_with("use a/two_level\nof those that keep a p99 of 5ms, `a/two_level` serves 1.25 "), "{text}");
    let text = of(Some(0.5), 12, &candidates).to_string();
    let nearest = "no candidate keeps the goal; the nearest is a/two_level\nno contestant keeps a p99 of 500µs; ";
    assert!(text.starts_with(nearest), "{text}");
}

#[test]
fn too_few_rounds_are_no_verdict() {
    let recommended = of(None, 9, &[("a", 100.0, 1.0), ("b", 150.0, 1.0)]);
    assert!(!recommended.decided);
    let text = recommended.to_string();
    let undecided = "undecided; the best so far is b/two_level\ntoo few rounds for a verdict: 9 of 10; ";
    assert!(text.starts_with(undecided), "{text}");
}

#[test]
fn a_client_without_time_left_decides_nothing() {
    let cores = |server: &str, client: &str| [server, client].map(|cores| cores.parse::<Cores>().unwrap());
    let (separate, shared) = (cores("0", "1"), cores("0-1", "0"));
    for (saturated, on_separate, on_shared) in
        [("client", true, true), ("both", false, true), ("server", false, false), ("neither", false, false)]
    {
        assert_eq!(is_client_full(saturated, &separate), on_separate, "{saturated}");
        assert_eq!(is_client_full(saturated, &shared), on_shared, "{saturated}");
    }
    let recommended = of(None, 12, &[("a", 100.0, 1.0), ("b", 150.0, 1.0)]);
    let undecided = Recommendation { client_full: true, ..recommended };
    let text = undecided.to_string();
    assert!(text.starts_with("undecided; the best so far is b/two_level\nclient full: "), "{text}");
    let summary = table::summary(&undecided);
    assert_eq!(summary.answer[0], "undecided; the best so far is b/two_level");
    let charts: Vec<&str> = summary.charts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(charts, ["throughput", "latencies"]);
}

/// A run over a slow store may end before a verdict.
#[test]
fn too_little_time_is_reported_with_the_time_that_is_enough() {
    let mut recommended = of(None, 1, &[("a", 100.0, 1.0), ("b", 150.0, 1.0)]);
    (recommended.time_was_up, recommended.enough_s) = (true, Some(seconds_for_verdict(Duration::from_secs(60), 1)));
    let text = recommended.to_string();
    let expected = "\nthe time was up before the last round\na verdict needs 10 rounds: --time 11m is enough\n";
    assert!(text.contains(expected), "{text}");
    assert_eq!([0, 9].map(|rounds| seconds_for_verdict(Duration::from_secs(60), rounds)), [660, 120]);
}

#[test]
fn a_p99_with_the_goal_in_its_interval_is_too_near_to_tell() {
    let recommended = of(Some(5.0), 12, &[("a", 100.0, 5.0), ("b", 150.0, 9.0)]);
    assert_eq!(recommended.ranking.goal_met, None);
    let text = recommended.to_string();
    assert!(
        text.starts_with(
            "undecided; the best so far is a/two_level\nit is too near to tell whether `a/two_level` keeps"
        ),
        "{text}"
    );
    assert!(text.contains("too near") && text.contains("measured with: a --queue=7\n"), "{text}");
    assert!(text.contains("measured on: cores 0,1 for the server, 2 for the client\n"), "{text}");
}

/// Regression test: lines had up to 165 characters.
#[test]
fn a_recommendation_fits_120_columns() {
    let names = ["pool_classic/crossbeam_pool", "pool_classic/tokio_blocking", "pool_classic/stealing_pool"];
    let mut recommended = of(Some(5.0), 12, &names.map(|name| (name, 100.0, 5.0)));
    recommended.defaulted = (0..20).map(|n| format!("--flag {n}")).collect();
    recommended.because = vec!["a reason of some words ".repeat(10).trim_end().to_owned()];
    recommended.ranking.rows.iter_mut().for_each(|row| row.loaded_bytes = Some(4e6));
    let whole = recommended.to_string();
    let text = wrapped(&whole, INDENT);
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
    assert_eq!(words(&text), words(&whole), "wrapping changes no word");
    for name in names {
        assert_eq!(whole.matches(&format!("  {name}/two_level  ")).count(), 1, "{text}");
    }
}

/// Regression test: a store with six URLs made all lines wide. Only the code has to name them all.
#[test]
fn names_with_locations_are_shortened() {
    let urls: Vec<String> = (0..6).map(|n| format!("redis://127.0.0.1:700{n}")).collect();
    let repo = format!("redis_cluster:{}", urls.join(","));
    let candidates = ["tokio_tcp", "smol", "tokio_hyper"].map(|server| (server, 100.0, 5.0));
    let mut recommended = of_repo(Some(5.0), 12, &candidates, &repo);
    let choice = recommended.choice.as_mut().expect("the first is chosen");
    choice.lines.code[0] = format!("let repo = RedisCluster::connect(\"{}\")?;", urls.join(","));
    let half_of = Some(choice.candidate.name());
    recommended.ranking.rate = Some(Rate { requests_per_s: 50.0, half_of, arrivals: Arrivals::default() });
    let text = wrapped(&recommended.to_string(), INDENT);
    let (above, code) = text.split_once("// polyserve").expect("the code is last");
    assert!(above.lines().all(|line| line.chars().count() <= WIDTH), "{above}");
    assert!(
        above.starts_with("undecided; the best so far is tokio_tcp/redis_")
            && above.contains("half of\n   tokio_tcp/redis_"),
        "{above}"
    );
    assert!(code.contains(&urls.join(",")), "{code}");
}

#[test]
fn the_capacity_is_the_median_of_the_searches_for_a_goal() {
    let (between, above) = (SearchEnd::Between, SearchEnd::Above);
    let search = |round: usize, goal_us: u64, per_s: f64, end: SearchEnd| {
        let cell = SweepCell::from([(SweepAxis::GoalUs, goal_us.into())]);
        let figures = [(figures::CAPACITY_PER_S, per_s), (figures::SEARCH_END, f64::from(end as i8))];
        let figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
        (bench::Key { contestant: "a".into(), cell, round }, Sample { role: Role::Ranked, figures })
    };
    let searches = [
        search(1, 1000, 200.0, between),
        search(1, 10_000, 900.0, above),
        search(2, 1000, 100.0, between),
        search(2, 10_000, 900.0, above),
        search(3, 1000, 150.0, above),
    ];
    let figures = CapacityFigure::of(searches.iter().map(|(key, found)| (key, found)));
    let [low, high] = &figures[..] else { panic!("{figures:?}") };
    assert_eq!((low.goal_us, low.requests_per_s, low.low, low.high, low.searches), (1000, 150.0, 100.0, 200.0, 3));
    assert_eq!((low.end, high.end, high.goal_us), (None, Some(above), 10_000));
    let mut recommended = of(None, 12, &[("a", 100.0, 1.0)]);
    recommended.no_capacity = Some(String::from("--time 74s is enough"));
    assert!(recommended.to_string().contains("\nits capacity was not searched: --time 74s is enough\n"));
    recommended.no_capacity = None;
    recommended.capacity = figures;
    let text = recommended.to_string();
    for expected in [
        "it keeps a p99 of 1.0 ms up to 150 req/s (100 to 200 in 3 searches)\n",
        "it keeps a p99 of 10.0 ms up to at least 900 req/s (900 to 900 in 2 searches)\n",
    ] {
        assert!(text.contains(expected), "{text}");
    }
}
