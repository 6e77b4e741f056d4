//! Default bodies of error responses and redirects.

use dunlin_http::{FieldLines, FieldName, Request};

/// The media type of HTML pages.
pub(crate) const HTML: &str = "text/html; charset=utf-8";

/// The media type and body of a response with this status; `detail` describes the error in plain text.
pub(crate) fn render(
    status: u16,
    reason: &str,
    detail: Option<&str>,
    html: bool,
) -> (&'static str, String) {
    if !html {
        return ("text/plain; charset=utf-8", format!("{status} {reason}\n"));
    }
    let detail = detail.map_or(String::new(), |detail| format!("<p>{}", escaped(detail)));
    (HTML, page(status, reason, &detail))
}

/// The page of a redirect.
pub(crate) fn linking(status: u16, reason: &str, location: &str) -> String {
    let location = escaped(location);
    page(status, reason, &format!("<p><a href=\"{location}\">{location}</a>"))
}

fn page(status: u16, reason: &str, more: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{status} {reason}</title>\
         <style>body{{font:1.1rem/1.5 system-ui,sans-serif;display:grid;place-content:center;\
         min-height:90vh;text-align:center;overflow-wrap:anywhere}}h1{{font-size:4rem;margin:0}}</style>\
         <h1>{status}</h1><p>{reason}{more}</html>\n"
    )
}

/// What pages repeat of a request.
pub(crate) struct RequestLine<'a> {
    method: &'a [u8],
    host: &'a [u8],
    target: &'a [u8],
}

impl<'a> RequestLine<'a> {
    pub(crate) fn of(request: &Request<'a>) -> Self {
        let host = request.field(FieldName::Host).unwrap_or_default();
        Self { method: request.method_text(), host, target: request.target() }
    }
}

/// A sentence about a response with this status to `request`, for the page of an error that has no other. `fields` are those
/// of the response.
pub(crate) fn advice(
    status: u16,
    request: &RequestLine<'_>,
    fields: &FieldLines,
) -> Option<String> {
    let target = request.target.split(|&byte| byte == b'?').next().unwrap_or_default();
    let is_path = target.starts_with(b"/");
    let place = match target.windows(3).position(|part| part == b"://").filter(|_| !is_path) {
        Some(end) => quoted(&target[end + 3..]),
        None => quoted(&[request.host, target].concat()),
    };
    let value = |name| fields.get(name).map(quoted);
    let later = match value("Retry-After") {
        Some(seconds) if seconds != "1" => format!("Try again in {seconds} seconds."),
        _ => "Try again in a moment.".to_owned(),
    };
    Some(match status {
        401 => format!("{place} is only for users who have signed in."),
        403 => format!("You are not permitted to open {place}."),
        404 => format!("There is no page {place}. Check the address."),
        405 => {
            let allowed =
                value("Allow").map_or_else(String::new, |allow| format!(" Allowed: {allow}."));
            let method = quoted(request.method);
            format!("{place} does not accept the method {method}.{allowed}")
        }
        410 => format!("{place} has been removed."),
        413 => "The body of the request is larger than this server accepts.".to_owned(),
        429 => format!("You have sent too many requests. {later}"),
        503 => format!("The server cannot respond to {place} now. {later}"),
        500 | 502 | 504 => {
            format!("The server failed to respond to {place}. Its error log has the reason.")
        }
        _ => return None,
    })
}

/// Bytes of a request, sanitized and shortened for a page.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    const MAX: usize = 200;
    let text = String::from_utf8_lossy(bytes);
    let is_shown = |c: &char| {
        !c.is_control() && !matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown: String = text.chars().filter(is_shown).take(MAX).collect();
    if text.chars().count() > MAX {
        shown.push('…');
    }
    shown
}

/// A page for developers: named `details`, and what the script wrote to its standard error.
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
         <style>body{{font:1rem/1.5 system-ui,sans-serif;margin:2rem;overflow-wrap:anywhere}}\
         dt{{font-weight:600}}h2{{font-size:1.1rem}}pre{{white-space:pre-wrap}}</style>\
         <h1>{status} {reason}</h1><dl>"
    );
    for (name, value) in details {
        page.push_str(&format!("<dt>{name}<dd>{}", escaped(value)));
    }
    let errors = if errors.is_empty() { "(nothing)" } else { errors };
    page.push_str(&format!(
        "</dl><h2>Standard error of the script</h2><pre>{}</pre></html>\n",
        escaped(errors)
    ));
    page
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_small_and_contain_status_and_reason() {
        let (media_type, page) = render(431, "Request Header Fields Too Large", None, true);
        assert_eq!(media_type, "text/html; charset=utf-8");
        assert!(page.len() <= 600, "{} bytes", page.len());
        assert!(page.contains("<title>431 Request Header Fields Too Large</title>"));
        assert_eq!(render(404, "Not Found", None, false).1, "404 Not Found\n");
    }

    #[test]
    fn text_of_a_request_is_not_markup() {
        let (_, page) = render(421, "Misdirected Request", Some("<b \"a\" 'c' &>"), true);
        assert!(page.contains("<p>&lt;b &quot;a&quot; &#39;c&#39; &amp;&gt;</html>"), "{page}");
        let page = linking(301, "Moved Permanently", "/\"><script>");
        assert!(page.contains("<a href=\"/&quot;&gt;&lt;script&gt;\">"), "{page}");
        assert_eq!(quoted(b"/a\x01\xe2\x80\xaeb"), "/ab");
        assert_eq!(quoted(&[b'a'; 300]).chars().count(), 201);
    }

    #[test]
    fn pages_name_the_host_and_the_path() {
        let advice = |target: &str, status, fields: &FieldLines| {
            let (method, host, target) = (b"PUT".as_slice(), b"a.example", target.as_bytes());
            advice(status, &RequestLine { method, host, target }, fields).unwrap()
        };
        let none = FieldLines::new();
        for target in ["/x://y?secret", "http://a.example/x://y?secret"] {
            let text = advice(target, 404, &none);
            assert_eq!(text, "There is no page a.example/x://y. Check the address.");
        }
        let mut fields = FieldLines::new();
        fields.push("Allow", "GET, HEAD");
        fields.push("Retry-After", "30");
        let text = advice("/x", 405, &fields);
        assert_eq!(text, "a.example/x does not accept the method PUT. Allowed: GET, HEAD.");
        assert!(advice("/x", 429, &fields).ends_with("Try again in 30 seconds."));
    }

    #[test]
    fn output_of_a_script_is_text_on_the_page() {
        let page = explained(502, "Bad Gateway", &[("script", "<a>")], "a < b & c\n</pre><script>");
        assert!(
            page.contains("<dd>&lt;a&gt;</dl><h2>Standard error of the script</h2><pre>a &lt; b &amp; c\n&lt;/pre&gt;&lt;script&gt;")
        );
    }
}
