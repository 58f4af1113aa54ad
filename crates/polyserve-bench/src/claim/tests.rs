//! Claims on small rows.

use crate::report::ClaimVerdict::{Confirmed, Refuted, Undecided};
use crate::report::{Claim, ClaimVerdict};

use super::*;

mod published;

/// The rows of a contestant in some rounds. A hash scatters the noise: it differs between contestants.
fn rows(contestant: &str, rounds: usize, speed: f64, spread: f64) -> Vec<ClaimRow> {
    let row = |round: usize| {
        let phase = contestant.bytes().map(usize::from).sum::<usize>();
        let mixed = ((round * 31 + phase) as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = (mixed ^ (mixed >> 32)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40;
        let noise = 1.0 + spread * (hash as f64 / (1 << 23) as f64 - 1.0);
        ClaimRow::new(contestant, round).at("pipeline", 1.0).with("speed", speed * noise)
    };
    (1..=rounds).map(row).collect()
}

/// A baseline that is entered twice, and a contestant.
fn pair(speed: f64, rounds: usize, spread: f64) -> Vec<ClaimRow> {
    let base = |name: &str| rows(name, rounds, 1.0, spread);
    [base("base"), base("base (again)"), rows("own", rounds, speed, spread)].concat()
}

/// A claim with these keys, or why they are wrong.
fn claim(keys: &str) -> Result<ClaimDefinition, String> {
    let claim: ClaimDefinition = toml::from_str(keys).map_err(|error| error.to_string())?;
    claim.misuse().map_or(Ok(claim), |why| Err(why.to_owned()))
}

fn set(keys: &str) -> ClaimSet {
    let claims = vec![claim(&format!("text = 'a claim'\n{keys}")).unwrap()];
    ClaimSet { name: "any".into(), baseline: Some("base".into()), claims }
}

fn ratio_claim(rule: &str) -> ClaimSet {
    set(&format!("figure = 'speed'\nleft = 'own'\nright = 'base'\nwhere = {{ pipeline = 1 }}\nrule = '{rule}'"))
}

fn judged(set: &ClaimSet, rows: &[ClaimRow]) -> Claim {
    set.verdicts(rows, 0).remove(0)
}

fn verdict(rule: &str, rows: &[ClaimRow]) -> ClaimVerdict {
    judged(&ratio_claim(rule), rows).verdict
}

#[test]
fn a_median_has_a_margin_and_a_least_number_of_figures() {
    let keys = "figure = 'speed'\nleft = 'own'\nleast = 3\nrule = ";
    let own = |speed: f64, rounds| rows("own", rounds, speed, 0.0);
    for (rule, confirmed, undecided, refuted) in [
        ("median within 0.9 to 1.1, margin 0.02", 1.0, 0.91, 0.8),
        ("median above 0.9, margin 0.02", 1.0, 0.89, 0.8),
        ("median below 1.1, margin 0.02", 1.0, 1.11, 1.2),
    ] {
        let set = set(&format!("{keys}'{rule}'"));
        for (speed, verdict) in [(confirmed, Confirmed), (undecided, Undecided), (refuted, Refuted)] {
            assert_eq!(judged(&set, &own(speed, 3)).verdict, verdict, "{rule} at {speed}");
        }
        let outvoted = [own(confirmed, 2), own(refuted, 1)].concat();
        assert_eq!(judged(&set, &outvoted).verdict, Confirmed, "{rule}");
        let few = judged(&set, &own(confirmed, 2));
        assert!(few.verdict == Undecided && few.figure.ends_with("; at least 3 are needed"), "{few:?}");
        assert_eq!(set.claims[0].rule.to_string(), rule);
    }
    let error = claim(&format!("text = 'a'\nright = 'base'\n{keys}'median above 1'")).unwrap_err();
    assert!(error.contains("a median has no `right`"), "{error}");
}

#[test]
fn every_rule_has_three_verdicts() {
    for (rule, confirmed, refuted) in [
        ("about 1.05", 1.05, 1.01),
        ("about 1.05", 1.05, 1.2),
        ("about 1.05", 1.05, 0.9),
        ("about 0.9", 0.88, 1.0),
        ("about 0.9", 0.88, 0.7),
        ("no gain of 1.018", 1.0, 1.06),
        ("no gain of 1.018", 0.9, 1.012),
        ("equal within 0.99 to 1.01", 1.0, 1.05),
        ("equal within 0.99 to 1.01", 1.0, 0.9),
        ("every below 1", 0.9, 1.1),
        ("every above 1", 1.1, 0.9),
        ("at least 0.95", 1.0, 0.9),
    ] {
        assert_eq!(verdict(rule, &pair(confirmed, 12, 0.002)), Confirmed, "{rule}");
        assert_eq!(verdict(rule, &pair(refuted, 12, 0.002)), Refuted, "{rule}");
        assert_eq!(verdict(rule, &pair(confirmed, 12, 0.3)), Undecided, "{rule}");
        let few = judged(&ratio_claim(rule), &pair(confirmed, 9, 0.002));
        assert!(few.verdict == Undecided && few.figure.ends_with("; only 9 rounds"), "{few:?}");
    }
    let near = judged(&ratio_claim("about 1.05"), &pair(1.075, 12, 0.005));
    assert_eq!(near.verdict, Undecided, "the end of the equivalence interval: {near:?}");
}

#[test]
fn too_few_rounds_say_what_could_have_been_found() {
    let wide = judged(&ratio_claim("about 1.05"), &pair(1.05, 12, 0.3));
    assert!(wide.figure.contains("too few rounds: a difference of "), "{wide:?}");
    assert!(wide.first_figure().starts_with("own 1."), "{wide:?}");
    let clear = judged(&ratio_claim("about 1.05"), &pair(1.05, 12, 0.002));
    assert!(!clear.figure.contains("could have been found"), "{clear:?}");
}

#[test]
fn without_figures_or_noise_nothing_is_decided() {
    let set = ratio_claim("about 1.05");
    let all = pair(1.05, 12, 0.002);
    let figure = |rows: &[ClaimRow]| {
        let claim = judged(&set, rows);
        assert_eq!(claim.verdict, Undecided, "{claim:?}");
        claim.figure
    };
    assert_eq!(figure(&[]), "own was not measured");
    let without = |name: &str| all.iter().filter(|row| row.contestant != name).cloned().collect::<Vec<_>>();
    assert!(figure(&without("base (again)")).ends_with("without the control the noise is not known"));
    assert_eq!(figure(&without("base")), "base was not measured");
    let failed = [without("base"), vec![ClaimRow::absent("base", "it died")]].concat();
    assert_eq!(figure(&failed), "base: it died");
    let mut deep = all.clone();
    deep.iter_mut().for_each(|row| *row = row.clone().at("pipeline", 16.0));
    assert_eq!(figure(&deep), "own was not measured with pipeline 1");
    let mut apart = all;
    apart.iter_mut().filter(|row| row.contestant == "own").for_each(|row| row.round += 100);
    assert_eq!(figure(&apart), "own and base share no round");
}

/// If something other than the server limits the throughput, all servers seem equally fast.
#[test]
fn what_a_full_client_or_an_idle_server_may_hide_is_undecided() {
    let bound = |rule: &str| {
        let mut set = ratio_claim(rule);
        set.claims[0].server_bound = true;
        set
    };
    let busy = |speed: f64, server: Option<f64>, client: f64| -> Vec<ClaimRow> {
        let with = |row: ClaimRow| row.with(SERVER_BUSY, server).with(CLIENT_BUSY, client);
        pair(speed, 12, 0.002).into_iter().map(with).collect()
    };
    for (server, client, why) in [
        (Some(1.0), 1.0, "(the client's cores were busy for 100.0 % of own's time, "),
        (Some(0.909), 0.5, "(the cores of own were busy for 90.9 % only, "),
        (None, 0.5, "(how busy the cores of own were is not known, "),
    ] {
        for (rule, speed, expected) in [
            ("about 1.05", 1.0, Undecided),
            ("about 1.05", 1.05, Undecided),
            ("about 1.05", 0.9, Undecided),
            ("about 1.05", 1.2, Refuted),
            ("about 0.9", 0.7, Refuted),
            ("no gain of 1.018", 1.0, Undecided),
            ("no gain of 1.018", 1.06, Refuted),
        ] {
            let claim = judged(&bound(rule), &busy(speed, server, client));
            assert!(claim.verdict == expected && claim.figure.contains(why), "{rule}, {speed}: {claim:?}");
        }
    }
    assert_eq!(judged(&bound("about 1.05"), &busy(1.05, Some(1.0), 0.5)).verdict, Confirmed);
}

/// Of several contestants, the one that decides is the first figure.
#[test]
fn a_claim_about_several_holds_for_each() {
    let set = set("figure = 'speed'\nleft = ['own', 'other']\nright = 'base'\nrule = 'every below 1'");
    let with = |own, other| [pair(own, 12, 0.002), rows("other", 12, other, 0.002)].concat();
    let both = judged(&set, &with(0.5, 0.8));
    assert!(both.verdict == Confirmed && both.figure.starts_with("other 0.8"), "{both:?}");
    assert_eq!(judged(&set, &with(0.5, 1.0)).verdict, Undecided, "one is equal");
    let one = judged(&set, &with(1.3, 0.8));
    assert!(one.verdict == Refuted && one.figure.starts_with("own 1.3"), "{one:?}");
    assert_eq!(judged(&set, &pair(0.5, 12, 0.002)).verdict, Undecided, "one is missing");
}

#[test]
fn two_cells_of_one_contestant_are_compared() {
    let set = set(
        "figure = 'speed'\nleft = 'base'\nright = 'base'\nleft_where = { workers = 200 }\nright_where = { workers = 100 }\n\
         rule = 'equal within 0.99 to 1.01'\ndecimals = 4",
    );
    let at = |rows: Vec<ClaimRow>, workers: f64| rows.into_iter().map(move |row| row.at("workers", workers));
    let base = |speed| {
        let first = at(pair(1.0, 12, 0.002), 100.0);
        first.chain(at(rows("base", 12, speed, 0.001), 200.0)).collect::<Vec<_>>()
    };
    let same = judged(&set, &base(1.0));
    assert!(same.verdict == Confirmed && same.figure.starts_with("base, workers 200 1.000"), "{same:?}");
    assert_eq!(judged(&set, &base(1.1)).verdict, Refuted);
}

#[test]
fn figures_without_a_right_side_are_judged_as_they_are() {
    let set = set("figure = 'errors'\nleft = '*own*'\nwhere = { requests = '>=100' }\nrule = 'every below 1'");
    let row = |name: &str, requests: f64, errors: Option<f64>| {
        ClaimRow { why: errors.is_none().then(|| "it refused some".into()), ..ClaimRow::new(name, 1) }
            .at("requests", requests)
            .with("errors", errors)
    };
    let figure = |rows: &[ClaimRow], expected: ClaimVerdict| {
        let claim = judged(&set, rows);
        assert_eq!(claim.verdict, expected, "{claim:?}");
        claim.figure
    };
    let good = row("debug/own", 100.0, Some(0.0));
    assert_eq!(figure(&[], Undecided), "no such round was measured");
    assert_eq!(
        figure(&[row("own", 99.0, Some(0.0)), row("other", 100.0, Some(3.0))], Undecided),
        "no such round was measured"
    );
    assert_eq!(figure(&[good.clone(), row("own", 100.0, Some(0.0))], Confirmed), "errors: 0 in 2 rounds");
    let wrong = [good.clone(), row("own", 200.0, Some(3.0))];
    assert_eq!(figure(&wrong, Refuted), "errors: 1 of 2 rounds not as claimed: own 3");
    let refusing = row("own", 100.0, None);
    assert_eq!(
        figure(std::slice::from_ref(&refusing), Undecided),
        "no such round was measured; 1 round without it: it refused some"
    );
    assert_eq!(
        figure(&[refusing, good.clone()], Confirmed),
        "errors: 0 in 1 round; 1 round without it: it refused some"
    );
    let mut two = set.clone();
    two.claims[0].least = Some(2);
    assert_eq!(judged(&two, &[good.clone(), good.clone()]).verdict, Confirmed);
    assert_eq!(judged(&two, &[good]).figure, "fewer than 2 rounds of a contestant");
}

/// Two thread counts were one ratio of twice as many rounds, so one of them could hide the other.
#[test]
fn a_claim_holds_at_each_cell() {
    let keys = "figure = 'speed'\nleft = 'own'\nright = 'base'\nrule = 'every above 1'";
    let at = |workers: f64, speed: f64, rounds: usize| {
        pair(speed, rounds, 0.002).into_iter().map(move |row| row.at("workers", workers)).collect::<Vec<_>>()
    };
    let both = |one, two, rounds| judged(&set(keys), &[at(1.0, one, rounds), at(2.0, two, rounds)].concat());
    assert_eq!(both(1.1, 1.2, 12).verdict, Confirmed);
    let one = both(1.3, 0.9, 12);
    assert!(one.verdict == Refuted && one.figure.starts_with("own, pipeline 1, workers 2 0.9"), "{one:?}");
    let few = both(1.1, 1.2, 9);
    assert!(few.verdict == Undecided && few.figure.ends_with("; only 9 rounds"), "cells are no rounds: {few:?}");
    let over = judged(&set(&format!("{keys}\nover = ['workers']")), &[at(1.0, 1.1, 9), at(2.0, 1.2, 9)].concat());
    assert_eq!(over.verdict, Confirmed, "here they are: {over:?}");
}

/// The noise of one map was that of three.
#[test]
fn a_right_side_with_a_second_entry_has_its_own_noise() {
    let own = |spread| {
        let map = |name: &str| rows(name, 12, 2.0, spread);
        let rows = [pair(1.0, 12, 0.002), map("map"), map("map (again)"), rows("trait", 12, 1.9, 0.002)].concat();
        judged(&set("figure = 'speed'\nleft = 'trait'\nright = 'map'\nrule = 'every below 1'"), &rows)
    };
    assert_eq!((own(0.002).verdict, own(0.3).verdict), (Confirmed, Undecided), "{:?}", own(0.3));
}

#[test]
fn a_loss_within_a_margin_is_confirmed_if_the_noise_is_smaller() {
    let rule = "at least 0.926";
    for (speed, spread, expected) in [
        (0.95, 0.002, Confirmed),
        (1.0, 0.01, Confirmed),
        (1.2, 0.002, Confirmed),
        (0.9, 0.002, Refuted),
        (0.98, 0.3, Undecided),
    ] {
        assert_eq!(verdict(rule, &pair(speed, 12, spread)), expected, "{speed} with {spread}");
    }
    assert_eq!(verdict("at least 1", &pair(1.2, 12, 0.002)), Confirmed);
    assert_eq!(verdict("at least 1", &pair(1.0, 12, 0.01)), Undecided);
    assert_eq!(ratio_claim(rule).claims[0].rule.to_string(), rule);
}

/// A claim that is clear alone may have too large an error for an article with many claims, those of figures included.
#[test]
fn all_claims_of_an_article_share_one_error() {
    let alone = ratio_claim("every above 1");
    let mut among_many = alone.clone();
    among_many.claims.extend(vec![set("figure = 'speed'\nleft = 'own'\nrule = 'every above 0'").claims.remove(0); 40]);
    let verdicts = (0..10).map(|step| {
        let rows = pair(1.0 + f64::from(step) * 0.004, 12, 0.02);
        [judged(&alone, &rows), judged(&among_many, &rows)]
    });
    let differing: Vec<_> = verdicts.filter(|[alone, many]| alone.verdict != many.verdict).collect();
    assert!(!differing.is_empty());
    for [alone, many] in differing {
        assert_eq!([alone.verdict, many.verdict], [Confirmed, Undecided]);
        assert!(many.figure.ends_with("; no verdict, because 41 claims share an error of 5 % (Holm)"), "{many:?}");
    }
}

#[test]
fn a_star_in_a_name_stands_for_any_text() {
    let matches = |pattern: &str| {
        let names = Names::One(pattern.into());
        ["own", "debug/own", "own/two_level", "debug/own/two_level"].map(|name| names.match_name(name))
    };
    assert_eq!(matches("own"), [true, false, false, false]);
    assert_eq!(matches("*own"), [true, true, false, false]);
    assert_eq!(matches("own*"), [true, false, true, false]);
    assert_eq!(matches("*own*"), [true; 4]);
    assert_eq!(matches("*own/*_level"), [false, false, true, true]);
    assert!(!Names::One("*".into()).match_name("own (again)"), "a second entry is noise");
    assert!(Names::One("own (again)".into()).match_name("own (again)"));
}

#[test]
fn an_error_names_the_line_and_the_key() {
    for (keys, expected) in [
        ("text = 'a'\nrule = 'about 1'\nfigur = 'speed'", &["line 3", "figur"][..]),
        ("text = 'a'\nrule = 'abuot 1'", &["line 2", "abuot 1", "is no rule"]),
        ("text = 'a'", &["rule"]),
        ("text = 'a'\nrule = 'about 1'", &["`figure` and `left`"]),
        ("text = 'a'\nrule = 'about 1'\nfigure = 'speed'\nleft = 'b'\nright = '*'", &["`right` is one contestant"]),
        (
            "text = 'a'\nrule = 'most cells above 1'\nfigure = 'speed'\nleft = 'b'\nright = 'c'\nover = ['keys']",
            &["a rule about cells has no `over`"],
        ),
        ("text = 'a'\nrule = 'about 1'\nleft = 7", &["line 3", "the name of a contestant"]),
    ] {
        let error = claim(keys).unwrap_err();
        for word in expected {
            assert!(error.contains(word), "{word}: {error}");
        }
    }
}
