//! The tests with synthetic ratios and series.

use super::*;

/// A band of 36 ratios.
fn band_of(ratio: f64, median: f64) -> Band {
    Band { ratio, median, spread: ratio.ln() / 2.0, count: 36 }
}

#[test]
fn a_trend_is_more_than_chance_and_noise() {
    let series = |figures: &[f64]| {
        let points: Vec<(f64, f64)> = figures.iter().zip(0..).map(|(figure, x)| (f64::from(x), *figure)).collect();
        SeriesGrowth::new(figures[figures.len() - 1] / figures[0], &points)
    };
    let decided = |series: &[SeriesGrowth], median: f64| trend(series, false, band_of(9.0, median)).holds;
    let (up, down) = (series(&[1.0, 1.1, 1.2, 1.3]), series(&[1.3, 1.2, 1.1, 1.0]));
    assert_eq!(decided(&[up; 6], 1.05), Some(true));
    assert_eq!(decided(&[down; 6], 1.05), Some(false));
    assert_eq!(decided(&[up; 5], 1.05), None, "too few series");
    assert_eq!(decided(&[up; 6], 1.5), None, "within the noise");
    assert_eq!(decided(&[up, down, up, down, up, down], 1.0), None);
    assert_eq!(trend(&[down; 6], true, Band::NONE).holds, Some(true), "a fall, as claimed");
    let flat = [series(&[1.0, 1.02, 0.99, 1.03]), series(&[1.0, 0.98, 1.01, 0.99])];
    let flat: Vec<SeriesGrowth> = flat.into_iter().cycle().take(6).collect();
    let of_flat = [false, true].map(|is_down| trend(&flat, is_down, band_of(1.3, 1.05)).holds);
    assert_eq!(of_flat, [Some(false); 2], "no growth and no fall");
    assert_eq!(decided(&flat, 1.2), None, "more noise than a tenth");
    let some_rise = [series(&[1.0, 1.09, 0.99, 1.07]), series(&[1.0, 1.08, 1.01, 1.06])];
    let some_rise: Vec<SeriesGrowth> = some_rise.into_iter().cycle().take(6).collect();
    assert_eq!(decided(&some_rise, 1.03), None, "a rise beyond the noise, by too uneven series");
    assert_eq!(decided(&flat[..5], 1.05), None, "too few series");
    // Six series of six points that all rise: the score is 90, its standard deviation 13.04, z 6.83.
    let p = trend(&[series(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]); 6], false, Band::NONE).p.unwrap();
    assert!(p < 1e-7, "{p}");
    for (t, freedom, tails) in [
        (12.7062, 1, 0.05),
        (4.302_65, 2, 0.05),
        (3.182_45, 3, 0.05),
        (2.570_58, 5, 0.05),
        (2.228_14, 10, 0.05),
        (0.0, 5, 1.0),
    ] {
        assert!((student_tails(t, freedom) - tails).abs() < 1e-5, "{t} {freedom}");
    }
    assert!(trend(&flat, false, band_of(1.3, 1.05)).p.unwrap() < 0.001, "Holm's procedure lets it pass");
    for (z, tail) in [(0.0, 0.5), (1.0, 0.158_655), (1.959_964, 0.025), (3.0, 0.001_35)] {
        assert!((normal_tail(z) - tail).abs() < 1e-6, "{z}");
    }
}

#[test]
fn chance_is_not_taken_for_a_side() {
    for (above, below, side) in [
        (5, 0, None),
        (6, 0, Some(true)),
        (0, 6, Some(false)),
        (7, 1, None),
        (8, 1, Some(true)),
        (10, 10, None),
        (0, 0, None),
        (15, 5, Some(true)),
        (14, 6, None),
        (36, 0, Some(true)),
    ] {
        assert_eq!(sign_test(above, below), side, "{above} to {below}");
    }
}

#[test]
fn a_band_is_what_the_control_shows() {
    assert_eq!(Band::of(&[1.0; 5]), None);
    assert_eq!(Band::of(&[1.0, 1.02, 1.0 / 1.04, 1.01, 1.0, f64::NAN]), None);
    let band = Band::of(&[1.0, 1.02, 1.0 / 1.04, 1.01, 1.0, 1.0]).unwrap();
    assert!((band.ratio - 1.04).abs() < 1e-9, "{band:?}");
    assert!((band.median - 1.04).abs() < 1e-9, "six ratios bound their median by the outermost: {band:?}");
    let ratios: Vec<f64> = (0..40).map(|at| if at == 7 { 3.0 } else { 1.01 }).collect();
    assert!(Band::of(&ratios).unwrap().ratio < 1.02, "one of forty is chance");
    // The ratios spread from 0.7 to 1.3, their median less: its interval has 15 of the 41.
    let wide: Vec<f64> = (-20..=20).map(|at| 1.0 + 0.015 * f64::from(at)).collect();
    let Band { ratio, median, .. } = Band::of(&wide).unwrap();
    assert!(ratio > 1.3 && median > 1.0 && median < 1.12, "{ratio} {median}");
}

/// Regression test: 34 of 36 ratios above 1 decided nothing, because single ratios of the control differed by a third.
#[test]
fn the_median_of_many_noisy_ratios_decides() {
    let noise = |at: i32| 1.0 + 0.015 * f64::from(at);
    let band = Band::of(&(-20..=20).map(noise).collect::<Vec<_>>()).unwrap();
    let by = |factor: f64| decide(&(-20..=20).map(|at| noise(at) * factor).collect::<Vec<_>>(), CellShare::Most, band);
    assert_eq!(by(1.4).holds, Some(true));
    assert_eq!(by(1.0 / 1.4).holds, Some(false));
    assert_eq!(by(1.12).holds, None);
    let quiet = band_of(1.3, 1.03);
    let near = |by: f64| {
        decide(&(0..12).map(|at| 1.0 + by * f64::from(at % 3 - 1)).collect::<Vec<_>>(), CellShare::Most, quiet)
    };
    assert_eq!(near(0.02).holds, Some(false), "there is no such difference");
    let p = near(0.02).p.unwrap();
    assert!((p - 2.0 / 4096.0).abs() < 1e-9, "12 of 12 ratios are within a tenth: {p}");
    let above = [1.01, 1.04, 1.05, 1.05, 1.02, 1.04, 1.05, 0.99];
    assert_eq!(decide(&above, CellShare::Most, quiet).holds, None, "the median is above the band");
    assert_eq!(near(0.3).holds, None);
}

#[test]
fn how_often_it_is_so() {
    let band = band_of(1.05, 1.05);
    let decide = |above, within, below, share| {
        let sides = [(above, 1.5), (within, 1.0), (below, 0.6)];
        let ratios: Vec<f64> = sides.into_iter().flat_map(|(count, ratio)| vec![ratio; count]).collect();
        super::decide(&ratios, share, band).holds
    };
    assert_eq!(decide(30, 0, 6, CellShare::Most), Some(true));
    assert_eq!(decide(30, 0, 6, CellShare::NearlyEvery), Some(true));
    assert_eq!(decide(30, 0, 6, CellShare::Every), Some(false));
    assert_eq!(decide(26, 0, 10, CellShare::NearlyEvery), Some(false));
    assert_eq!(decide(20, 12, 4, CellShare::NearlyEvery), None);
    assert_eq!(decide(35, 0, 1, CellShare::Every), Some(false), "one contradicts");
    assert_eq!(decide(33, 3, 0, CellShare::Every), None, "three are not above the noise");
    assert_eq!(decide(36, 0, 0, CellShare::Every), Some(true));
    assert_eq!(decide(3, 33, 0, CellShare::Every), Some(false), "there is no difference");
    assert_eq!(decide(5, 0, 0, CellShare::Most), None);
    assert_eq!(decide(1, 0, 9, CellShare::Most), Some(false));
    // Regression test: 12 of 36 cells confirmed a claim, while 21 were within the noise.
    assert_eq!(decide(12, 21, 3, CellShare::Most), None);
    assert_eq!(decide(19, 17, 0, CellShare::Most), None, "chance puts half of 36 there");
    assert_eq!(decide(26, 10, 0, CellShare::Most), Some(true));
}

/// One of many cells is below 1 by chance. It contradicts a claim about every cell only if that is unlikely among all of them.
#[test]
fn a_cell_contradicts_beyond_what_chance_does_to_many() {
    let noise = band_of(1.05, 1.02); // a logarithm of 0.024
    let with = |lowest: f64| {
        let ratios: Vec<f64> = [lowest].into_iter().chain(vec![1.2; 35]).collect();
        decide(&ratios, CellShare::Every, noise)
    };
    assert_eq!(with(0.94).holds, None, "2.5 times the noise, in one of 36 cells");
    assert_eq!(with(0.90).holds, Some(false));
    assert!(with(0.90).p.unwrap() < SIGNIFICANCE && with(1.06).holds == Some(true));
}

#[test]
fn decisions_of_two_parts_have_the_larger_p_value() {
    let decision = |p: f64| Decision { holds: Some(true), p: Some(p), is_tie: false };
    let holds = Decision { holds: Some(false), p: None, is_tie: false };
    // Regression test: 8 of 36 ratios below refuted a claim with the p-value of the others' being above.
    assert_eq!(Votes { above: 28, within: 0, below: 8 }.decide_of_nearly_every(), holds);
    let both = decision(0.04).and(decision(0.001));
    assert_eq!((both.holds, both.p), (Some(true), Some(0.04)));
    assert_eq!((both.at(0.05), both.at(0.03), holds.at(0.0)), (Some(true), None, Some(false)));
    assert_eq!(both.and(holds), holds);
    assert_eq!(both.and(Decision::UNDECIDED).holds, None);
}
