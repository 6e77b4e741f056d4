//! The text of responses (RFC 4918 §13, §14).

use std::fmt::Write;

use dunlin_http::semantics::date;
use dunlin_http::semantics::status::reason;

use super::locks::Lock;
use super::properties::LIVE;
use super::requests::{Change, Propfind};
use super::xml::{DAV, Element, Name, escaped};

/// The media type of the bodies.
pub const MEDIA_TYPE: &str = "application/xml; charset=utf-8";
/// The beginning of a multistatus.
pub const START: &str =
    "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n";
/// The end of a multistatus.
pub const END: &str = "</D:multistatus>\n";

/// A resource with its properties.
#[derive(Debug, Clone, Default)]
pub struct Resource {
    /// The path for clients, encoded; that of a collection ends with a slash.
    pub href: String,
    /// It is a collection, or else a file.
    pub is_collection: bool,
    /// Size of a file in bytes.
    pub length: u64,
    /// Time of the last change, in seconds since 1970.
    pub modified: Option<u64>,
    /// The entity tag of a file.
    pub tag: Option<String>,
    /// The media type of a file.
    pub media_type: Option<String>,
    /// The properties that clients have set.
    pub properties: Vec<Element>,
}

/// The locks of a resource, and whether there can be locks.
#[derive(Debug, Clone, Copy)]
pub struct LocksOf<'a> {
    /// The locks that cover it.
    pub locks: &'a [Lock],
    /// Clients can lock it.
    pub is_lockable: bool,
    /// Milliseconds of the clock of the locks.
    pub now: u64,
}

/// Appends the response for a resource to a PROPFIND.
pub fn write_properties(
    wanted: &Propfind,
    resource: &Resource,
    locks: LocksOf<'_>,
    out: &mut String,
) {
    let (mut found, mut missing) = (String::new(), String::new());
    let live = |name: &Name, out: &mut String| {
        &*name.namespace == DAV && write_live(&name.local, resource, locks, out)
    };
    match wanted {
        Propfind::Names => {
            for name in LIVE.map(Name::dav) {
                if live(&name, &mut String::new()) {
                    name.write_empty(&mut found);
                }
            }
            resource.properties.iter().for_each(|property| property.name.write_empty(&mut found));
        }
        Propfind::All(included) => {
            LIVE.iter().for_each(|name| {
                write_live(name, resource, locks, &mut found);
            });
            resource.properties.iter().for_each(|property| property.write(&mut found));
            let is_new = |name: &&Name| {
                !super::properties::is_live(name)
                    && !resource.properties.iter().any(|property| property.name == **name)
            };
            included.iter().filter(is_new).for_each(|name| name.write_empty(&mut missing));
        }
        Propfind::Some(names) => {
            for name in names {
                if live(name, &mut found) {
                    continue;
                }
                match resource.properties.iter().find(|property| property.name == *name) {
                    Some(property) => property.write(&mut found),
                    None => name.write_empty(&mut missing),
                }
            }
        }
    }
    begin_response(&resource.href, out);
    // A response has a status at least.
    if !found.is_empty() || missing.is_empty() {
        propstat(&found, 200, out);
    }
    if !missing.is_empty() {
        propstat(&missing, 404, out);
    }
    out.push_str("</D:response>\n");
}

/// Appends a property of the server. Returns `false` if the resource does not have it.
fn write_live(name: &str, resource: &Resource, locks: LocksOf<'_>, out: &mut String) -> bool {
    // Writing to a string does not fail.
    let _ = match (name, resource) {
        ("resourcetype", Resource { is_collection: true, .. }) => {
            write!(out, "<D:resourcetype><D:collection/></D:resourcetype>")
        }
        ("resourcetype", _) => write!(out, "<D:resourcetype/>"),
        ("getcontentlength", Resource { is_collection: false, length, .. }) => {
            write!(out, "<D:getcontentlength>{length}</D:getcontentlength>")
        }
        ("getcontenttype", Resource { media_type: Some(media_type), .. }) => {
            let media_type = escaped(media_type);
            write!(out, "<D:getcontenttype>{media_type}</D:getcontenttype>")
        }
        ("getetag", Resource { tag: Some(tag), .. }) => {
            write!(out, "<D:getetag>{}</D:getetag>", escaped(tag))
        }
        ("getlastmodified", Resource { modified: Some(modified), .. }) => {
            let date = date::format(*modified);
            let date = String::from_utf8_lossy(&date);
            write!(out, "<D:getlastmodified>{date}</D:getlastmodified>")
        }
        ("creationdate", Resource { modified: Some(modified), .. }) => {
            write!(out, "<D:creationdate>{}</D:creationdate>", timestamp(*modified))
        }
        ("lockdiscovery", _) if locks.is_lockable => {
            write_locks(locks, out);
            Ok(())
        }
        ("supportedlock", _) if locks.is_lockable => write!(out, "{SUPPORTED_LOCK}"),
        _ => return false,
    };
    true
}

const SUPPORTED_LOCK: &str = "<D:supportedlock>\
    <D:lockentry><D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockentry>\
    <D:lockentry><D:lockscope><D:shared/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockentry>\
    </D:supportedlock>";

/// Returns a time as RFC 3339 has it.
fn timestamp(seconds: u64) -> String {
    let (year, month, day) = date::civil_from_days(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

fn write_locks(LocksOf { locks, now, .. }: LocksOf<'_>, out: &mut String) {
    out.push_str("<D:lockdiscovery>");
    for lock in locks {
        let scope = if lock.is_exclusive { "exclusive" } else { "shared" };
        let depth = if lock.is_deep { "infinity" } else { "0" };
        let left = lock.expires.saturating_sub(now).div_ceil(1000);
        let owner = lock.owner.as_deref().unwrap_or_default();
        let (token, root) = (escaped(&lock.token), escaped(&lock.href));
        let _ = write!(
            out,
            "<D:activelock><D:locktype><D:write/></D:locktype><D:lockscope><D:{scope}/></D:lockscope>\
             <D:depth>{depth}</D:depth>{owner}<D:timeout>Second-{left}</D:timeout>\
             <D:locktoken><D:href>{token}</D:href></D:locktoken><D:lockroot><D:href>{root}</D:href></D:lockroot>\
             </D:activelock>"
        );
    }
    out.push_str("</D:lockdiscovery>");
}

/// Returns the body of the response to a LOCK.
pub fn lock_response(locks: LocksOf<'_>) -> String {
    let mut out =
        String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:prop xmlns:D=\"DAV:\">");
    write_locks(locks, &mut out);
    out.push_str("</D:prop>\n");
    out
}

/// Returns the body of the response to a PROPPATCH: all changes were made with this status, or, if properties of the server are
/// among them, none.
pub fn patch_response(href: &str, changes: &[Change], status: u16) -> String {
    let mut out = String::from(START);
    begin_response(href, &mut out);
    let is_live = |change: &&Change| super::properties::is_live(&change.name);
    let (live, other): (Vec<_>, Vec<_>) = changes.iter().partition(is_live);
    let names = |changes: &[&Change]| {
        let mut names = String::new();
        changes.iter().for_each(|change| change.name.write_empty(&mut names));
        names
    };
    if live.is_empty() {
        propstat(&names(&other), status, &mut out);
    } else {
        propstat(&names(&live), 403, &mut out);
        if !other.is_empty() {
            // Failed Dependency.
            propstat(&names(&other), 424, &mut out);
        }
    }
    out.push_str("</D:response>\n");
    out.push_str(END);
    out
}

/// Appends the response for a resource with a status of its own.
pub fn write_status(href: &str, status: u16, out: &mut String) {
    begin_response(href, out);
    status_line(status, out);
    out.push_str("</D:response>\n");
}

/// Returns the body of an error with a condition, an element of WebDAV; `href` is the resource that it concerns.
pub fn error(condition: &str, href: Option<&str>) -> String {
    let head = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:error xmlns:D=\"DAV:\">";
    match href {
        Some(href) => format!(
            "{head}<D:{condition}><D:href>{}</D:href></D:{condition}></D:error>\n",
            escaped(href)
        ),
        None => format!("{head}<D:{condition}/></D:error>\n"),
    }
}

fn begin_response(href: &str, out: &mut String) {
    let _ = write!(out, "<D:response><D:href>{}</D:href>", escaped(href));
}

fn propstat(properties: &str, status: u16, out: &mut String) {
    let _ = write!(out, "<D:propstat><D:prop>{properties}</D:prop>");
    status_line(status, out);
    out.push_str("</D:propstat>");
}

fn status_line(status: u16, out: &mut String) {
    let _ = write!(out, "<D:status>HTTP/1.1 {status} {}</D:status>", reason(status));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::{propfind, proppatch};
    use crate::xml::read;

    fn file() -> Resource {
        let property = read(b"<a xmlns='n'>1</a>").expect("an element");
        Resource {
            href: "/a%20b".into(),
            length: 3,
            modified: Some(1_000_000_000),
            tag: Some("\"t\"".into()),
            media_type: Some("text/plain".into()),
            properties: vec![property],
            ..Resource::default()
        }
    }

    const NO_LOCKS: LocksOf<'_> = LocksOf { locks: &[], is_lockable: false, now: 0 };

    fn written(body: &[u8], resource: &Resource, locks: LocksOf<'_>) -> String {
        let mut out = String::from(START);
        write_properties(&propfind(body).expect("a request"), resource, locks, &mut out);
        out.push_str(END);
        assert!(read(out.as_bytes()).is_ok(), "{out}");
        out
    }

    #[test]
    fn properties_are_found_or_missing() {
        let body = b"<p:propfind xmlns:p='DAV:'><p:prop><p:getetag/><a xmlns='n'/><p:x/><b xmlns='n&amp;'/></p:prop></p:propfind>";
        assert!(written(body, &file(), NO_LOCKS).contains(
            "<D:response><D:href>/a%20b</D:href><D:propstat><D:prop><D:getetag>&quot;t&quot;</D:getetag><a xmlns=\"n\">1</a></D:prop>\
             <D:status>HTTP/1.1 200 OK</D:status></D:propstat><D:propstat><D:prop><D:x/><b xmlns=\"n&amp;\"/></D:prop>\
             <D:status>HTTP/1.1 404 Not Found</D:status></D:propstat></D:response>"
        ));
        let all = written(b"", &file(), NO_LOCKS);
        for part in [
            "<D:creationdate>2001-09-09T01:46:40Z</D:creationdate>",
            "<D:getlastmodified>Sun, 09 Sep 2001 01:46:40 GMT</D:getlastmodified>",
            "<D:getcontentlength>3</D:getcontentlength>",
            "<D:resourcetype/>",
            "<a xmlns=\"n\">1</a>",
        ] {
            assert!(all.contains(part), "{part}");
        }
        assert!(!all.contains("lockdiscovery"));
        let names = written(b"<propfind xmlns='DAV:'><propname/></propfind>", &file(), NO_LOCKS);
        assert!(names.contains("<D:getetag/>") && names.contains("<a xmlns=\"n\"/>"));
        let collection =
            Resource { is_collection: true, href: "/c/".into(), ..Resource::default() };
        let all = written(b"", &collection, NO_LOCKS);
        assert!(all.contains("<D:collection/>") && !all.contains("getcontentlength"));
    }

    #[test]
    fn locks_are_described() {
        let lock = Lock {
            token: "urn:uuid:1".into(),
            href: "/a&b".into(),
            is_deep: true,
            is_exclusive: false,
            owner: Some("<D:owner>ann</D:owner>".into()),
            user: None,
            timeout: 10,
            expires: 10_000,
        };
        let locks = LocksOf { locks: &[lock], is_lockable: true, now: 7_500 };
        let text = lock_response(locks);
        assert!(read(text.as_bytes()).is_ok(), "{text}");
        for part in [
            "<D:lockscope><D:shared/></D:lockscope>",
            "<D:depth>infinity</D:depth><D:owner>ann</D:owner><D:timeout>Second-3</D:timeout>",
            "<D:href>urn:uuid:1</D:href>",
            "<D:lockroot><D:href>/a&amp;b</D:href></D:lockroot>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(written(b"", &file(), locks).contains("<D:supportedlock>"));
    }

    #[test]
    fn no_change_is_made_beside_one_of_the_server() {
        let body = b"<propertyupdate xmlns='DAV:'><set><prop><getetag/><a xmlns='n'/></prop></set></propertyupdate>";
        let changes = proppatch(body).expect("changes");
        let text = patch_response("/a", &changes, 200);
        assert!(text.contains("<D:getetag/></D:prop><D:status>HTTP/1.1 403 Forbidden</D:status>"));
        assert!(text.contains(
            "<a xmlns=\"n\"/></D:prop><D:status>HTTP/1.1 424 Failed Dependency</D:status>"
        ));
        let text = patch_response("/a", &changes[1..], 200);
        assert!(
            text.contains("<a xmlns=\"n\"/></D:prop><D:status>HTTP/1.1 200 OK</D:status>"),
            "{text}"
        );
        assert!(read(error("lock-token-submitted", Some("/a&")).as_bytes()).is_ok());
        let mut text = String::new();
        write_status("/a", 423, &mut text);
        assert!(text.contains("<D:status>HTTP/1.1 423 Locked</D:status>"), "{text}");
    }
}
