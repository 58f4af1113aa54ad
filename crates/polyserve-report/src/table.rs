//! Tables, for people and in Markdown.

use std::fmt;

/// What stands in a table's cell where there is no figure.
pub const NOTHING: &str = "-";

/// `figure` for a table's cell, or [`NOTHING`].
pub fn or_nothing(figure: Option<String>) -> String {
    figure.unwrap_or_else(|| NOTHING.to_owned())
}

/// A table with aligned columns.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
    numbers: bool,
}

impl Table {
    /// One of texts: columns are aligned left.
    pub fn of_texts(header: &[&str]) -> Self {
        Self { rows: vec![header.iter().map(ToString::to_string).collect()], numbers: false }
    }

    /// One of numbers: all columns but the first are aligned right.
    pub fn of_numbers(header: &[&str]) -> Self {
        Self { numbers: true, ..Self::of_texts(header) }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The header, then the rows; some may have fewer cells than others.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// The table in Markdown, each line with its end. Whatever a cell says stays within it.
    pub fn markdown(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut text = String::new();
        for (place, row) in self.rows.iter().enumerate() {
            let cells = (0..columns).map(|column| row.get(column).map_or_else(String::new, |cell| in_markdown(cell)));
            text.push_str(&format!("| {} |\n", cells.collect::<Vec<_>>().join(" | ")));
            if place == 0 {
                let rule = |column: usize| if self.numbers && column > 0 { "---:" } else { "---" };
                text.push_str(&format!("| {} |\n", (0..columns).map(rule).collect::<Vec<_>>().join(" | ")));
            }
        }
        text
    }
}

/// A text that stands for itself in a line of Markdown: no end of a cell or of a line, no HTML, no emphasis, no link.
pub fn in_markdown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.split_whitespace().collect::<Vec<_>>().join(" ").chars() {
        match char {
            '<' => shown.push_str("&lt;"),
            '&' => shown.push_str("&amp;"),
            '|' | '\\' | '`' | '*' | '[' | ']' => shown.extend(['\\', char]),
            char => shown.push(char),
        }
    }
    shown
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        for row in &self.rows {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, width))| match self.numbers && column > 0 {
                    true => format!("{cell:>width$}"),
                    false => format!("{cell:<width$}"),
                })
                .collect();
            writeln!(f, "{}", cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut texts = Table::of_texts(&["a", "b"]);
        texts.row(vec!["long".into(), "x".into()]);
        assert_eq!(texts.to_string(), "a     b\nlong  x\n");
        let mut numbers = Table::of_numbers(&["phase", "n"]);
        numbers.row(vec!["get".into(), "100".into()]);
        assert_eq!(numbers.to_string(), "phase    n\nget    100\n");
    }

    #[test]
    fn markdown_keeps_cells_apart() {
        let mut table = Table::of_numbers(&["server", "n"]);
        table.row(vec!["a|b<script>\n`x`".into(), "[1, 2]".into()]);
        table.row(vec!["short".into()]);
        let lines = ["| server | n |", "| --- | ---: |", r"| a\|b&lt;script> \`x\` | \[1, 2\] |", "| short |  |", ""];
        assert_eq!(table.markdown(), lines.join("\n"));
    }
}
