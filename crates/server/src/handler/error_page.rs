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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_small_and_say_status_and_reason() {
        let (media_type, page) = render(431, "Request Header Fields Too Large", true);
        assert_eq!(media_type, "text/html; charset=utf-8");
        assert!(page.len() <= 600, "{} bytes", page.len());
        assert!(page.contains("<title>431 Request Header Fields Too Large</title>"));
        assert_eq!(render(404, "Not Found", false).1, "404 Not Found\n");
    }
}
