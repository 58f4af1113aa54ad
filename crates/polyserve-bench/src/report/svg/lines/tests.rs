use super::super::Marks;
use super::*;

const STYLE: Style = Style { colour: "#0072B2", dashes: None, mark: Marker::Circle, is_hollow: false };

fn line(name: &str, points: &[(u64, f64)]) -> Series {
    Series { name: name.into(), style: STYLE, points: points.to_vec() }
}

fn chart(lines: Vec<Series>) -> Chart {
    Chart { title: "T".into(), about: "about".into(), axis: "threads".into(), marks: Marks::Lines(lines) }
}

/// The values of an attribute of each element of this name.
fn values<'a>(svg: &'a str, element: &str, attribute: &str) -> Vec<&'a str> {
    let (open, name) = (format!("<{element} "), format!(" {attribute}=\""));
    let elements = svg.split(&*open).skip(1).map(|rest| rest.split('>').next().unwrap_or(rest));
    elements.filter_map(|element| element.split(&*name).nth(1)?.split('"').next()).collect()
}

#[test]
fn there_is_one_polyline_a_line_with_a_mark_at_each_point() {
    let mut dashed = line("b", &[(1, 2e6), (2, 3e6), (4, 1e6)]);
    dashed.style.dashes = Some("7 4");
    let svg = chart(vec![line("a", &[(1, 1e6), (2, 1e6), (4, 5e6)]), dashed]).to_svg();
    let polylines: Vec<&str> = svg.lines().filter(|line| line.starts_with("<polyline ")).collect();
    assert_eq!(polylines.len(), 2, "{svg}");
    assert!(!polylines[0].contains("dasharray") && polylines[1].contains("stroke-dasharray=\"7 4\""), "{svg}");
    // Three points each, and one next to the name.
    assert_eq!(svg.matches("<circle ").count(), 2 * (3 + 1), "{svg}");
    let texts: Vec<&str> = svg.lines().filter(|line| line.starts_with("<text ")).collect();
    for tick in [">1</text>", ">2</text>", ">4</text>", ">1 M</text>", ">2 M</text>", ">5 M</text>", ">threads</text>"]
    {
        assert!(texts.iter().any(|text| text.ends_with(tick)), "{tick}: {svg}");
    }
    assert!(svg.contains("width=\"860\" height=\"480\"") && svg.contains("fill=\"#fff\"/>"), "{svg}");
    assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
    // On logarithmic axes a factor of two has the same length everywhere.
    let frame = Frame::around(&[line("a", &[(1, 1e6), (2, 1e6), (4, 11e6)])]);
    assert!((frame.x(2) - frame.x(1) - (frame.x(4) - frame.x(2))).abs() < 1e-6);
    assert!((frame.y(2e6) - frame.y(1e6) - (frame.y(4e6) - frame.y(2e6))).abs() < 1e-6);
    // Figures of about the same size begin at zero, with equal steps.
    let frame = Frame::around(&[line("a", &[(1, 1e6), (4, 9.3e6)])]);
    assert_eq!(frame.figures, [0.0, 2e6, 4e6, 6e6, 8e6, 1e7]);
    assert!((frame.y(0.0) - frame.bottom).abs() < 1e-6 && (frame.y(1e7) - TOP_MARGIN).abs() < 1e-6);
    assert!((frame.y(4e6) - frame.y(2e6) - (frame.y(8e6) - frame.y(6e6))).abs() < 1e-6);
}

#[test]
fn names_do_not_lie_on_each_other() {
    // All end at about the same place.
    let lines: Vec<Series> = (0..16).map(|n| line(&format!("s{n}"), &[(1, 1e6), (8, 1e6 + f64::from(n))])).collect();
    let svg = chart(lines).to_svg();
    let is_name = |text: &&str| text.contains("stroke=\"none\">s");
    let names: Vec<&str> = svg.lines().filter(is_name).collect();
    let mut heights: Vec<f64> = names.iter().map(|text| values(text, "text", "y")[0].parse().unwrap()).collect();
    assert_eq!(heights.len(), 16, "{svg}");
    // The higher figure stands higher.
    assert!(heights.is_sorted_by(|one, next| one > next), "{heights:?}");
    heights.reverse();
    assert!(heights.windows(2).all(|pair| pair[1] - pair[0] > GAP - 0.2), "{heights:?}");
    assert!(heights[0] > TOP_MARGIN && heights[15] < SIZE.1, "{heights:?}");
}

#[test]
fn names_stand_as_near_as_they_can() {
    assert_eq!(spread(&[100.0, 200.0], 0.0, 300.0), [100.0, 200.0]);
    assert_eq!(spread(&[100.0, 100.0], 0.0, 300.0), [100.0 - GAP / 2.0, 100.0 + GAP / 2.0]);
    assert_eq!(spread(&[0.0, 0.0], 0.0, 300.0), [0.0, GAP]);
    assert_eq!(spread(&[300.0, 300.0], 0.0, 300.0), [300.0 - GAP, 300.0]);
    // Without room they go on below.
    assert_eq!(spread(&[1.0, 2.0, 3.0], 0.0, 10.0), [0.0, GAP, 2.0 * GAP]);
    assert!(spread(&[], 0.0, 10.0).is_empty());
    // This number of lines makes the chart higher.
    let many: Vec<Series> = (0..60).map(|n| line(&format!("s{n}"), &[(1, 1.0)])).collect();
    let frame = Frame::around(&many);
    assert!(label_heights(&many, &frame).iter().all(|y| (TOP_MARGIN..=frame.bottom).contains(y)));
}

#[test]
fn names_are_text() {
    let svg = chart(vec![line("<script>&\"\u{1b}", &[(1, 1.0)])]).to_svg();
    assert!(svg.contains(">&lt;script&gt;&amp;&quot;\u{fffd}</text>"), "{svg}");
    assert!(!svg.contains("<script"), "{svg}");
}

/// A line may end early, such as a map for one thread. A size may be zero.
#[test]
fn lines_may_end_early_and_places_be_zero() {
    let svg = chart(vec![
        line("a", &[(0, 1.0), (2, 3.0), (4, 2.0)]),
        line("b", &[(0, 9.0)]),
        line("c", &[(0, 5.0), (2, 5.0)]),
    ])
    .to_svg();
    assert!(svg.contains(">a</text>") && svg.contains(">b (at 0)</text>") && svg.contains(">c (to 2)</text>"), "{svg}");
    let alone = chart(vec![line("a", &[(1, 7.0)])]).to_svg();
    for svg in [svg, alone, chart(Vec::new()).to_svg()] {
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}

#[test]
fn figures_at_the_side_are_round() {
    assert_eq!(round_figures(1.5e6, 6e6), [1e6, 2e6, 5e6, 1e7]);
    assert_eq!(round_figures(1e6, 1e6), [1e6, 2e6]);
    assert_eq!(round_figures(3e2, 3e7), [1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8]);
    assert_eq!(round_figures(f64::INFINITY, 0.0), [1.0, 10.0]);
    assert_eq!([5.0, 2e3, 5e6, 1e9].map(short), ["5", "2 k", "5 M", "1 G"]);
    assert_eq!(
        [0, 1024, 9000, 10_000, 1_500_000, 2_000_000].map(tick_label),
        ["0", "1024", "9000", "10 k", "1500 k", "2 M"]
    );
}

#[test]
fn a_chart_shows_the_chosen_lines() {
    let lines = ["a", "b", "c"].map(|name| line(name, &[(1, 1.0)]));
    let all = chart(lines.into());
    let svg = all.clone().only(&["a", "c"]).unwrap().to_svg();
    assert!(svg.contains("<title>Chart: T, of a, c</title>"), "{svg}");
    assert_eq!([">a</text>", ">b</text>", ">c</text>"].map(|name| svg.contains(name)), [true, false, true]);
    assert_eq!(all.only(&["a", "d"]).unwrap_err(), "its chart has no line \"d\"");
}
