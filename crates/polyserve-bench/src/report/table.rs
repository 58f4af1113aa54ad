//! Tables, for people and in Markdown.

use std::collections::HashMap;
use std::fmt;

use anstyle::{AnsiColor, Style};

use super::svg::escaped;
use super::{MAX_NAME, WIDTH, shortened};

/// The text of a table cell without a figure.
pub(crate) const EMPTY_CELL: &str = "-";

/// `figure` for a table's cell, or `EMPTY_CELL`.
pub fn or_empty(figure: Option<String>) -> String {
    figure.unwrap_or_else(|| EMPTY_CELL.to_owned())
}

/// The spaces between two columns.
const SEPARATOR: &str = "  ";

/// A table with aligned columns.
///
/// As text, the columns that do not fit in `WIDTH` follow in a table below, after the same first columns. The row
/// names of such a table are shortened to `MAX_NAME`.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
    is_numeric: bool,
    /// The number of first columns that name a row.
    name_columns: usize,
    /// Columns of texts in a table of numbers.
    text_columns: Vec<usize>,
    /// Colours by row and column.
    tones: HashMap<(usize, usize), Tone>,
}

/// The header of a column, and the function that returns an item's cell.
pub type Column<'a, T> = (&'a str, &'a dyn Fn(&T) -> String);

/// The colour of a cell on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Green.
    Good,
    /// Red.
    Bad,
    /// Dimmed.
    Quiet,
}

impl Tone {
    fn style(self) -> Style {
        match self {
            Self::Good => AnsiColor::Green.on_default(),
            Self::Bad => AnsiColor::Red.on_default(),
            Self::Quiet => Style::new().dimmed(),
        }
    }
}

impl Table {
    /// A table of texts: columns are aligned left.
    pub fn of_texts(header: &[impl ToString]) -> Self {
        let rows = vec![header.iter().map(ToString::to_string).collect()];
        Self { rows, is_numeric: false, name_columns: 1, text_columns: Vec::new(), tones: HashMap::new() }
    }

    /// A table of numbers: all columns but the first are aligned right.
    pub fn of_numbers(header: &[impl ToString]) -> Self {
        Self { is_numeric: true, ..Self::of_texts(header) }
    }

    /// A table of numbers with a row for each item.
    pub fn of_columns<T>(items: impl IntoIterator<Item = T>, columns: &[Column<'_, T>]) -> Self {
        let mut table = Self::of_numbers(&columns.iter().map(|(header, _)| *header).collect::<Vec<_>>());
        items.into_iter().for_each(|item| table.row(columns.iter().map(|(_, cell)| cell(&item)).collect()));
        table
    }

    /// This table, with this column aligned left.
    #[must_use]
    pub(crate) fn with_texts_in(mut self, column: usize) -> Self {
        self.text_columns.push(column);
        self
    }

    /// This table, with the first `columns` columns as the names of rows, instead of one column.
    #[must_use]
    pub(crate) fn named_by(mut self, columns: usize) -> Self {
        self.name_columns = columns;
        self
    }

    /// This table, with rows' names of at most `max` characters. See [`shortened`].
    #[must_use]
    pub(crate) fn with_names_of(mut self, max: usize) -> Self {
        for column in 0..self.name_columns {
            let mut cells: Vec<&mut String> = self.rows.iter_mut().filter_map(|row| row.get_mut(column)).collect();
            let names = shortened(&cells, max);
            cells.iter_mut().zip(names).for_each(|(cell, name)| **cell = name);
        }
        self
    }

    /// Colours a cell of the last row on terminals.
    pub(crate) fn tone(&mut self, column: usize, tone: Tone) {
        self.tones.insert((self.rows.len() - 1, column), tone);
    }

    /// The table without the column with this header, if there is one.
    #[must_use]
    pub(crate) fn without(mut self, header: &str) -> Self {
        let place = self.rows.first().and_then(|row| row.iter().position(|cell| cell == header));
        let Some(column) = place else { return self };
        for row in &mut self.rows {
            if column < row.len() {
                row.remove(column);
            }
        }
        let shifted = |other: usize| other - usize::from(other > column);
        self.text_columns = self.text_columns.into_iter().filter(|other| *other != column).map(shifted).collect();
        let tones = self.tones.into_iter().filter(|((_, other), _)| *other != column);
        self.tones = tones.map(|((row, other), tone)| ((row, shifted(other)), tone)).collect();
        self
    }

    /// The table with the columns of these headers only, in the order of the table. Returns the first header that is not in
    /// the table as an error.
    pub fn only<'a>(self, headers: &[&'a str]) -> Result<Self, &'a str> {
        let own = self.rows.first().cloned().unwrap_or_default();
        if let Some(unknown) = headers.iter().find(|header| own.iter().all(|own| own != **header)) {
            return Err(unknown);
        }
        let others = own.iter().filter(|header| !headers.contains(&header.as_str()));
        Ok(others.fold(self, |table, header| table.without(header)))
    }

    /// The number of characters of the longest line of [`wide`](Self::wide).
    pub(crate) fn width(&self) -> usize {
        self.wide().lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    /// The table as text with all columns in one line, whatever their width.
    pub fn wide(&self) -> String {
        self.lines(&self.all_columns(), false)
    }

    /// [`wide`](Self::wide) with its colours, for a terminal.
    pub(crate) fn coloured(&self) -> String {
        self.lines(&self.all_columns(), true)
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table, if it has a row.
    pub(crate) fn if_any(self) -> Option<Self> {
        (self.rows.len() > 1).then_some(self)
    }

    /// The header, then the rows. Their numbers of cells may differ.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// Returns the table in Markdown, with an end after each line. Cells are escaped, so they may contain any characters.
    pub fn markdown(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut text = String::new();
        for (place, row) in self.rows.iter().enumerate() {
            let cells = (0..columns).map(|column| row.get(column).map_or_else(String::new, |cell| in_markdown(cell)));
            text.push_str(&format!("| {} |\n", cells.collect::<Vec<_>>().join(" | ")));
            if place == 0 {
                let rule = |column: usize| if self.is_number(column) { "---:" } else { "---" };
                text.push_str(&format!("| {} |\n", (0..columns).map(rule).collect::<Vec<_>>().join(" | ")));
            }
        }
        text
    }
}

impl Table {
    /// Returns the table in HTML. Its headers are buttons, for a script that sorts. Cells are escaped.
    pub fn html(&self) -> String {
        let mut rows = self.rows.iter().map(|row| {
            row.iter().enumerate().map(|(column, cell)| {
                let class = if self.is_number(column) { " class=\"figure\"" } else { "" };
                (class, escaped(cell))
            })
        });
        let header = rows.next().into_iter().flatten();
        let header: String =
            header.map(|(class, cell)| format!("<th{class}><button type=\"button\">{cell}</button></th>")).collect();
        let mut html = format!("<table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n");
        for row in rows {
            let cells: String = row.map(|(class, cell)| format!("<td{class}>{cell}</td>")).collect();
            html.push_str(&format!("<tr>{cells}</tr>\n"));
        }
        html + "</tbody>\n</table>\n"
    }
}

/// Escapes a text for a line of Markdown: it ends no cell and no line, and has no HTML, emphasis or link.
pub fn in_markdown(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.split_whitespace().collect::<Vec<_>>().join(" ").chars() {
        match char {
            '<' => escaped.push_str("&lt;"),
            '&' => escaped.push_str("&amp;"),
            '|' | '\\' | '`' | '*' | '[' | ']' => escaped.extend(['\\', char]),
            char => escaped.push(char),
        }
    }
    escaped
}

impl Table {
    fn is_number(&self, column: usize) -> bool {
        self.is_numeric && column > 0 && !self.text_columns.contains(&column)
    }

    fn all_columns(&self) -> Vec<usize> {
        (0..self.rows.iter().map(Vec::len).max().unwrap_or(0)).collect()
    }

    /// The number of characters of a column's longest cell.
    fn width_of(&self, column: usize) -> usize {
        self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    }

    /// The columns of each part that is at most [`WIDTH`] wide. Each part starts with the columns that name a row.
    fn parts(&self) -> Vec<Vec<usize>> {
        let columns = self.all_columns();
        let (names, others) = columns.split_at(self.name_columns.min(columns.len()));
        let width = |part: &[usize]| -> usize {
            part.iter().map(|column| self.width_of(*column) + SEPARATOR.len()).sum::<usize>() - SEPARATOR.len()
        };
        let mut parts = vec![names.to_vec()];
        for column in others {
            let last = parts.len() - 1;
            parts[last].push(*column);
            if parts[last].len() > names.len() + 1 && width(&parts[last]) > WIDTH {
                parts[last].pop();
                parts.push([names, &[*column]].concat());
            }
        }
        parts
    }

    /// The text of these columns.
    fn lines(&self, columns: &[usize], is_coloured: bool) -> String {
        let widths: Vec<usize> = columns.iter().map(|column| self.width_of(*column)).collect();
        let mut text = String::new();
        for (row_index, row) in self.rows.iter().enumerate() {
            let cells: Vec<(usize, &String)> =
                columns.iter().filter_map(|column| Some((*column, row.get(*column)?))).collect();
            let last = cells.iter().rposition(|(_, cell)| !cell.is_empty()).unwrap_or(0);
            let mut line = String::new();
            for (position, ((column, cell), width)) in cells.into_iter().zip(&widths).enumerate().take(last + 1) {
                let padding = " ".repeat(width - cell.chars().count());
                let cell = match self.tones.get(&(row_index, column)).filter(|_| is_coloured) {
                    Some(tone) => format!("{}{cell}{:#}", tone.style(), tone.style()),
                    None => cell.clone(),
                };
                let separator = if position > 0 { SEPARATOR } else { "" };
                match self.is_number(column) {
                    true => line.push_str(&format!("{separator}{padding}{cell}")),
                    false => line.push_str(&format!("{separator}{cell}{padding}")),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = (self.width() > WIDTH).then(|| self.clone().with_names_of(MAX_NAME));
        let table = short.as_ref().unwrap_or(self);
        let parts: Vec<String> = table.parts().iter().map(|columns| table.lines(columns, false)).collect();
        f.write_str(&parts.join("\n"))
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

    #[test]
    fn html_has_a_button_for_each_column_and_no_markup_of_a_cell() {
        let mut table = Table::of_numbers(&["server", "n"]);
        table.row(vec!["<script>".into(), "1 & 2".into()]);
        let lines = [
            "<table>",
            "<thead><tr><th><button type=\"button\">server</button></th><th class=\"figure\"><button type=\"button\">n</button></th></tr></thead>",
            "<tbody>",
            "<tr><td>&lt;script&gt;</td><td class=\"figure\">1 &amp; 2</td></tr>",
            "</tbody>",
            "</table>",
            "",
        ];
        assert_eq!(table.html(), lines.join("\n"));
    }

    #[test]
    fn colours_do_not_move_columns() {
        let mut table = Table::of_numbers(&["server", "verdict", "n"]).with_texts_in(1);
        table.row(vec!["a".into(), "faster".into(), "10".into()]);
        table.tone(1, Tone::Good);
        table.row(vec!["b".into(), "tie".into(), "9".into()]);
        assert_eq!(table.to_string(), "server  verdict   n\na       faster   10\nb       tie       9\n");
        assert_eq!(table.coloured().replace("\u{1b}[32m", "").replace("\u{1b}[0m", ""), table.to_string());
        assert_ne!(table.coloured(), table.to_string());
        assert_eq!(table.width(), 19);
        let without = table.clone().without("verdict");
        assert_eq!(without.coloured(), "server   n\na       10\nb        9\n");
        assert_eq!(table.clone().only(&["n", "server"]).unwrap().coloured(), without.coloured());
        assert_eq!(table.only(&["n", "m"]).unwrap_err(), "m");
    }

    /// Regression test: the lines of tables with many columns were longer than a terminal.
    #[test]
    fn columns_that_do_not_fit_follow_below() {
        let columns: Vec<String> =
            ["server", "mode"].into_iter().map(String::from).chain((0..9).map(|n| n.to_string())).collect();
        let mut table = Table::of_numbers(&columns).named_by(2);
        let row =
            |name: &str| [name, "put"].map(String::from).into_iter().chain((0..9).map(|n| n.to_string().repeat(24)));
        table.row(row("one").collect());
        table.row(row("two").take(4).collect());
        let text = table.to_string();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let words = |text: &str| text.lines().map(|line| line.split_whitespace().map(String::from).collect()).collect();
        let lines: Vec<Vec<String>> = words(&text);
        assert_eq!(lines[0], ["server", "mode", "0", "1", "2", "3"]);
        assert_eq!(lines[2], ["two", "put", &"0".repeat(24), &"1".repeat(24)]);
        assert_eq!((lines[3].len(), &lines[4][..3]), (0, &["server", "mode", "4"].map(String::from)[..]));
        assert_eq!(lines[5].len(), 6);
        assert_eq!(lines[6], ["two", "put"]);
        assert_eq!(lines.iter().flatten().filter(|word| word.len() == 24).count(), 11, "{text}");
        assert_eq!(words(&table.wide())[1].len(), columns.len());
        // A very long name is shortened.
        let mut named = Table::of_numbers(&["server", "n"]);
        named.row(vec!["x".repeat(WIDTH), "1".into()]);
        let start = "x".repeat((MAX_NAME - "..".len()) / 2);
        assert_eq!(named.to_string().lines().last(), Some(format!("{start}..{start}  1").as_str()));
        assert!(named.markdown().contains(&"x".repeat(WIDTH)), "in Markdown it stays whole");
        // A part has at least one column of its own.
        let mut long = Table::of_texts(&["a", "b", "c"]);
        long.row(vec!["x".into(), "y".repeat(WIDTH), "z".into()]);
        assert_eq!(long.to_string().lines().count(), 5);
    }
}
