//! Running text of a page.

use clap_mangen::roff::{Inline, bold, roman};

/// Text with `code` in bold. Line breaks are spaces.
pub(super) fn inlines(text: &str) -> Vec<Inline> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts = text.split('`').enumerate().filter(|(_, part)| !part.is_empty());
    parts.map(|(n, part)| if n % 2 == 1 { bold(part) } else { roman(part) }).collect()
}
