//! The charts: the mean and the total duration by the number of concurrent tasks, next to the published ones, and schedules.

use crate::report::svg::{Chart, GREY, LineChart, Marker, Panel, ScheduleChart, Series, Style};

use super::figures::TaskFigures;
use super::measured::Measured;
use super::published::{GO, PUBLISHED_CORES, Published, published};
use super::runner::STD_THREADS;

/// The contestants of the chart `schedule`: the published two, and a pool.
const SCHEDULED: [&str; 3] = [STD_THREADS, GO, "mpsc_pool"];
/// The largest number of tasks of a schedule, so that each task can be seen.
const MAX_SCHEDULED: usize = 16;

/// Returns the charts `mean`, `total` and `schedule`; empty without observations.
///
/// # Errors
///
/// Returns an error if a published file cannot be read.
pub(super) fn charts(measured: &Measured) -> anyhow::Result<Vec<(String, Chart)>> {
    let published = published()?;
    let mean = durations(
        measured,
        ("mean", "mean duration of a task"),
        &|figures| figures.mean_duration_ms,
        published.each_ref().map(|rows| points(rows, |row| row.mean_duration_ms)),
    );
    let total = durations(
        measured,
        ("total", "total duration of all tasks"),
        &|figures| figures.total_duration_ms,
        published.each_ref().map(|rows| points(rows, |row| row.total_duration_ms)),
    );
    Ok([mean, total, schedule(measured)].into_iter().flatten().collect())
}

fn points(rows: &[Published], figure: impl Fn(&Published) -> f64) -> Vec<(u64, f64)> {
    rows.iter().map(|row| (row.tasks as u64, figure(row))).collect()
}

/// A line for each contestant, and grey ones for the published programs in Rust and in Go.
fn durations(
    measured: &Measured,
    (name, what): (&str, &str),
    figure: &dyn Fn(&TaskFigures) -> f64,
    published: [Vec<(u64, f64)>; 2],
) -> Option<(String, Chart)> {
    let line = |(place, name): (usize, &str)| {
        let cells = measured.all_at_once(name);
        let points = cells.iter().map(|cell| (cell.tasks as u64, figure(&cell.observed.figures)));
        let points: Vec<(u64, f64)> = points.filter(|(_, figure)| *figure > 0.0).collect();
        (!points.is_empty()).then(|| Series { name: name.to_owned(), style: Style::nth(place), points })
    };
    let mut lines: Vec<Series> = measured.contestants().into_iter().enumerate().filter_map(line).collect();
    let count = lines.len();
    for ((lang, mark), points) in [("Rust", Marker::Circle), ("Go", Marker::Square)].into_iter().zip(published) {
        let style = Style { colour: GREY, dashes: None, mark, is_hollow: true };
        lines.push(Series { name: format!("published, {lang}, {PUBLISHED_CORES} cores"), style, points });
    }
    let cores = measured.plan.as_ref().map_or(0, |plan| plan.core_count);
    let capital = what[..1].to_uppercase() + &what[1..];
    let title = format!("{capital} (ms), on {cores} cores");
    let about = format!(
        "Chart: the {what} in milliseconds by the number of tasks at once, of {count} contestants on {cores} cores, and as published"
    );
    let axis = String::from("tasks at once");
    (count > 0).then(|| (name.to_owned(), Chart::Lines(LineChart { title, about, axis, lines })))
}

/// The schedules at the largest number of tasks up to [`MAX_SCHEDULED`], all at once and in batches, in the order of the starts.
fn schedule(measured: &Measured) -> Option<(String, Chart)> {
    let counts = measured.cells.iter().filter(|cell| cell.series == 0 && SCHEDULED.contains(&cell.contestant.as_str()));
    let tasks = counts.map(|cell| cell.tasks).filter(|tasks| *tasks <= MAX_SCHEDULED).max()?;
    let batch_sizes = measured.cells.iter().filter(|cell| cell.tasks == tasks).map(|cell| cell.series);
    let batch_size = batch_sizes.filter(|size| *size > 0).max();
    let panel = |(name, series): (&str, usize)| {
        let mut tasks: Vec<(f64, f64)> = measured
            .cell(name, tasks, series)?
            .observed
            .schedule
            .iter()
            .map(|task| (task.started_ms, task.finished_ms))
            .collect();
        tasks.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let name = if series == 0 { name.to_owned() } else { format!("{name}, in batches of {series}") };
        Some(Panel { name, tasks })
    };
    let at_once = SCHEDULED.into_iter().map(|name| (name, 0));
    let in_batches = batch_size.into_iter().flat_map(|size| [STD_THREADS, GO].map(|name| (name, size)));
    let panels: Vec<Panel> = at_once.chain(in_batches).filter_map(panel).collect();
    let cores = measured.plan.as_ref().map_or(0, |plan| plan.core_count);
    let title = format!("When each of {tasks} tasks runs, on {cores} cores");
    let names: Vec<&str> = panels.iter().map(|panel| panel.name.as_str()).collect();
    let about = format!(
        "Chart: the schedules of {tasks} tasks on {cores} cores, a bar from the start to the end of each task: {}",
        names.join("; ")
    );
    let axis = String::from("ms from the first start");
    Some((String::from("schedule"), Chart::Schedule(ScheduleChart { title, about, axis, panels })))
}

#[cfg(test)]
mod tests {
    use super::super::claims::tests::{Simulated, lines, measured};
    use super::*;

    #[test]
    fn a_line_for_each_contestant_and_for_each_published_program() {
        assert!(charts(&Measured::default()).unwrap().is_empty());
        let measured = measured(&lines(&Simulated::fair()));
        let charts = charts(&measured).unwrap();
        let [(mean, Chart::Lines(chart)), (total, Chart::Lines(totals)), ..] = &charts[..] else {
            panic!("{charts:?}")
        };
        assert_eq!((mean.as_str(), total.as_str()), ("mean", "total"));
        let names: Vec<&str> = chart.lines.iter().map(|line| line.name.as_str()).collect();
        let published = ["published, Rust, 8 cores", "published, Go, 8 cores"];
        assert_eq!(names, [&measured.contestants()[..], &published].concat());
        let first = measured.cell(names[0], 1, 0).unwrap();
        assert_eq!(chart.lines[0].points[0], (1, first.observed.figures.mean_duration_ms));
        assert_eq!(totals.lines[names.len() - 2].points[39], (40, 6479.0));
        assert_eq!(chart.lines[names.len() - 2].points[39], (40, 3718.0));
    }

    /// The bars are those of the record, by their starts.
    #[test]
    fn a_schedule_has_a_bar_for_each_task() {
        let measured = measured(&lines(&Simulated::fair()));
        let (name, Chart::Schedule(chart)) = schedule(&measured).unwrap() else { panic!("another chart") };
        assert_eq!(name, "schedule");
        let names: Vec<&str> = chart.panels.iter().map(|panel| panel.name.as_str()).collect();
        let at_once = measured.contestants().into_iter().filter(|name| SCHEDULED.contains(name)).map(String::from);
        let in_batches = [STD_THREADS, GO].map(|name| format!("{name}, in batches of 8"));
        assert_eq!(names, at_once.chain(in_batches).collect::<Vec<_>>());
        for panel in &chart.panels {
            assert_eq!(panel.tasks.len(), MAX_SCHEDULED);
            assert!(panel.tasks.is_sorted_by(|(one, _), (other, _)| one <= other), "{panel:?}");
            assert!(panel.tasks.iter().all(|(start, end)| start < end), "{panel:?}");
        }
    }
}
