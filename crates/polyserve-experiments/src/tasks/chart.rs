//! The chart: the mean duration of a task by the number of concurrent tasks, for each contestant.

use polyserve_report::svg::{Chart, LineChart, Series, Style};

use super::measured::Measured;

/// The chart `mean`; none without observations.
pub(super) fn charts(measured: &Measured) -> Vec<(String, Chart)> {
    let line = |(place, name): (usize, &str)| {
        let cells = measured.all_at_once(name).into_iter().filter(|cell| cell.observed.figures.mean_duration_ms > 0.0);
        let points: Vec<(u64, f64)> =
            cells.map(|cell| (cell.tasks as u64, cell.observed.figures.mean_duration_ms)).collect();
        (!points.is_empty()).then(|| Series { name: name.to_owned(), style: Style::nth(place), points })
    };
    let lines: Vec<Series> = measured.contestants().into_iter().enumerate().filter_map(line).collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let cores = measured.plan.as_ref().map_or(0, |plan| plan.core_count);
    let title = format!("Mean duration of a task (ms), on {cores} cores");
    let about = format!(
        "Chart: the mean duration of a task in milliseconds by the number of tasks at once, of {} contestants on {cores} cores",
        lines.len()
    );
    vec![(String::from("mean"), Chart::Lines(LineChart { title, about, axis: String::from("tasks at once"), lines }))]
}

#[cfg(test)]
mod tests {
    use super::super::claims::tests::{Made, lines, measured};
    use super::*;

    #[test]
    fn a_line_for_each_contestant() {
        assert!(charts(&Measured::default()).is_empty());
        let measured = measured(&lines(&Made::fair()));
        let charts = charts(&measured);
        let [(name, Chart::Lines(chart))] = &charts[..] else { panic!("{charts:?}") };
        assert_eq!(name, "mean");
        let names: Vec<&str> = chart.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, measured.contestants());
        let first = measured.cell(names[0], 1, 0).unwrap();
        assert_eq!(chart.lines[0].points[0], (1, first.observed.figures.mean_duration_ms));
    }
}
