//! Layout of text: lines of at most 80 columns, or of the terminal's, and colours if they are wanted.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Columns of a line, unless a terminal has more. Only a word that is longer, such as a URL, exceeds them.
pub const WIDTH: usize = 80;

/// Columns of a line at most, however wide the terminal is: longer lines are hard to read.
const WIDEST: usize = 120;

static COLUMNS: AtomicUsize = AtomicUsize::new(WIDTH);

/// Makes lines as wide as a terminal, from [`WIDTH`] to 120 columns.
pub fn fit(columns: usize) {
    COLUMNS.store(columns.clamp(WIDTH, WIDEST), Ordering::Relaxed);
}

/// Colours of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// Bold.
    Bold,
    /// Dim.
    Dim,
    /// Red.
    Red,
    /// Green.
    Green,
    /// Yellow.
    Yellow,
}

/// Applies colours, or leaves text as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Paint {
    colored: bool,
}

impl Paint {
    /// Applies colours if `colored`.
    #[must_use]
    pub fn new(colored: bool) -> Self {
        Self { colored }
    }

    /// `text` in a colour.
    #[must_use]
    pub fn apply(self, color: Color, text: &str) -> String {
        if !self.colored || text.is_empty() {
            return text.to_owned();
        }
        let code = match color {
            Color::Bold => 1,
            Color::Dim => 2,
            Color::Red => 31,
            Color::Green => 32,
            Color::Yellow => 33,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Breaks `text` at spaces into lines. The first line begins with `prefix`, the others with `indent` spaces.
#[must_use]
pub fn fill(prefix: &str, text: &str, indent: usize) -> String {
    let mut filled = prefix.to_owned();
    let mut column = prefix.chars().count();
    let mut starts_line = true;
    let width = COLUMNS.load(Ordering::Relaxed);
    for word in text.split(' ') {
        let length = word.chars().count();
        if !starts_line && column + 1 + length > width {
            filled.push('\n');
            filled.push_str(&" ".repeat(indent));
            column = indent;
            starts_line = true;
        }
        if !starts_line {
            filled.push(' ');
            column += 1;
        }
        filled.push_str(word);
        column += length;
        starts_line = false;
    }
    filled.truncate(filled.trim_end().len());
    filled.push('\n');
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_before_the_last_column_and_keep_their_words() {
        let text = "a server that responds ".repeat(12);
        let filled = fill("status      ", &text, 12);
        let lines: Vec<&str> = filled.lines().collect();
        assert!(lines.len() > 3 && lines.iter().all(|line| line.chars().count() <= WIDTH));
        assert!(lines[1..].iter().all(|line| line.starts_with("            ")));
        assert_eq!(filled.split_whitespace().count(), 1 + 12 * 4);
        let url = format!("http://127.0.0.1/{}", "a".repeat(100));
        assert!(fill("  ", &format!("first: {url} failed"), 2).contains(&url));
    }

    #[test]
    fn colors_are_left_out_if_they_are_not_wanted() {
        assert_eq!(Paint::default().apply(Color::Red, "STALLED"), "STALLED");
        assert_eq!(Paint::new(true).apply(Color::Red, "STALLED"), "\x1b[31mSTALLED\x1b[0m");
    }
}
