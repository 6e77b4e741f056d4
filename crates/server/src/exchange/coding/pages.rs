//! Pages of scripts and upstreams that are compressed with a dictionary (RFC 9842), which is made of such pages.
//!
//! A dictionary has nothing of one visitor: no response to a request with credentials or cookies is a sample, and what is not common to
//! the samples of several visitors is left out (`dunlin_dictionary::train`). A page that is for one visitor is not compressed with it,
//! since its length would reveal what it has in common with pages that others write to.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dunlin_coding::SharedDictionary;
use dunlin_config::PageDictionary;
use dunlin_dictionary::fields::{Reader, wanted};
use dunlin_dictionary::route::{MAKING_MEMORY, MAX_SAMPLE, RouteDictionary, Slot, Version};
use dunlin_exchange::stream::{self, Broken, Receiver};
use dunlin_exchange::{Client, Response, Stream, StreamKind};
use dunlin_files::shared::Shared;
use dunlin_http::semantics::Method;
use dunlin_http::semantics::list::{members, split};
use dunlin_http::semantics::target::{self, Target};
use dunlin_http::{FieldLines, FieldName, Request};
use dunlin_memory::Reservation;
use dunlin_net::address::Peer;
use dunlin_net::clock::monotonic_millis;

use super::memory_pieces;

/// The dictionary of a route.
#[derive(Debug, Clone)]
pub(crate) struct RoutePages {
    pub(crate) rules: Arc<PageDictionary>,
    pub(crate) dictionary: Arc<RouteDictionary>,
}

/// Who has sent a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requester {
    pub(crate) client: Client,
    /// The server knows who it is: by a certificate, or a login.
    pub(crate) is_known: bool,
}

/// A request for a page of a route with a dictionary.
#[derive(Debug, Clone)]
pub(super) struct PageRequest {
    pages: RoutePages,
    /// The dictionary that the client has and may use, and who sees the response.
    available: Option<(Arc<Version>, Reader)>,
    has_cookies: bool,
    /// The visitor and the URL, if the response may be a sample.
    sample: Option<(u64, u64)>,
}

impl PageRequest {
    /// Reads a request; `None` if the dictionary is for other URLs, or the connection is not secure.
    pub(super) fn of(
        pages: RoutePages,
        request: &Request<'_>,
        requester: Requester,
    ) -> Option<Box<Self>> {
        let client = requester.client;
        let path = match target::parse(request.method(), request.target()) {
            Ok(Target::Origin { path, .. } | Target::Absolute { path, .. }) => path,
            _ => return None,
        };
        let is_page = matches!(request.method(), Method::Get | Method::Head)
            && client.encrypted
            && !client.is_subrequest
            && pages.dictionary.matches(path);
        if !is_page {
            return None;
        }
        let RoutePages { rules, dictionary } = &pages;
        let has = |name: &[u8]| request.fields().any(|(given, _)| given.eq_ignore_ascii_case(name));
        let is_excluded = requester.is_known
            || request.has(FieldName::Authorization)
            || has(b"proxy-authorization")
            || rules.unless.iter().any(|name| has(name.as_bytes()));
        let available = wanted(request).filter(|_| !is_excluded);
        let available =
            available.and_then(|hash| Some((dictionary.find(&hash)?, Reader::of(request))));
        let has_cookies = has(b"cookie");
        let is_sample = !is_excluded && !has_cookies && request.method() == Method::Get;
        let sample = is_sample.then(|| (visitor(request, client.address), hash(request.target())));
        Some(Box::new(Self { pages, available, has_cookies, sample }))
    }

    /// Offers the dictionary in a response to such a request, takes a sample of it, and returns the dictionary that it is to be
    /// compressed with.
    pub(super) fn prepare(
        &self,
        response: &mut Response,
        files: &Arc<Shared>,
    ) -> Option<Arc<SharedDictionary>> {
        let dictionary = &self.pages.dictionary;
        load(dictionary, files);
        let standing = Standing::of(&response.fields, &self.pages.rules);
        let usable = self.available.as_ref().filter(|(_, reader)| {
            !standing.is_private
                && (!self.has_cookies || standing.is_public)
                && reader.may_read(response.fields.get("Access-Control-Allow-Origin"))
        });
        if let Some((visitor, url)) = self.sample
            && !standing.is_private
            && response.status == 200
            && let Some(slot) = dictionary.begin_sample(visitor, url, monotonic_millis())
        {
            take_sample(response, slot, files);
        }
        let known = self.available.as_ref().map(|(version, _)| version.hash);
        if let Some(current) = dictionary.current().filter(|current| Some(current.hash) != known) {
            let link = format!("<{}>; rel=\"compression-dictionary\"", current.path);
            response.fields.push("Link", link);
        }
        usable.map(|(version, _)| {
            let (header, content) = (version.header(), version.content.clone());
            Arc::new(SharedDictionary { header, content })
        })
    }
}

/// Whom a response is for.
#[derive(Debug, Default)]
struct Standing {
    /// It is for one visitor, or must not be stored, or a field excludes it.
    is_private: bool,
    /// It states that it is for everyone, whatever the request has.
    is_public: bool,
}

impl Standing {
    fn of(fields: &FieldLines, rules: &PageDictionary) -> Self {
        let mut standing = Self::default();
        let mut varies_by_cookie = false;
        for (name, value) in fields.iter() {
            let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
            standing.is_private |= is("Set-Cookie") || rules.unless.iter().any(|name| is(name));
            if is("Vary") {
                standing.is_private |= members(&[value]).any(|member| member == b"*");
                varies_by_cookie |=
                    members(&[value]).any(|member| member.eq_ignore_ascii_case(b"cookie"));
            } else if is("Cache-Control") {
                for directive in members(&[value]) {
                    let name = split(directive, b'=').next().unwrap_or_default();
                    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
                    standing.is_private |= is(b"private") || is(b"no-store");
                    standing.is_public |= is(b"public") || is(b"s-maxage");
                }
            }
        }
        standing.is_public &= !varies_by_cookie;
        standing
    }
}

/// Has the dictionaries of before a restart read by a thread, once.
fn load(dictionary: &Arc<RouteDictionary>, files: &Arc<Shared>) {
    if !dictionary.needs_load() {
        return;
    }
    let (loaded, for_job) = (Arc::clone(dictionary), Arc::clone(files));
    let job = move || loaded.load(&for_job.history, monotonic_millis());
    if files.pools.files.submit(0, job).is_err() {
        dictionary.load_later();
    }
}

/// Takes a sample of a response, now or as it is sent.
fn take_sample(response: &mut Response, slot: Slot, files: &Arc<Shared>) {
    if let Some(stream) = response.body.take_stream() {
        let Stream { source, length, kind } = *stream;
        let source = if kind == StreamKind::Body {
            let held = Reservation::of_connection();
            let files = Arc::clone(files);
            let sample = Vec::new();
            stream::from_source(Box::new(SampledBody {
                source,
                slot: Some(slot),
                sample,
                files,
                held,
            }))
        } else {
            source
        };
        response.body = dunlin_exchange::Body::streamed(Stream { source, length, kind });
        return;
    }
    let Some(pieces) = memory_pieces(&response.body) else { return };
    let mut sample = Vec::new();
    for piece in &pieces {
        append(&mut sample, piece);
    }
    end(slot, sample, files);
}

/// Appends as much of the bytes as a sample has room for.
fn append(sample: &mut Vec<u8>, bytes: &[u8]) {
    let room = MAX_SAMPLE - sample.len();
    sample.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

fn end(slot: Slot, mut sample: Vec<u8>, files: &Arc<Shared>) {
    sample.shrink_to_fit();
    let Some(making) = slot.end(sample.into(), monotonic_millis()) else { return };
    let for_job = Arc::clone(files);
    // If the pool rejects the job, more samples have it tried again.
    let _ = files
        .pools
        .compression
        .submit(MAKING_MEMORY, move || making.run(&for_job.history, monotonic_millis()));
}

/// A body whose beginning becomes a sample.
struct SampledBody {
    source: Receiver,
    /// `None` when the sample is complete.
    slot: Option<Slot>,
    sample: Vec<u8>,
    files: Arc<Shared>,
    held: Reservation,
}

impl std::fmt::Debug for SampledBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SampledBody").field("source", &self.source).finish_non_exhaustive()
    }
}

impl SampledBody {
    fn end_sample(&mut self) {
        if let Some(slot) = self.slot.take() {
            end(slot, std::mem::take(&mut self.sample), &self.files);
            self.held.set(0);
        }
    }
}

impl stream::Source for SampledBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        let next = ready!(self.source.poll_next(cx))?;
        match &next {
            Some(bytes) if self.slot.is_some() => {
                append(&mut self.sample, bytes);
                self.held.set(self.sample.capacity());
                if self.sample.len() >= MAX_SAMPLE {
                    self.end_sample();
                }
            }
            Some(_) => {}
            None => self.end_sample(),
        }
        Poll::Ready(Ok(next))
    }

    fn take_trailers(&mut self) -> FieldLines {
        self.source.take_trailers()
    }

    fn finish(self: Box<Self>) {
        self.source.detach();
    }
}

/// The fields in which a proxy states for whom it sends a request.
const OF_CLIENT: [&[u8]; 4] = [b"x-forwarded-for", b"forwarded", b"x-real-ip", b"cf-connecting-ip"];

/// Identifies who has sent a request: the network of the client, and what a proxy states. A program of this machine that states nothing
/// of a client sends each request for another one: what responds knows nothing of a visitor then.
fn visitor(request: &Request<'_>, address: Peer) -> u64 {
    static UNKNOWN: AtomicU64 = AtomicU64::new(0);
    let is_stated = |name: &[u8]| OF_CLIENT.iter().any(|other| name.eq_ignore_ascii_case(other));
    let stated: Vec<&[u8]> =
        request.fields().filter(|(name, _)| is_stated(name)).map(|(_, value)| value).collect();
    let is_local = match address {
        Peer::Ip(ip) => ip.to_canonical().is_loopback(),
        _ => true,
    };
    match stated.is_empty() && is_local {
        true => hash(UNKNOWN.fetch_add(1, Ordering::Relaxed)),
        false => hash((address.network(), stated)),
    }
}

/// Returns a hash with a secret key of the process.
fn hash(value: impl Hash) -> u64 {
    static STATE: OnceLock<RandomState> = OnceLock::new();
    STATE.get_or_init(RandomState::new).hash_one(value)
}

/// Returns `true` for the type of pages.
pub(super) fn is_page(media_type: &[u8]) -> bool {
    let essence = split(media_type, b';').next().unwrap_or_default();
    essence.eq_ignore_ascii_case(b"text/html")
        || essence.eq_ignore_ascii_case(b"application/xhtml+xml")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_response_states_decides_whom_it_is_for() {
        let unless = [Box::from("x-user")].into();
        let rules =
            PageDictionary { path: "/*".into(), unless, rotation: std::time::Duration::ZERO };
        for (name, value, is_private, is_public) in [
            ("Cache-Control", "max-age=5", false, false),
            ("Cache-Control", "Public, max-age=5", false, true),
            ("Cache-Control", "s-maxage=5", false, true),
            ("Cache-Control", "public, no-store", true, true),
            ("cache-control", "max-age=5, private=\"x\"", true, false),
            ("Set-Cookie", "a=b", true, false),
            ("X-User", "", true, false),
            ("Vary", "Accept, *", true, false),
            ("Vary", "Cookie", false, false),
        ] {
            let mut fields = FieldLines::new();
            fields.push(name, value);
            let standing = Standing::of(&fields, &rules);
            assert_eq!(
                (standing.is_private, standing.is_public),
                (is_private, is_public),
                "{name}: {value}"
            );
            fields.push("Vary", "cookie");
            assert!(!Standing::of(&fields, &rules).is_public);
        }
    }

    #[test]
    fn pages_are_known_by_their_type() {
        assert!(is_page(b"text/HTML; charset=utf-8") && is_page(b"text/html"));
        assert!(!is_page(b"text/plain") && !is_page(b"application/json"));
    }
}
