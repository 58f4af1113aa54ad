//! The style of lines: colours, dashes and markers.

/// Colours on white that can be told apart with colour blindness: the colours of Okabe and Ito without yellow, which is too
/// bright, then three of Paul Tol's.
pub(crate) const COLOURS: [&str; 10] =
    ["#000000", "#E69F00", "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#882255", "#999933", "#332288"];
/// The colour of a line that stands apart.
pub(crate) const GREY: &str = "#777777";
/// Patterns of dashes.
pub(crate) const DASHES: [&str; 2] = ["7 4", "2 3"];

/// The style of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// The colour in SVG.
    pub colour: &'static str,
    /// Lengths of dashes and of gaps; `None` is a solid line.
    pub dashes: Option<&'static str>,
    /// The marker of a point.
    pub mark: Marker,
    /// Whether marks are hollow.
    pub is_hollow: bool,
}

impl Style {
    /// The style of the line with this index in a chart. When the colours repeat, the markers differ.
    pub(crate) fn nth(place: usize) -> Self {
        let mark = Marker::ALL[(place + place / COLOURS.len()) % Marker::ALL.len()];
        Self { colour: COLOURS[place % COLOURS.len()], dashes: None, mark, is_hollow: false }
    }
}

/// The marker of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// A circle.
    Circle,
    /// A square.
    Square,
    /// A triangle.
    Triangle,
    /// A square on its corner.
    Diamond,
}

impl Marker {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Circle, Self::Square, Self::Triangle, Self::Diamond];
}
