//! The tables of the rows.

use super::Report;
use crate::bench::figures::{self, Better, NamedFigure};
use crate::bench::sweep::{CellValue, SweepAxis, SweepCell};
use crate::experiment::distinct;
use crate::report::{Table, or_empty};
use crate::statistics::{Estimate, Interval, MAX_RATIO, MIN_ROUNDS};
use crate::turn::Role;

impl Report {
    /// The table of the rows.
    pub(super) fn table(&self) -> Table {
        let has = |figure: &&NamedFigure| self.rows.iter().any(|row| row.figures.contains_key(figure.name));
        let mut columns: Vec<&NamedFigure> =
            figures::ALL.iter().filter(|figure| figure.column.is_some()).filter(has).collect();
        columns.sort_by_key(|figure| figure.name != self.plan.compared); // it is the first one
        let titles = || columns.iter().filter_map(|figure| figure.column);
        let fixed = titles().take(1).chain(["ratio, 95 %", "verdict"]).chain(titles().skip(1));
        let of_rows = ["contestant", "#"].into_iter().chain(fixed).map(String::from);
        let header: Vec<String> = self.plan.axes.iter().map(ToString::to_string).chain(of_rows).collect();
        let contestant = self.plan.axes.len();
        let table = Table::of_numbers(&header).named_by(contestant + 1);
        let mut table = table.with_texts_in(contestant).with_texts_in(contestant + 4);
        let higher = NamedFigure::named(&self.plan.compared).is_none_or(|figure| figure.better == Better::Higher);
        let (more, less) = if higher { ("faster", "slower") } else { ("slower", "faster") };
        for row in &self.rows {
            let mut cells: Vec<String> =
                self.plan.axes.iter().map(|axis| or_empty(row.cell.get(axis).map(CellValue::to_string))).collect();
            cells.push(row.contestant.clone());
            cells.push(row.rank.map_or_else(String::new, |rank| rank.to_string()));
            let mut texts = columns.iter().map(|figure| row.text(figure));
            cells.extend(texts.next());
            cells.push(row.compared.map(|compared| ratio_text(&compared.estimate)).unwrap_or_default());
            cells.push(match (row.role, row.compared) {
                (Role::Baseline, _) => String::from("baseline"),
                (Role::Same, _) => String::from("A/A"),
                (Role::Limit, _) => String::from("limit"),
                (_, compared) => compared.map_or_else(String::new, |compared| compared.in_words(more, less)),
            });
            cells.extend(texts);
            table.row(cells);
        }
        table
    }

    /// The best contestant of each cell, under its name: a column for each value of the first chart's axis. Null servers and bare
    /// maps are limits: the best contestant is a share of the best of them.
    pub(super) fn best_table(&self) -> Option<(String, Table)> {
        let x = self.plan.charts.iter().find_map(|chart| chart.x)?;
        let figure = NamedFigure::named(&self.plan.compared)?;
        let others: Vec<SweepAxis> = self.plan.axes.iter().copied().filter(|axis| *axis != x).collect();
        let places = distinct(self.rows.iter().filter_map(|row| row.cell.get(&x)));
        if places.is_empty() {
            return None;
        }
        let texts = places.iter().map(ToString::to_string);
        let header: Vec<String> = others.iter().map(ToString::to_string).chain(texts).collect();
        let mut table = Table::of_texts(&header);
        let rest = |cell: &SweepCell| -> Vec<Option<CellValue>> {
            others.iter().map(|axis| cell.get(axis).cloned()).collect()
        };
        for part in distinct(self.rows.iter().map(|row| rest(&row.cell))) {
            let best = |place: &&CellValue| {
                let here = || self.rows.iter().filter(|row| row.cell.get(&x) == Some(place) && rest(&row.cell) == part);
                let best = here().find(|row| row.role.is_ranked() && !row.is_limit())?;
                let value = best.figure(figure.name)?;
                let limits = here().filter(|row| row.is_limit() && row.role != Role::Same);
                let limits = limits.filter_map(|row| Some((&row.contestant, row.figure(figure.name)?)));
                let is_higher = figure.better == Better::Higher;
                let limit = limits.max_by(|(_, a), (_, b)| if is_higher { a.total_cmp(b) } else { b.total_cmp(a) });
                let share = limit.map(|(name, limit)| format!(", {:.2} of {name}", value / limit)).unwrap_or_default();
                Some(format!("{} {}{share}", best.contestant, best.text(&figure)))
            };
            let row = part.iter().map(|value| value.as_ref().map_or_else(String::new, CellValue::to_string));
            table.row(row.chain(places.iter().map(|place| or_empty(best(place)))).collect());
        }
        Some((format!("the best by {x}"), table))
    }
}

/// A ratio with its interval, if there are enough rounds for one. That to a baseline without an answer is infinite.
pub(crate) fn ratio_text(estimate: &Estimate) -> String {
    let Estimate { ratio, interval: Interval { low, high }, rounds } = estimate;
    let [ratio, low, high] =
        [*ratio, *low, *high].map(|one| if one < MAX_RATIO { format!("{one:.2}") } else { "inf".into() });
    if *rounds < MIN_ROUNDS { ratio } else { format!("{ratio} [{low}, {high}]") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: a baseline of which no answer was good made a ratio of 1000000000.00.
    #[test]
    fn a_ratio_to_nothing_is_infinite() {
        let estimate = |rounds, high| Estimate { ratio: high, interval: Interval { low: 0.5, high }, rounds };
        assert_eq!(ratio_text(&estimate(1, MAX_RATIO)), "inf");
        assert_eq!(ratio_text(&estimate(MIN_ROUNDS, MAX_RATIO)), "inf [0.50, inf]");
        assert_eq!(ratio_text(&estimate(MIN_ROUNDS, 2.0)), "2.00 [0.50, 2.00]");
    }
}
