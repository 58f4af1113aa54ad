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
use crate::turn::Role;
use polyserve_load::Arrivals;

/// A measurement with this throughput, which varies by 10 % from round to round, and this p99.
fn measurement(round: usize, per_second: f64, p99_ms: f64) -> NamedFigures {
    let drift = 1.0 + 0.1 * (round % 3) as f64;
    let mut figures = latencies(p99_ms * 1000.0);
    figures.insert(figures::REQUESTS_PER_S.to_owned(), per_second * drift);
    figures
}

/// The recommendation for candidates of these throughputs and p99s, and with this goal. The first is the baseline.
fn of(goal_ms: Option<f64>, rounds: usize, of: &[(&str, f64, f64)]) -> Recommendation {
    of_rounds(goal_ms, rounds, of, |_, p99_ms| p99_ms)
}

/// [`of`], with a p99 for each round.
fn of_rounds(
    goal_ms: Option<f64>,
    rounds: usize,
    of: &[(&str, f64, f64)],
    p99_in: impl Fn(usize, f64) -> f64,
) -> Recommendation {
    let candidate = |name: &str| Candidate { server: name.into(), repo: "two_level".into(), workers: None };
    let candidates: Vec<Candidate> = of.iter().map(|(name, ..)| candidate(name)).collect();
    let figures = |per_second: f64, p99_ms: f64| -> Vec<NamedFigures> {
        (0..rounds).map(|round| measurement(round, per_second, p99_in(round, p99_ms))).collect()
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
    Recommendation::of(&basis, &ranking)
}

fn ranks(recommendation: &Recommendation) -> Vec<(&str, usize)> {
    recommendation.ranked.iter().map(|one| (one.candidate.server.as_str(), one.row.rank.unwrap())).collect()
}

#[test]
fn the_fastest_wins_and_a_candidate_within_the_noise_is_a_tie() {
    let recommended = of(None, 12, &[("a", 100.0, 1.0), ("b", 150.0, 1.0), ("c", 149.5, 1.0), ("d", 75.0, 1.0)]);
    assert_eq!(ranks(&recommended), [("b", 1), ("c", 1), ("a", 3), ("d", 4)]);
    let text = recommended.to_string();
    let answer = "use b/two_level\nno difference was found between it and: c/two_level\nits throughput is 1.500 [";
    assert!(text.starts_with(answer), "{text}");
    let choice = recommended.choice.unwrap();
    assert_eq!((choice.candidate.server.as_str(), choice.ties), ("b", vec![String::from("c/two_level")]));
    let margin = choice.margin.unwrap();
    assert_eq!(margin.over, "a/two_level");
    assert!((margin.ratio - 1.5).abs() < 1e-9 && margin.interval.contains(1.5), "{margin:?}");
    assert_eq!(
        (recommended.goal_met, recommended.decided, recommended.ranked[0].row.of_first.is_none()),
        (None, true, true)
    );
}

#[test]
fn a_candidate_that_misses_the_goal_is_behind_those_that_meet_it() {
    let recommended = of(Some(5.0), 12, &[("a", 100.0, 1.0), ("b", 150.0, 9.0), ("c", 80.0, 4.9)]);
    assert_eq!(ranks(&recommended), [("a", 1), ("c", 2), ("b", 3)]);
    assert_eq!((recommended.goal_met, recommended.ranked[2].row.meets_goal), (Some(true), Some(false)));
    let choice = recommended.choice.unwrap();
    assert_eq!((choice.margin.unwrap().over.as_str(), choice.ties.len()), ("c/two_level", 0));
}

/// In all rounds together, a twelfth of the requests took 90 ms.
#[test]
fn a_disturbed_round_does_not_miss_the_goal() {
    let candidates = [("a", 100.0, 1.0), ("b", 150.0, 2.0)];
    let recommended = of_rounds(Some(5.0), 12, &candidates, |round, p99_ms| if round == 3 { 90.0 } else { p99_ms });
    assert_eq!((ranks(&recommended), recommended.goal_met), (vec![("b", 1), ("a", 2)], Some(true)));
    let p99s: Vec<f64> = recommended.ranked.iter().map(|one| one.row.latency.unwrap().p99_us).collect();
    assert_eq!(p99s, [2000.0, 1000.0]);
}

#[test]
fn without_a_candidate_that_meets_the_goal_the_lowest_latency_is_first() {
    let recommended = of(Some(0.5), 12, &[("a", 100.0, 2.0), ("b", 150.0, 9.0), ("c", 80.0, 1.0)]);
    assert_eq!(ranks(&recommended), [("c", 1), ("a", 2), ("b", 3)]);
    assert_eq!(recommended.goal_met, Some(false));
    assert!(recommended.choice.unwrap().margin.is_none(), "the others have a higher throughput");
}

#[test]
fn too_few_rounds_are_no_verdict() {
    let recommended = of(None, 9, &[("a", 100.0, 1.0), ("b", 150.0, 1.0)]);
    assert_eq!(
        (recommended.decided, recommended.ranked[1].row.of_first.map(|one| one.verdict)),
        (false, Some(Verdict::TooFewRounds))
    );
    assert_eq!(recommended.rounds, 9);
    assert!(recommended.to_string().starts_with("undecided; the best so far is b/two_level\n"), "{recommended}");
    let choice = recommended.choice.unwrap();
    assert!(choice.ties.is_empty() && choice.margin.is_none());
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
    assert_eq!(charts, ["ratios"], "without a rate there are no latencies");
}

#[test]
fn a_latency_with_a_late_client_is_marked() {
    let mut recommended = of(Some(5.0), 12, &[("a", 100.0, 4.0), ("b", 150.0, 2.0)]);
    let text = recommended.to_string();
    assert!(text.contains(" 2.0 ms [") && !text.contains("~2.0 ms"), "{text}");
    recommended.ranked[0].row.latency.as_mut().unwrap().lateness_p99_us = 300.0;
    let text = recommended.to_string();
    assert!(text.contains(" ~2.0 ms [") && !text.contains("~4.0 ms"), "{text}");
}

/// A run over a slow store may end before a verdict.
#[test]
fn too_little_time_is_reported_with_the_time_that_is_enough() {
    let mut recommended = of(None, 1, &[("a", 100.0, 1.0), ("b", 150.0, 1.0)]);
    (recommended.time_was_up, recommended.enough_s) = (true, Some(seconds_for_verdict(Duration::from_secs(60), 1)));
    let text = recommended.to_string();
    let expected = "\nthe time was up after 1 round\na verdict needs 10 rounds: --time 11m is enough\n";
    assert!(text.contains(expected), "{text}");
    assert_eq!([0, 9].map(|rounds| seconds_for_verdict(Duration::from_secs(60), rounds)), [660, 120]);
}

/// The interval of the p99 decides whether the goal is met.
#[test]
fn a_p99_with_the_goal_in_its_interval_is_too_near_to_tell() {
    let spread = |round: usize, p99_ms: f64| p99_ms * (0.9 + 0.02 * (round % 11) as f64);
    let recommended = of_rounds(Some(5.0), 12, &[("a", 100.0, 5.0), ("b", 150.0, 9.0)], spread);
    assert_eq!((ranks(&recommended), recommended.goal_met), (vec![("a", 1), ("b", 2)], None));
    assert_eq!((recommended.ranked[0].row.meets_goal, recommended.ranked[1].row.meets_goal), (None, Some(false)));
    let text = recommended.to_string();
    assert!(
        text.starts_with("undecided; the best so far is a/two_level: it is too near to tell whether it keeps 99 %"),
        "{text}"
    );
    assert!(text.contains("too near") && text.contains("measured with: a --queue=7\n"), "{text}");
    assert!(text.contains("measured on: cores 0,1 for the server, 2 for the client\n"), "{text}");
    // One that meets the goal precedes it, although it is slower.
    let with_one = of_rounds(Some(5.0), 12, &[("a", 100.0, 5.0), ("b", 50.0, 1.0)], spread);
    assert_eq!((ranks(&with_one), with_one.goal_met), (vec![("b", 1), ("a", 2)], Some(true)));
    assert!(with_one.choice.unwrap().margin.is_none());
}

/// Regression test: lines had up to 165 characters.
#[test]
fn a_recommendation_fits_120_columns() {
    let names = ["pool_classic/crossbeam_pool", "pool_classic/tokio_blocking", "pool_classic/stealing_pool"];
    let mut recommended = of(Some(5.0), 12, &names.map(|name| (name, 100.0, 5.0)));
    recommended.defaulted = (0..20).map(|n| format!("--flag {n}")).collect();
    recommended.because = vec!["a reason of some words ".repeat(10).trim_end().to_owned()];
    for ranked in &mut recommended.ranked {
        (ranked.candidate.workers, ranked.row.loaded_bytes) = (Some(64), Some(4e6));
    }
    let whole = recommended.to_string();
    let text = wrapped(&whole, INDENT);
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
    assert_eq!(words(&text), words(&whole), "wrapping changes no word");
    let (table, rest) = text.split_once("\n\n#").and_then(|(_, text)| text.split_once("\n\n#")).expect("two parts");
    assert!(table.contains(" verdict ") && rest.contains(" saturated\n"), "{text}");
    for name in names {
        assert_eq!(whole.matches(&format!("  {name}/two_level  ")).count(), 2, "{text}");
    }
}

/// Regression test: a store with six URLs made all lines wide. Only the code has to name them all.
#[test]
fn names_with_locations_are_shortened() {
    let urls: Vec<String> = (0..6).map(|n| format!("redis://127.0.0.1:700{n}")).collect();
    let repo = format!("redis_cluster:{}", urls.join(","));
    let mut recommended = of(Some(5.0), 12, &["tokio_tcp", "smol", "tokio_hyper"].map(|server| (server, 100.0, 5.0)));
    recommended.ranked.iter_mut().for_each(|one| one.candidate.repo.clone_from(&repo));
    let choice = recommended.choice.as_mut().expect("the first is chosen");
    choice.ties = recommended.ranked[1..].iter().map(|one| one.candidate.name()).collect();
    choice.lines.code[0] = format!("let repo = RedisCluster::connect(\"{}\")?;", urls.join(","));
    choice.candidate.repo = repo;
    let half_of = Some(recommended.ranked[0].candidate.name());
    recommended.rate = Some(Rate { requests_per_s: 50.0, half_of, arrivals: Arrivals::default() });
    let text = wrapped(&recommended.to_string(), INDENT);
    let (above, code) = text.split_once("// polyserve").expect("the code is last");
    assert!(above.lines().all(|line| line.chars().count() <= WIDTH), "{above}");
    assert!(above.contains("use tokio_tcp/redis_") && above.contains("half of tokio_tcp/redis_"), "{above}");
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
