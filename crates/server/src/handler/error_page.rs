//! The small bodies of error answers.

pub(crate) fn render(status: u16, reason: &str, html: bool) -> (&'static str, String) {
    if html {
        ("text/html; charset=utf-8", format!("<!doctype html><title>{status} {reason}</title><h1>{status} {reason}</h1>\n"))
    } else {
        ("text/plain; charset=utf-8", format!("{status} {reason}\n"))
    }
}
