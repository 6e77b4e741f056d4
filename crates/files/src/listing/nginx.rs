//! Listings in the formats of nginx's `autoindex_format`, for programs that read them.

use std::fmt::Write;

use dunlin_config::ListingFormat;
use dunlin_http::html::escape;
use dunlin_http::semantics::date;

use super::Entry;

/// The length to which names are shortened in HTML.
const NAME: usize = 50;

/// Returns the media type, with its charset.
pub(super) fn media_type(format: ListingFormat, charset: &str) -> String {
    let (kind, charset) = match format {
        ListingFormat::NginxXml => ("text/xml", "utf-8"),
        ListingFormat::NginxJson => ("application/json", ""),
        ListingFormat::NginxJsonp => ("application/javascript", ""),
        ListingFormat::Auto | ListingFormat::Nginx => ("text/html", charset),
    };
    match charset {
        "" => kind.to_owned(),
        charset => format!("{kind}; charset={charset}"),
    }
}

/// Returns the listing of the decoded `path` in a format. `query` may name the function of JSONP.
pub(super) fn text(
    format: ListingFormat,
    entries: &[Entry],
    path: &[u8],
    query: Option<&[u8]>,
) -> String {
    match format {
        ListingFormat::NginxXml => xml(entries),
        ListingFormat::NginxJson => json(entries),
        ListingFormat::NginxJsonp => match callback(query) {
            Some(name) => format!("/* callback */\r\n{name}({});", json(entries)),
            None => json(entries),
        },
        ListingFormat::Auto | ListingFormat::Nginx => html(entries, path),
    }
}

/// Returns the name of the function that a JSONP client names, if it is a name.
fn callback(query: Option<&[u8]>) -> Option<&str> {
    let pairs = query.unwrap_or_default().split(|&byte| byte == b'&');
    let value = pairs.filter_map(|pair| pair.strip_prefix(b"callback=")).next()?;
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.$".contains(byte);
    let is_valid = !value.is_empty() && value.len() <= 128 && value.iter().all(is_name);
    std::str::from_utf8(value).ok().filter(|_| is_valid)
}

fn name(entry: &Entry) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(&entry.name)
}

fn json(entries: &[Entry]) -> String {
    let entries = entries.iter().map(|entry| {
        let name = serde_json::Value::from(&*name(entry));
        let kind = if entry.directory { "directory" } else { "file" };
        let seconds = u64::try_from(entry.modified).unwrap_or_default();
        let time = String::from_utf8_lossy(&date::format(seconds)).into_owned();
        let size =
            if entry.directory { String::new() } else { format!(", \"size\":{}", entry.size) };
        format!("{{ \"name\":{name}, \"type\":\"{kind}\", \"mtime\":\"{time}\"{size} }}")
    });
    format!("[\r\n{}\r\n]", entries.collect::<Vec<_>>().join(",\r\n"))
}

fn xml(entries: &[Entry]) -> String {
    let mut text = "<?xml version=\"1.0\"?>\r\n<list>\r\n".to_owned();
    for entry in entries {
        let (kind, size) = match entry.directory {
            true => ("directory", String::new()),
            false => ("file", format!(" size=\"{}\"", entry.size)),
        };
        let (name, time) = (name(entry), entry.timestamp());
        // As nginx, which leaves the single quote.
        let name = escape(&name).replace("&#39;", "'");
        let _ = write!(text, "<{kind} mtime=\"{time}\"{size}>{name}</{kind}>\r\n");
    }
    text + "</list>\r\n"
}

fn html(entries: &[Entry], path: &[u8]) -> String {
    let title = escape(&String::from_utf8_lossy(path));
    let mut text = format!(
        "<html>\r\n<head><title>Index of {title}</title></head>\r\n<body>\r\n<h1>Index of {title}</h1><hr><pre><a href=\"../\">../</a>\r\n"
    );
    for entry in entries {
        line(entry, &mut text);
    }
    text + "</pre><hr></body>\r\n</html>\r\n"
}

fn line(entry: &Entry, text: &mut String) {
    let href = entry.href();
    // A colon could end a scheme.
    let href = href.trim_start_matches("./").replace(':', "%3A");
    let slash = if entry.directory { "/" } else { "" };
    let name = format!("{}{slash}", name(entry));
    let length = name.chars().count();
    let (shown, rest) = match length > NAME {
        true => (name.chars().take(NAME - 3).collect::<String>(), "..&gt;"),
        false => (name, ""),
    };
    let _ = write!(text, "<a href=\"{}\">{}{rest}</a>", escape(&href), escape(&shown));
    let padding = NAME.saturating_sub(length);
    let time = time(entry.modified);
    let size = if entry.directory { "-".to_owned() } else { entry.size.to_string() };
    let _ = write!(text, "{:padding$} {time}{size:>20}\r\n", "");
}

/// Returns a time in UTC, as `28-Nov-2026 04:37`.
fn time(modified: i64) -> String {
    let seconds = u64::try_from(modified).unwrap_or_default();
    let (year, month, day) = date::civil_from_days(seconds / 86_400);
    let month = date::MONTHS[month as usize - 1];
    format!("{day:02}-{month}-{year} {:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Vec<Entry> {
        let entry = |name: &str, directory, size| Entry {
            name: name.as_bytes().to_vec(),
            directory,
            size,
            modified: 951_782_400,
        };
        vec![entry("a dir", true, 0), entry("a:<\"'>", false, 42), entry(&"x".repeat(60), false, 7)]
    }

    #[test]
    fn a_listing_has_the_form_of_nginx() {
        let html = text(ListingFormat::Nginx, &entries(), b"/<a>/", None);
        assert!(html.contains("<h1>Index of /&lt;a&gt;/</h1><hr><pre><a href=\"../\">../</a>\r\n"));
        let dir = "<a href=\"a%20dir/\">a dir/</a>";
        assert!(
            html.contains(&format!("{dir}{} 29-Feb-2000 00:00{:>20}\r\n", " ".repeat(44), "-")),
            "{html}"
        );
        assert!(html.contains("<a href=\"a%3A%3C%22"), "{html}");
        assert!(html.contains(&format!(">{}..&gt;</a> 29-Feb", "x".repeat(47))), "{html}");
    }

    #[test]
    fn programs_read_json_and_xml() {
        let json = text(ListingFormat::NginxJson, &entries(), b"/", None);
        assert!(json.starts_with("[\r\n{ \"name\":\"a dir\", \"type\":\"directory\", \"mtime\":\"Tue, 29 Feb 2000 00:00:00 GMT\" },\r\n"), "{json}");
        assert!(json.contains("\"a:<\\\"'>\"") && json.contains(", \"size\":42 }"), "{json}");
        assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
        let xml = text(ListingFormat::NginxXml, &entries(), b"/", None);
        assert!(
            xml.contains(
                "<file mtime=\"2000-02-29T00:00:00Z\" size=\"42\">a:&lt;&quot;'&gt;</file>"
            ),
            "{xml}"
        );
        let jsonp =
            |query: &str| text(ListingFormat::NginxJsonp, &[], b"/", Some(query.as_bytes()));
        assert_eq!(jsonp("a=b&callback=f.g"), "/* callback */\r\nf.g([\r\n\r\n]);");
        assert_eq!(jsonp("callback=alert(1)"), "[\r\n\r\n]");
    }
}
