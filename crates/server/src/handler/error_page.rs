//! The small bodies of error answers and redirects.

/// The media type and text of the answer with that status.
pub(crate) fn render(status: u16, reason: &str, html: bool) -> (&'static str, String) {
    if !html {
        return ("text/plain; charset=utf-8", format!("{status} {reason}\n"));
    }
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{status} {reason}</title>\
         <style>body{{font:1.1rem/1.5 system-ui,sans-serif;display:grid;place-content:center;\
         min-height:90vh;text-align:center}}h1{{font-size:4rem;margin:0}}</style>\
         <h1>{status}</h1><p>{reason}</p></html>\n"
    );
    ("text/html; charset=utf-8", page)
}
