//! SVG pictures: shapes and text in a colour of a server or of the text around them.

use std::fmt::Write;

use dunlin_http::html::escape;

/// A picture that is being drawn.
pub(super) struct Svg {
    size: (f64, f64),
    body: String,
}

/// Alignment of a text relative to its position.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A colour for each column: those of Okabe and Ito, which are distinguishable for the colour-blind, and some more.
pub(super) const COLOURS: [&str; 9] = [
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B48C00", "#56B4E9", "#785EF0", "#964B3C",
    "#828282",
];

/// Returns the colour of a server.
pub(super) fn colour(server: usize) -> String {
    COLOURS[server % COLOURS.len()].to_owned()
}

/// Colour of lines and text, which is that of the page around a chart.
pub(super) const INK: &str = "currentColor";
/// Width of all charts.
pub(super) const WIDTH: f64 = 720.0;
/// Size of text.
const FONT: f64 = 13.0;
/// Average width of a character, to reserve room for texts.
const CHARACTER: f64 = 7.2;

/// Returns the room that a text takes at most.
pub(super) fn width_of(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}

impl Svg {
    /// Creates an empty picture of that height.
    pub(super) fn new(height: f64) -> Self {
        Self { size: (WIDTH, height), body: String::new() }
    }

    /// A filled rectangle.
    pub(super) fn rectangle(&mut self, at: (f64, f64), size: (f64, f64), fill: &str, opacity: f64) {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            self.body,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{fill}\" fill-opacity=\"{opacity}\"/>",
            at.0, at.1, size.0, size.1
        );
    }

    /// A line from one point to the next.
    pub(super) fn path(&mut self, points: &[(f64, f64)], stroke: &str, width: f64) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            self.body,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"/>",
            points.join(" ")
        );
    }

    /// A line of the grid.
    pub(super) fn grid(&mut self, from: (f64, f64), to: (f64, f64)) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{INK}\" stroke-opacity=\"0.18\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// A point.
    pub(super) fn point(&mut self, at: (f64, f64), fill: &str) {
        let _ = writeln!(
            self.body,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{fill}\"/>",
            at.0, at.1
        );
    }

    /// A text, whose baseline begins, has its middle or ends at a point.
    pub(super) fn text(&mut self, at: (f64, f64), anchor: Anchor, text: &str, bold: bool) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let weight = if bold { " font-weight=\"600\"" } else { "" };
        let _ = writeln!(
            self.body,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" fill=\"{INK}\"{weight}>{}</text>",
            at.0,
            at.1,
            escape(text)
        );
    }

    /// Returns the picture with its text alternative. `id` is unique on the page.
    pub(super) fn finish(self, id: &str, title: &str, description: &str) -> String {
        let (width, height) = self.size;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"{id}-title {id}-text\" font-family=\"system-ui, sans-serif\" font-size=\"{FONT}\">\n<title id=\"{id}-title\">{}</title>\n<desc id=\"{id}-text\">{}</desc>\n{}</svg>",
            escape(title),
            escape(description),
            self.body,
            id = escape(id),
        )
    }
}
