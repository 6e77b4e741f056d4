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

/// A page that tells more than clients should know: `facts` by their names, and the lines of a log.
pub(crate) fn explained(status: u16, facts: &[(&str, &str)], lines: &str) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{status}</title>\
         <style>body{{font:1rem/1.5 system-ui,sans-serif;margin:2rem}}dt{{opacity:.7}}\
         pre{{white-space:pre-wrap}}</style><h1>{status}</h1><dl>"
    );
    for (name, value) in facts {
        page.push_str(&format!("<dt>{name}<dd>{}", escaped(value)));
    }
    page.push_str(&format!("</dl><pre>{}</pre></html>\n", escaped(lines)));
    page
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
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

    #[test]
    fn what_a_script_says_is_text_on_the_page() {
        let page = explained(502, &[("script", "<a>")], "a < b & c\n</pre><script>");
        assert!(
            page.contains("<dd>&lt;a&gt;</dl><pre>a &lt; b &amp; c\n&lt;/pre&gt;&lt;script&gt;")
        );
    }
}
