//! The documents that a page includes: requests that the server makes to itself.

use std::rc::Rc;

use dunlin_exchange::{Client, Includes, Incoming, Response, StreamKind};
use dunlin_http::FieldLines;
use dunlin_http::semantics::{Method, date, path};
use dunlin_net::address::SocketAddresses;
use dunlin_transform::ssi::{Include, Target, What};

use super::body_bytes::BodyBytes;
use crate::handler::call::HandlerCall;
use crate::handler::rewrite::RewrittenRequest;
use crate::route::route_match::TargetSource;

/// Gets the documents that a page includes.
#[derive(Debug, Clone)]
pub(super) struct Includer {
    /// The request for the page.
    pub(super) call: Rc<HandlerCall>,
    pub(super) includes: Includes,
    pub(super) ends: Option<SocketAddresses>,
}

/// What is included.
#[derive(Debug)]
pub(super) enum Included {
    Bytes(BodyBytes),
    Text(String),
}

/// Fields of the request for the page that those for its documents do not have.
const LEFT_OUT: [&str; 8] = [
    "accept-encoding",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "range",
    "upgrade",
];

impl Includer {
    /// Returns what a directive includes; `None` if there is no such document.
    pub(super) async fn get(self, include: &Include) -> Option<Included> {
        let url = url(&include.target, &self.call.matched.path)?;
        let includes = self.includes.enter();
        if includes.is_none() {
            let page = String::from_utf8_lossy(&self.call.matched.path).into_owned();
            tracing::warn!(
                page,
                "a page includes more documents, or deeper, than the server permits"
            );
        }
        let is_read = include.what == What::Content;
        let mut includes = includes?;
        includes.is_description = !is_read;
        let mut response = self.fetch(&url, is_read, includes).await?;
        if !(200..300).contains(&response.status) {
            return None;
        }
        if is_read {
            let stream = response.body.take_stream();
            if stream.as_ref().is_some_and(|stream| stream.kind != StreamKind::Body) {
                return None;
            }
            let source = stream.map(|stream| stream.source);
            return Some(Included::Bytes(BodyBytes::new(response.body, source)));
        }
        let size = response.stated_length.or(response.body.known_length());
        let modified = response.fields.get("Last-Modified").and_then(date::parse);
        match &include.what {
            What::Modified(_) => Some(Included::Text(include.what.text(0, modified?))),
            what => Some(Included::Text(what.text(size?, 0))),
        }
    }

    /// Returns the response to a request for a document of the site.
    async fn fetch(&self, url: &[u8], is_read: bool, includes: Includes) -> Option<Response> {
        let HandlerCall { ctx, .. } = &*self.call;
        let original = self.call.request();
        let limits = &ctx.http1.limits;
        let none = &FieldLines::NONE;
        let method = if is_read { Method::Get } else { Method::Head };
        let made = RewrittenRequest::with_method(&original, method, url, &LEFT_OUT, none, limits)?;
        let request = made.as_request();
        let client: Client = self.call.client().admitted();
        let mut path = Vec::new();
        let routed = ctx.router.dispatch(ctx, client, TargetSource::Server, &request, &mut path);
        // The response of the page may have begun, so that there are no interim responses.
        let incoming = Incoming::without_content(self.ends, client.encrypted, None);
        let incoming = Box::new(Incoming { includes, ..*incoming });
        Some(Box::pin(routed.ok()?.reply.response(&request, incoming)).await)
    }
}

/// Returns the request target of a document, seen from the page at `page`; `None` if it has none.
fn url(target: &Target, page: &[u8]) -> Option<Vec<u8>> {
    let page = path::with_slashes(page);
    let directory = &page[..=page.iter().rposition(|&byte| byte == b'/')?];
    match target {
        Target::Virtual(url) if url.starts_with('/') => Some(cleaned(url)),
        Target::Virtual(url) if !url.is_empty() => {
            Some([path::encode(directory).as_bytes(), &cleaned(url)].concat())
        }
        Target::File(file) => {
            let is_beneath = !file.is_empty()
                && !file.starts_with('/')
                && !file.split('/').any(|name| matches!(name, "." | ".."));
            let file = [directory, file.as_bytes()].concat();
            is_beneath.then(|| path::encode(&file).into_bytes())
        }
        Target::Virtual(_) => None,
    }
}

/// Returns a URL whose bytes a request target can have. What is encoded stays as it is.
fn cleaned(url: &str) -> Vec<u8> {
    let url = url.split('#').next().unwrap_or_default();
    let mut target = Vec::with_capacity(url.len());
    for byte in url.bytes() {
        match byte {
            b'!'..=b'~'
                if !matches!(
                    byte,
                    b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}'
                ) =>
            {
                target.push(byte);
            }
            byte => target.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_named_from_the_page_on() {
        let of =
            |target| url(&target, b"/a b/page.html").map(|url| String::from_utf8(url).unwrap());
        let of_url = |text: &str| of(Target::Virtual(text.into()));
        let of_file = |text: &str| of(Target::File(text.into()));
        assert_eq!(of_url("/x%20y?a=b c#d"), Some("/x%20y?a=b%20c".into()));
        assert_eq!(of_url("x?y"), Some("/a%20b/x?y".into()));
        assert_eq!(of_url("../x"), Some("/a%20b/../x".into()));
        assert_eq!(of_url("/\r\nx"), Some("/%0D%0Ax".into()));
        assert_eq!(of_url(""), None);
        assert_eq!(of_file("x/é?"), Some("/a%20b/x/%C3%A9%3F".into()));
        for file in ["", "/x", "../x", "x/../../y"] {
            assert_eq!(of_file(file), None, "{file}");
        }
    }
}
