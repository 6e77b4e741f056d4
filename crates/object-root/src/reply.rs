//! The checks of a store's reply: its length is bounded, and its content is what was requested.

use std::error::Error;
use std::fmt;
use std::ops::RangeInclusive;

use http::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderName, RANGE};
use http::{HeaderMap, Method, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use object_store::client::{HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody};

/// Marks a request whose reply is the content of an object, which its reader takes as it needs it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Content;

/// Marks a request whose reply has at most that number of bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplyLimit(pub(crate) usize);

/// The properties against which the reply to a request is checked.
#[derive(Debug)]
pub(crate) struct Expected {
    /// The reply is the content of an object.
    pub(crate) is_content: bool,
    /// The reply is a page of a listing.
    pub(crate) is_listing: bool,
    /// The most bytes of another reply than content.
    pub(crate) limit: usize,
    /// The reply is an object, or its head.
    is_object: bool,
    range: Option<RangeInclusive<u64>>,
    has_range: bool,
}

/// A response with an error that `object_store` has no variant for.
#[derive(Debug)]
pub(crate) struct ErrorStatus {
    pub(crate) status: StatusCode,
    /// The code in an error document of S3.
    pub(crate) code: Option<String>,
}

/// A reply that is not what was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Violation {
    /// It names another place for the object.
    Redirect(StatusCode),
    /// The status is none with which an object is sent.
    NoObject(StatusCode),
    /// It is a part of the object, and the whole was requested.
    Part,
    /// It is another part of the object than was requested.
    OtherPart,
    /// It is longer than the limit.
    TooLong(usize),
}

/// The most bytes of a reply that is held whole. A page of a listing has 5,000 keys of 1,024 bytes at most.
const MAX_REPLY: usize = 16 << 20;
/// The most bytes of one entry of a listing: the characters of a key may be escaped.
const MAX_ENTRY: usize = 16 << 10;

impl ReplyLimit {
    /// Returns the limit for a page of a listing with that number of entries.
    pub(crate) fn of_page(entries: usize) -> Self {
        Self(entries.saturating_add(1).saturating_mul(MAX_ENTRY).min(MAX_REPLY))
    }
}

impl Expected {
    pub(crate) fn of(request: &HttpRequest) -> Self {
        let extensions = request.extensions();
        let range = text(request.headers(), &RANGE);
        let mut query = request.uri().query().unwrap_or_default().split('&');
        let is_dav = request.method().as_str() == "PROPFIND";
        let is_listing = is_dav || query.any(|part| matches!(part, "list-type=2" | "comp=list"));
        Self {
            is_listing,
            is_object: !is_listing && matches!(*request.method(), Method::GET | Method::HEAD),
            is_content: extensions.get::<Content>().is_some(),
            limit: extensions.get::<ReplyLimit>().map_or(MAX_REPLY, |limit| limit.0),
            range: range.and_then(|range| parse_range(range.strip_prefix("bytes=")?)),
            has_range: request.headers().contains_key(RANGE),
        }
    }

    /// Checks the head of a successful response.
    ///
    /// # Errors
    /// It has other bytes than were requested.
    pub(crate) fn verify(&self, response: &HttpResponse) -> Result<(), Violation> {
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {}
            // The content of others stands for something else (RFC 9110 §15.3).
            StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION => return Ok(()),
            status if self.is_object => return Err(Violation::NoObject(status)),
            _ => return Ok(()),
        }
        if !self.has_range {
            return Err(Violation::Part);
        }
        let fields = response.headers();
        let sent = text(fields, &CONTENT_RANGE).and_then(parse_content_range);
        let (Some((sent, size)), Some(range)) = (sent, &self.range) else {
            return Err(Violation::OtherPart);
        };
        let last = (*range.end()).min(size.saturating_sub(1));
        let length = text(fields, &CONTENT_LENGTH).map(str::parse);
        // Both ends are below the size, so that the sum does not overflow.
        let is_whole = length.is_none_or(|length| length == Ok(sent.end() - sent.start() + 1));
        if sent == (*range.start()..=last) && is_whole { Ok(()) } else { Err(Violation::OtherPart) }
    }
}

/// Reads a body into one piece of memory, whatever the size of its chunks.
///
/// # Errors
/// It is longer than `limit`, or the connection ended.
pub(crate) async fn read(body: HttpResponseBody, limit: usize) -> Result<Vec<u8>, HttpError> {
    let too_long = || HttpError::new(HttpErrorKind::Unknown, Violation::TooLong(limit));
    if body.size_hint().lower() > limit as u64 {
        return Err(too_long());
    }
    let (mut body, mut whole) = (body, Vec::new());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if whole.len() + data.len() > limit {
            return Err(too_long());
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole)
}

fn text<'a>(fields: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    fields.get(name)?.to_str().ok()
}

/// Parses `A-B`.
fn parse_range(text: &str) -> Option<RangeInclusive<u64>> {
    let (first, last) = text.split_once('-')?;
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some(first..=last)
}

/// Parses `bytes A-B/SIZE`.
fn parse_content_range(text: &str) -> Option<(RangeInclusive<u64>, u64)> {
    let (range, size) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (range, size) = (parse_range(range)?, size.parse().ok()?);
    (*range.end() < size).then_some((range, size))
}

impl fmt::Display for ErrorStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its status is {}", self.status)?;
        match &self.code {
            Some(code) => write!(f, " ({code})"),
            None => Ok(()),
        }
    }
}

impl Error for ErrorStatus {}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redirect(status) => {
                write!(f, "it redirects a request ({}), which is not followed", status.as_u16())
            }
            Self::NoObject(status) => {
                write!(f, "it sent no object, but the status {}", status.as_u16())
            }
            Self::Part => f.write_str("it sent a part of an object (206) that was requested whole"),
            Self::OtherPart => f.write_str("it sent another part of an object than was requested"),
            Self::TooLong(limit) => write!(f, "its reply is longer than {limit} bytes"),
        }
    }
}

impl Error for Violation {}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{Request, Response};
    use http_body::Frame;
    use http_body_util::StreamBody;
    use object_store::client::HttpRequestBody;

    use super::*;

    fn expected(range: Option<&str>) -> Expected {
        let request = Request::get("http://a/b");
        let request =
            range.into_iter().fold(request, |request, range| request.header(RANGE, range));
        Expected::of(&request.body(HttpRequestBody::empty()).unwrap())
    }

    fn verified(range: Option<&str>, content_range: &str, length: &str) -> Result<(), Violation> {
        let response = Response::builder()
            .status(StatusCode::PARTIAL_CONTENT)
            .header(CONTENT_RANGE, content_range)
            .header(CONTENT_LENGTH, length);
        expected(range).verify(&response.body(HttpResponseBody::from(Bytes::new())).unwrap())
    }

    #[test]
    fn a_part_is_the_one_that_was_requested() {
        let range = Some("bytes=2-5");
        assert_eq!(verified(range, "bytes 2-5/10", "4"), Ok(()));
        assert_eq!(verified(range, "bytes 2-3/4", "2"), Ok(()));
        assert_eq!(verified(None, "bytes 0-4/10", "5"), Err(Violation::Part));
        for (content_range, length) in [
            ("bytes 2-5/10", "5"),
            ("bytes 2-5/10", "x"),
            ("bytes 2-4/10", "3"),
            ("bytes 3-5/10", "3"),
            ("bytes 0-9/10", "10"),
            ("bytes 5-2/10", "4"),
            ("bytes 2-5/5", "4"),
            ("bytes 2-5/*", "4"),
            ("bytes 2-18446744073709551615/18446744073709551615", "4"),
            ("bytes 2-5", "4"),
            ("items 2-5/10", "4"),
            ("", "4"),
        ] {
            let result = verified(range, content_range, length);
            assert_eq!(result, Err(Violation::OtherPart), "{content_range:?} {length}");
        }
    }

    #[test]
    fn an_object_has_the_status_of_one() {
        let verified = |method: Method, target: &str, status: u16| {
            let request = Request::builder().method(method).uri(target);
            let expected = Expected::of(&request.body(HttpRequestBody::empty()).unwrap());
            let response = Response::builder().status(status);
            expected.verify(&response.body(HttpResponseBody::from(Bytes::new())).unwrap())
        };
        for status in [200, 203] {
            assert_eq!(verified(Method::GET, "http://a/b", status), Ok(()));
        }
        for status in [201, 202, 204, 205, 207, 226, 299] {
            let no_object = Err(Violation::NoObject(StatusCode::from_u16(status).unwrap()));
            assert_eq!(verified(Method::GET, "http://a/b", status), no_object);
            assert_eq!(verified(Method::HEAD, "http://a/b", status), no_object);
            assert_eq!(verified(Method::PUT, "http://a/b", status), Ok(()));
            assert_eq!(verified(Method::DELETE, "http://a/b", status), Ok(()));
            assert_eq!(
                verified(Method::from_bytes(b"PROPFIND").unwrap(), "http://a/", status),
                Ok(())
            );
        }
        assert_eq!(verified(Method::HEAD, "http://a/b", 206), Err(Violation::Part));
    }

    #[tokio::test]
    async fn a_reply_is_read_up_to_its_limit() {
        let body = |chunks: usize| {
            let chunk = || Ok::<_, HttpError>(Frame::data(Bytes::from_static(b"x")));
            let chunks = std::iter::repeat_with(chunk).take(chunks);
            HttpResponseBody::new(StreamBody::new(futures_util::stream::iter(chunks)))
        };
        assert_eq!(read(body(1000), 1000).await.unwrap(), vec![b'x'; 1000]);
        // A body without an end.
        let error = read(body(usize::MAX), 1000).await.unwrap_err();
        assert!(error.source().unwrap().to_string().contains("longer than 1000 bytes"));
        // A length that is announced is not reserved.
        let whole = HttpResponseBody::from(vec![0; 1001]);
        assert!(read(whole, 1000).await.is_err());
    }

    #[test]
    fn a_page_with_few_entries_is_small() {
        assert!(ReplyLimit::of_page(1).0 < 64 << 10);
        assert_eq!(ReplyLimit::of_page(usize::MAX).0, MAX_REPLY);
    }
}
