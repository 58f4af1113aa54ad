//! Grids of shaded cells, two side by side. Each cell has its figure as text.
//!
//! Invariant: within a grid, a darker cell has the larger figure. The grids do not share a scale, since they may come from
//! different machines. Cost: some hundred bytes a cell.

use std::fmt::Write as _;

use super::Chart;
use super::scale::{LETTER_WIDTH, axis_name, escaped, head};

/// A grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// The name, above the grid.
    pub name: String,
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The rows: a name, and a figure for each column.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

/// The size of a cell.
const CELL: (f64, f64) = (58.0, 26.0);
/// The margins of the chart, and above a grid for its name.
const TOP_MARGIN: f64 = 40.0;
const BOTTOM_MARGIN: f64 = 30.0;
const SIDE_MARGIN: f64 = 12.0;
const NAME_SPACE: f64 = 24.0;
/// Below a grid, for the names of its columns.
const COLUMNS_HEIGHT: f64 = 30.0;
/// The colours of the smallest and of the largest figure.
const LIGHT: [f64; 3] = [247.0, 251.0, 255.0];
const DARK: [f64; 3] = [8.0, 81.0, 156.0];
/// The min ratio of the largest to the smallest figure that uses all colours. So noise alone stays pale.
const MIN_SPAN: f64 = 2.0;

/// The chart without the end of its file.
pub(super) fn drawn(chart: &Chart, grids: &[Grid]) -> String {
    let letters = grids.iter().flat_map(|grid| &grid.rows).map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let left = letters as f64 * LETTER_WIDTH + 8.0;
    let max_count = |count: &dyn Fn(&Grid) -> usize| grids.iter().map(count).max().unwrap_or(0) as f64;
    let grid_width = left + max_count(&|grid| grid.columns.len()) * CELL.0 + SIDE_MARGIN;
    let grid_height = NAME_SPACE + max_count(&|grid| grid.rows.len()) * CELL.1 + COLUMNS_HEIGHT;
    let grid_rows = grids.len().div_ceil(2) as f64;
    let size = (2.0 * grid_width + SIDE_MARGIN, TOP_MARGIN + grid_rows * grid_height + BOTTOM_MARGIN);

    let mut svg = head(size, chart, SIDE_MARGIN);
    for (index, grid) in grids.iter().enumerate() {
        let x = SIDE_MARGIN + (index % 2) as f64 * grid_width;
        let y = TOP_MARGIN + (index / 2) as f64 * grid_height;
        svg.push_str(&drawn_grid(grid, (x, y), left));
    }
    svg.push_str(&axis_name((size.0 / 2.0, size.1 - 12.0), &chart.axis));
    svg
}

fn drawn_grid(grid: &Grid, (x, y): (f64, f64), left: f64) -> String {
    let figures = || grid.rows.iter().flat_map(|(_, figures)| figures).flatten().copied();
    let low = figures().fold(f64::INFINITY, f64::min);
    let span = (figures().fold(0.0, f64::max) / low).max(MIN_SPAN).ln();
    let (inner, top) = (x + left, y + NAME_SPACE);
    let mut svg = format!(
        "<text x=\"{inner:.1}\" y=\"{:.1}\" font-weight=\"600\">{}</text>\n",
        y + NAME_SPACE - 8.0,
        escaped(&grid.name)
    );
    for ((name, figures), row) in grid.rows.iter().zip(0..) {
        let row_y = top + f64::from(row) * CELL.1;
        let (text_y, name_x) = (row_y + CELL.1 / 2.0 + 4.0, inner - 8.0);
        let _ = writeln!(svg, r#"<text x="{name_x:.1}" y="{text_y:.1}" text-anchor="end">{}</text>"#, escaped(name));
        for (figure, column) in figures.iter().zip(0..).filter_map(|(figure, column)| Some(((*figure)?, column))) {
            let cell_x = inner + f64::from(column) * CELL.0;
            let share = ((figure / low).ln() / span).clamp(0.0, 1.0);
            let shade: Vec<String> =
                LIGHT.iter().zip(DARK).map(|(light, dark)| format!("{:.0}", light + (dark - light) * share)).collect();
            let (text_colour, centre) = (if share > 0.5 { "#fff" } else { "#222" }, cell_x + CELL.0 / 2.0);
            let _ = writeln!(
                svg,
                r##"<rect x="{cell_x:.1}" y="{row_y:.1}" width="{:.1}" height="{:.1}" fill="rgb({})" stroke="#fff"/>"##,
                CELL.0,
                CELL.1,
                shade.join(",")
            );
            let _ = writeln!(
                svg,
                r#"<text x="{centre:.1}" y="{text_y:.1}" text-anchor="middle" fill="{text_colour}">{}</text>"#,
                digits(figure)
            );
        }
    }
    let text_y = top + grid.rows.len() as f64 * CELL.1 + 16.0;
    for (name, column) in grid.columns.iter().zip(0..) {
        let centre = inner + (f64::from(column) + 0.5) * CELL.0;
        let _ = writeln!(
            svg,
            r##"<text x="{centre:.1}" y="{text_y:.1}" text-anchor="middle" fill="#555">{}</text>"##,
            escaped(name)
        );
    }
    svg
}

/// Three digits, or all digits of a large figure.
fn digits(figure: f64) -> String {
    match figure {
        figure if figure >= 99.95 => format!("{figure:.0}"),
        figure if figure >= 9.995 => format!("{figure:.1}"),
        figure => format!("{figure:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::svg::Marks;

    fn map(figures: &[f64]) -> String {
        let rows = vec![("r<1>".into(), figures.iter().copied().map(Some).chain([None]).collect())];
        let columns = (0..=figures.len()).map(|column| format!("c{column}")).collect();
        let grid = Grid { name: "a&b".into(), columns, rows };
        Chart { marks: Marks::Grids(vec![grid.clone(), grid]), ..Chart::default() }.to_svg()
    }

    #[test]
    fn a_cell_has_its_figure_and_its_shade() {
        let svg = map(&[1.0, 20.0, 400.0]);
        for text in
            [">r&lt;1&gt;</text>", ">a&amp;b</text>", ">1.00</text>", ">20.0</text>", ">400</text>", ">c3</text>"]
        {
            assert_eq!(svg.matches(text).count(), 2, "{text}: {svg}");
        }
        assert_eq!(svg.matches("<rect x=").count(), 6, "an empty cell is not drawn: {svg}");
        for shade in ["rgb(247,251,255)", "rgb(8,81,156)", "rgb(128,166,206)"] {
            assert!(svg.contains(shade), "{shade}: {svg}");
        }
    }

    /// Figures that differ by a few per cent are not drawn as light and dark.
    #[test]
    fn small_differences_stay_pale() {
        let svg = map(&[100.0, 104.0]);
        assert!(!svg.contains("rgb(8,81,156)") && svg.contains("rgb(233,"), "{svg}");
    }

    #[test]
    fn nothing_to_draw_is_no_reason_to_panic() {
        assert!(Chart { marks: Marks::Grids(Vec::new()), ..Chart::default() }.to_svg().ends_with("</svg>\n"));
        assert!(map(&[]).ends_with("</svg>\n"));
    }
}
