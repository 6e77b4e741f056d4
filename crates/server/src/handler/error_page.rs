//! Default bodies of error responses and redirects.

use dunlin_http::FieldLines;
use dunlin_http::html::{escape, escape_lines};

/// The media type of HTML pages.
pub(crate) const HTML: &str = "text/html; charset=utf-8";

/// Returns the media type and body of a response with this status; `detail` describes the error in plain text.
pub(crate) fn render(
    status: u16,
    reason: &str,
    detail: Option<&str>,
    html: bool,
    request_id: Option<&str>,
) -> (&'static str, String) {
    if !html {
        return ("text/plain; charset=utf-8", format!("{status} {reason}\n"));
    }
    let mut more = detail.map_or(String::new(), |detail| format!("<p>{}", escape(detail)));
    more += match status {
        403 | 404 | 410 => "<p><a href=\"/\">Home page</a>",
        500..=599 => "<p><a href=\"\">Try again</a>",
        _ => "",
    };
    if let Some(id) = request_id {
        more += &format!("<p class=\"dim\">Request {}", escape(id));
    }
    (HTML, page(status, reason, &more))
}

/// Returns the page of a redirect.
pub(crate) fn linking(status: u16, reason: &str, location: &str) -> String {
    let location = escape(location);
    page(status, reason, &format!("<p><a href=\"{location}\">{location}</a>"))
}

fn page(status: u16, reason: &str, more: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{status} {reason}</title>\
         <style>{PALETTE}body{{font:1.1rem/1.5 system-ui,sans-serif;display:grid;place-content:center;\
         min-height:90vh;text-align:center;overflow-wrap:anywhere}}h1{{font-size:4rem;margin:0}}p{{margin:.3rem}}</style>\
         <main><h1>{status}</h1><p>{reason}{more}</main></html>\n"
    )
}

/// The colours of the pages that the server makes, as listings and the status page have them.
const PALETTE: &str = "body{color:#1d2327;background:#fbfaf7}a{color:#0b5f7a}.dim{color:#5c6770;font-size:.8rem}\
    @media(prefers-color-scheme:dark){body{color:#e6e3dc;background:#14181b}a{color:#7cc7e0}.dim{color:#9aa3a9}}";

/// Returns a sentence about a response with this status, for the page of an error that has no other. `fields` are those of
/// the response. It names the `host` and no path: text from a link should not appear as the server's.
pub(crate) fn advice(
    status: u16,
    method: &[u8],
    host: &[u8],
    fields: &FieldLines,
) -> Option<String> {
    let host = if host.is_empty() { "This server".to_owned() } else { quoted(host) };
    let value = |name| fields.get(name).map(quoted);
    let later = match value("Retry-After").as_deref() {
        None | Some("1") => "Try again in a moment.".to_owned(),
        Some(seconds) if seconds.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("Try again in {seconds} seconds.")
        }
        Some(date) => format!("Try again after {date}."),
    };
    Some(match status {
        401 => format!("{host} shows this page only to users who have signed in."),
        403 => format!("{host} does not permit you to open this page."),
        404 => format!("{host} has no page at this address."),
        405 => {
            let (method, allow) = (quoted(method), value("Allow").unwrap_or_default());
            format!("This address does not accept the method {method}. Allowed: {allow}.")
        }
        410 => format!("{host} no longer has this page, or the link to it has expired."),
        413 => format!("{host} does not accept a request body of this size."),
        429 => format!("You have sent too many requests to {host}. {later}"),
        503 => format!("{host} cannot respond now. {later}"),
        500 | 502 | 504 => {
            format!("{host} cannot show this page because of an internal error.")
        }
        _ => return None,
    })
}

/// Returns the bytes of a request, sanitized and shortened for a page.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    const MAX: usize = 200;
    // A NUL stands for an encoded slash.
    let text = String::from_utf8_lossy(bytes).replace('\0', "%2F");
    let is_shown = |c: &char| {
        !c.is_control() && !matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown: String = text.chars().filter(is_shown).take(MAX).collect();
    if text.chars().count() > MAX {
        shown.push('…');
    }
    shown
}

/// Returns a page for developers: named `details`, and what the script wrote to its standard error.
pub(crate) fn explained(
    status: u16,
    reason: &str,
    details: &[(&str, &str)],
    errors: &str,
) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{status} {reason}</title>\
         <style>{PALETTE}body{{font:1rem/1.5 system-ui,sans-serif;margin:2rem;overflow-wrap:anywhere}}\
         dt{{font-weight:600}}dd{{margin:0 0 .5rem 1rem}}h2{{font-size:1.1rem}}pre{{white-space:pre-wrap}}</style>\
         <main><h1>{status} {reason}</h1><dl>"
    );
    for (name, value) in details {
        page.push_str(&format!("<dt>{name}<dd>{}", escape(value)));
    }
    let errors = if errors.is_empty() { "(nothing)" } else { errors };
    page.push_str(&format!(
        "</dl><h2>Standard error of the script</h2><pre>{}</pre></main></html>\n",
        escape_lines(errors)
    ));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_small_and_contain_status_and_reason() {
        let (media_type, page) = render(431, "Request Header Fields Too Large", None, true, None);
        assert_eq!(media_type, "text/html; charset=utf-8");
        assert!(page.len() <= 900, "{} bytes", page.len());
        assert!(page.contains("<title>431 Request Header Fields Too Large</title>"));
        assert_eq!(render(404, "Not Found", None, false, None).1, "404 Not Found\n");
    }

    #[test]
    fn text_of_a_request_is_not_markup() {
        let (_, page) = render(421, "Misdirected Request", Some("<b \"a\" 'c' &>"), true, None);
        assert!(
            page.contains("<p>&lt;b &quot;a&quot; &#39;c&#39; &amp;&gt;</main></html>"),
            "{page}"
        );
        let page = linking(301, "Moved Permanently", "/\"><script>");
        assert!(page.contains("<a href=\"/&quot;&gt;&lt;script&gt;\">"), "{page}");
        assert_eq!(quoted(b"/a\x01\xe2\x80\xaeb"), "/ab");
        assert_eq!(quoted(&[b'a'; 300]).chars().count(), 201);
    }

    #[test]
    fn pages_name_the_host_and_what_to_do() {
        let mut fields = FieldLines::new();
        fields.push("Allow", "GET, HEAD");
        fields.push("Retry-After", "30");
        let advice = |status| advice(status, b"PUT", b"a.example", &fields).unwrap();
        assert_eq!(advice(404), "a.example has no page at this address.");
        assert!(advice(405).ends_with(" the method PUT. Allowed: GET, HEAD."));
        assert_eq!(advice(503), "a.example cannot respond now. Try again in 30 seconds.");
    }

    #[test]
    fn pages_lead_on_and_have_the_request_that_the_error_log_names() {
        let page = |status, id| render(status, "R", None, true, id).1;
        assert!(page(404, None).contains("<a href=\"/\">"));
        assert!(
            page(502, Some("ab12"))
                .contains("<a href=\"\">Try again</a><p class=\"dim\">Request ab12<")
        );
        assert!(!page(502, None).contains("Request ") && !page(400, None).contains("<a "));
    }

    #[test]
    fn output_of_a_script_is_text_on_the_page() {
        let page = explained(502, "Bad Gateway", &[("script", "<a>")], "a < b & c\n</pre><script>");
        assert!(
            page.contains("<dd>&lt;a&gt;</dl><h2>Standard error of the script</h2><pre>a &lt; b &amp; c\n&lt;/pre&gt;&lt;script&gt;")
        );
    }
}
