//! Content codings of responses that are made for one request (RFC 9110 §8.4, §12.5.3): which are compressed or decoded, and how their
//! heads change. Files have codings of their own.

mod body;
mod budget;
mod forms;
mod head;
mod pages;

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_coding::{Decoder, Effort, Encoder, MIN_LENGTH, SharedDictionary, compressible_value};
use dunlin_config::{CodingRules, PageDictionary, Settings, UnacceptedCoding};
use dunlin_dictionary::dcz;
use dunlin_dictionary::route::RouteDictionary;
use dunlin_exchange::stream::{self, Receiver};
use dunlin_exchange::{Body, RequestContext, Response, Stream, StreamKind};
use dunlin_fs::content::Piece;
use dunlin_http::semantics::ContentCoding;
use dunlin_http::semantics::negotiate::{Accepted, accept_encoding};
use dunlin_http::{FieldLines, FieldName, Request};
use dunlin_net::address::Peer;

use self::body::{CodedBody, DecodedBody};
use self::budget::add;
pub(crate) use self::budget::{CodingBudget, CodingCounts};
use self::forms::{FormCoding, Known};
use self::head::{
    Described, add_vary, remove_coding, set_coding, vary_by_coding, vary_by_dictionary,
};
use self::pages::{PageRequest, is_page};
pub(crate) use self::pages::{Requester, RoutePages};
use crate::handler::plain_page::plain_page;

/// The codings that a route permits, in its order of preference.
#[derive(Debug, Clone, Default)]
pub(crate) struct RouteCodings {
    codings: [Option<ContentCoding>; 3],
    /// Event streams are coded, too.
    events: bool,
    /// What becomes of a coded response that the client does not accept; `None` if it is sent as it is.
    unaccepted: Option<Unaccepted>,
    /// The rules of responses with secrets, if the route has any.
    secrets: Option<Arc<Secrets>>,
    /// The dictionary of its pages.
    pages: Option<RoutePages>,
}

/// What becomes of a coded response that the client does not accept.
#[derive(Debug, Clone, Copy)]
enum Unaccepted {
    /// It is decoded, up to that many bytes.
    Decoded(u64),
    Rejected,
}

/// How responses with secrets are treated.
#[derive(Debug)]
struct Secrets {
    /// Responses with one of these fields are not compressed.
    unless: Arc<[Box<str>]>,
    /// Bytes that a compressed response has more at random, at most.
    padding: usize,
}

impl RouteCodings {
    /// Creates the codings of a route.
    pub(crate) fn new(settings: &Settings, dictionary: Option<Arc<RouteDictionary>>) -> Self {
        let mut codings = [None; 3];
        let places = codings.iter_mut().zip(&settings.compress);
        places.for_each(|(place, coding)| *place = Some(*coding));
        let CodingRules { unless, padding, unaccepted, decode_size } = &settings.coding;
        let has_secrets = !unless.is_empty() || *padding > 0;
        let secrets = || Arc::new(Secrets { unless: Arc::clone(unless), padding: *padding });
        Self {
            codings,
            events: settings.compress_events,
            unaccepted: match unaccepted {
                UnacceptedCoding::Decode => Some(Unaccepted::Decoded(*decode_size)),
                UnacceptedCoding::Reject => Some(Unaccepted::Rejected),
                UnacceptedCoding::Pass => None,
            },
            secrets: has_secrets.then(secrets),
            pages: dictionary.and_then(|dictionary| {
                let rules = Arc::clone(settings.page_dictionary.as_ref()?);
                Some(RoutePages { rules, dictionary })
            }),
        }
    }

    /// Returns the codings of dictionaries themselves.
    pub(crate) fn of_dictionaries() -> Self {
        let codings = [ContentCoding::Zstd, ContentCoding::Brotli, ContentCoding::Gzip];
        Self { codings: codings.map(Some), ..Self::default() }
    }

    /// Returns what a request makes of them; `None` if all responses are sent as they are. `client` is that of the connection;
    /// `requester` states who that is.
    pub(super) fn of_request(
        mut self,
        request: &Request<'_>,
        is_head: bool,
        client: Peer,
        requester: impl FnOnce() -> Requester,
    ) -> Option<WantedCoding> {
        let mut values = request.values(FieldName::AcceptEncoding);
        let first = values.next();
        if self.codings[0].is_none() && (self.unaccepted.is_none() || first.is_none()) {
            return None;
        }
        let accepted = first.map(|first| match values.next() {
            None => accept_encoding(&[first]),
            Some(second) => {
                accept_encoding(&[first, second].into_iter().chain(values).collect::<Vec<_>>())
            }
        });
        let tags = request.field(FieldName::IfNoneMatch);
        let tags = tags.filter(|tags| memchr::memmem::find(tags, b"W/").is_some());
        let weak_tags = tags.map(Into::into);
        let pages = self.pages.take();
        let page = pages.and_then(|pages| PageRequest::of(pages, request, requester()));
        Some(WantedCoding { route: self, accepted, is_head, client, weak_tags, page })
    }
}

/// The codings that the client of a request accepts, and its route permits.
#[derive(Debug, Clone)]
pub(crate) struct WantedCoding {
    route: RouteCodings,
    /// What the client accepts, if it states that.
    accepted: Option<Accepted>,
    is_head: bool,
    client: Peer,
    /// `If-None-Match`, if it has weak tags.
    weak_tags: Option<Box<[u8]>>,
    /// It is for a page of a route with a dictionary.
    page: Option<Box<PageRequest>>,
}

/// Bodies in memory of more bytes are compressed as they are sent: they would hold up other responses.
const AT_ONCE: u64 = 2 << 20;
/// Bytes of a body in memory that are compressed or decoded together then.
const PART: usize = 64 << 10;

impl WantedCoding {
    /// Compresses or decodes the body of a response, if that is permitted and pays.
    pub(super) fn apply(
        &self,
        response: &mut Response,
        budget: &Rc<CodingBudget>,
        context: Option<&Rc<RequestContext>>,
    ) {
        // The tag of a body that was changed is weak, whatever its coding.
        let is_changed_304 = response.status == 304 && response.is_changed;
        if (response.is_coding_final && !is_changed_304) || response.upgrade.is_some() {
            return;
        }
        let has_content = match response.status {
            200..=203 | 207..=299 => true,
            304 => return self.restore(response),
            status => status >= 400,
        };
        if !has_content || response.body.stream_kind() == Some(StreamKind::Message) {
            return;
        }
        if response.is_kept && self.is_simple() && self.reuse(response, budget, context) {
            return;
        }
        let mut described = Described::of(&response.fields);
        if let (Some(coding), Some(accepted)) = (described.known_coding(), self.accepted) {
            let is_sent = accepted.accepts(coding)
                || described.is_final
                || self.chosen().is_none() && !accepted.accepts(ContentCoding::Identity);
            if is_sent || !self.replace_unaccepted(coding, response, budget) {
                return;
            }
            described = Described::of(&response.fields);
        }
        if !self.is_eligible(response, &described) {
            return;
        }
        let before = (response.is_kept && self.is_simple()).then(|| response.fields.clone());
        let page = self.page.as_ref().filter(|_| described.media_type.is_some_and(is_page));
        let dictionary = match page {
            Some(page) => {
                vary_by_dictionary(&mut response.fields);
                page.prepare(response, &budget.files)
            }
            None if described.varies => None,
            None => {
                vary_by_coding(&mut response.fields);
                None
            }
        };
        let coding = self.chosen();
        if coding.is_some() || dictionary.is_some() {
            let context = context.cloned();
            let client = context.as_ref().map_or(self.client, |context| context.client.address);
            let coder = Coder { budget, client, context, coding, dictionary };
            coder.compress(response, self, before);
        }
    }

    /// Returns `true` if what becomes of a response depends on it and on the coding alone.
    fn is_simple(&self) -> bool {
        !self.is_head && self.route.secrets.is_none() && self.page.is_none()
    }

    /// Sends the coded form that the same response had before, with the same head. Returns `false` if there is none.
    fn reuse(
        &self,
        response: &mut Response,
        budget: &CodingBudget,
        context: Option<&Rc<RequestContext>>,
    ) -> bool {
        let Some(coding) = self.chosen() else { return false };
        let Some(body) = response.body.as_memory() else { return false };
        let form = FormCoding::Plain(coding);
        let Some((coded, fields)) = budget.forms.borrow_mut().ready(body, form, &response.fields)
        else {
            return false;
        };
        if let Some(context) = context {
            context.add_plain_bytes(body.len() as u64);
        }
        response.body = Body::of([Piece::Memory(coded)].into());
        (response.fields, response.coding) = (fields, coding.as_str());
        true
    }

    /// Decodes the body of a response, or rejects it, because the client does not accept its coding. Returns `true` if it is another
    /// response now.
    fn replace_unaccepted(
        &self,
        coding: ContentCoding,
        response: &mut Response,
        budget: &Rc<CodingBudget>,
    ) -> bool {
        match self.route.unaccepted {
            None => return false,
            Some(Unaccepted::Rejected) => {
                *response = plain_page(406, None, true);
                if self.is_head {
                    let whole = std::mem::replace(response, Response::new(406));
                    *response = whole.without_body();
                }
            }
            Some(Unaccepted::Decoded(max)) => {
                let Ok(decoder) = Decoder::new(coding) else { return false };
                let Some((source, kind)) = as_stream(&mut response.body) else { return false };
                remove_coding(&mut response.fields);
                response.stated_length = None;
                let source = match self.is_head {
                    true => {
                        source.detach();
                        stream::empty()
                    }
                    false => {
                        add(&budget.counts.decoded, 1);
                        let client = self.client;
                        let body = DecodedBody::new(source, decoder, max, client, budget);
                        stream::from_source(Box::new(body))
                    }
                };
                response.body = streamed(source, kind);
            }
        }
        add_vary(&mut response.fields);
        true
    }

    /// Gives a 304 the tag and the `Vary` of the coded or changed response that the client has (RFC 9110 §15.4.5).
    fn restore(&self, response: &mut Response) {
        let Some(tags) = self.weak_tags.as_ref().filter(|_| self.route.codings[0].is_some()) else {
            return;
        };
        let weak = match response.fields.get("ETag") {
            Some(tag) if tag.starts_with(b"\"") => [b"W/", tag].concat(),
            // The body was changed, or else the upstream made the tag.
            Some(tag) if response.is_changed => tag.to_vec(),
            _ => return,
        };
        if memchr::memmem::find(tags, &weak).is_some() {
            response.fields.set("ETag", weak);
            match self.page {
                Some(_) => vary_by_dictionary(&mut response.fields),
                None => add_vary(&mut response.fields),
            }
        }
    }

    fn chosen(&self) -> Option<ContentCoding> {
        let mut available = [ContentCoding::Identity; 4];
        let route = self.route.codings.into_iter().flatten();
        available.iter_mut().zip(route).for_each(|(place, coding)| *place = coding);
        let chosen = self.accepted?.choose(&available)?;
        (chosen != ContentCoding::Identity).then_some(chosen)
    }

    /// Returns `true` if a client that accepts a coding may get it.
    fn is_eligible(&self, response: &Response, described: &Described<'_>) -> bool {
        let length = match self.is_head {
            true => response
                .stated_length
                .or_else(|| response.body.is_stream().then(|| response.body.known_length())?),
            false => response.body.known_length(),
        };
        let is_short = length.is_some_and(|length| length < MIN_LENGTH);
        let media_type =
            described.media_type.filter(|_| !is_short && self.route.codings[0].is_some());
        let Some(media_type) = media_type.filter(|media_type| compressible_value(media_type))
        else {
            return false;
        };
        !described.is_final
            && !described.is_exact
            && described.coding.is_none()
            && (self.route.events || !is_event_stream(media_type))
            && !self.has_secrets(&response.fields)
    }

    /// Returns `true` if a field of the response excludes it.
    fn has_secrets(&self, fields: &FieldLines) -> bool {
        let names = self.route.secrets.iter().flat_map(|secrets| &*secrets.unless);
        names.into_iter().any(|name| fields.get(name).is_some())
    }

    /// Returns the bytes that decoders are to skip, a random number.
    fn padding(&self) -> Option<usize> {
        let most = self.route.secrets.as_ref().map(|secrets| secrets.padding)?;
        let random = || usize::try_from(dunlin_telemetry::ids::random() % (most as u64 + 1)).ok();
        if most > 0 { random() } else { None }
    }
}

/// Describes the codings of a route's responses that are made for one request. `content` is the type and the length of the response, if
/// they are known.
pub(crate) fn describe(settings: &Settings, content: Option<(&[u8], u64)>) -> String {
    let names: Vec<&str> = settings.compress.iter().map(|coding| coding.as_str()).collect();
    let mut text = match (names.join(", "), content) {
        (names, _) if names.is_empty() => "none: `compress` is false".to_owned(),
        (_, Some((media_type, _))) if !compressible_value(media_type) => {
            format!("none: {} is not compressed", String::from_utf8_lossy(media_type))
        }
        (_, Some((_, length))) if length < MIN_LENGTH => {
            format!("none: it has fewer than {MIN_LENGTH} bytes")
        }
        (names, Some(_)) => format!("{names}, as the client accepts it"),
        (names, None) => {
            let events = if settings.compress_events { " and events" } else { "" };
            format!(
                "{names}, as the client accepts it, for text{events} of {MIN_LENGTH} bytes and more"
            )
        }
    };
    let rules = &settings.coding;
    if !settings.compress.is_empty() && content.is_none() {
        if !rules.unless.is_empty() {
            text = format!("{text}, unless it has {}", rules.unless.join(" or "));
        }
        if rules.padding > 0 {
            text = format!("{text}, with up to {} random bytes more", rules.padding);
        }
    }
    if let Some(pages) = settings.page_dictionary.as_ref().filter(|_| content.is_none()) {
        let what = match PageDictionary::hindrance(settings) {
            Some(hindrance) => format!("; no dictionary for pages: {hindrance}"),
            None => format!(
                "; dcz for pages of {} over TLS, if the client has the dictionary",
                pages.path
            ),
        };
        text.push_str(&what);
    }
    if content.is_none() {
        text.push_str(match rules.unaccepted {
            UnacceptedCoding::Decode => "; decoded if the client does not accept its coding",
            UnacceptedCoding::Reject => "; 406 if the client does not accept its coding",
            UnacceptedCoding::Pass => "; its coding is sent whatever the client accepts",
        });
    }
    text
}

/// What compresses a body.
struct Coder<'a> {
    budget: &'a Rc<CodingBudget>,
    client: Peer,
    context: Option<Rc<RequestContext>>,
    /// The best coding without a dictionary.
    coding: Option<ContentCoding>,
    /// The dictionary that the client has.
    dictionary: Option<Arc<SharedDictionary>>,
}

impl Coder<'_> {
    /// Compresses the body of a response, if there is time for it.
    /// `before` are the fields as they were, if a kept form may have them again.
    fn compress(
        mut self,
        response: &mut Response,
        wanted: &WantedCoding,
        before: Option<FieldLines>,
    ) {
        // The bytes of a text that is made for the request are unique.
        let is_kept = |bytes: &&Bytes| response.is_kept && !bytes.is_unique();
        let shared = response.body.as_memory().filter(is_kept).cloned();
        let known = shared.as_ref().and_then(|bytes| {
            Some(self.budget.forms.borrow_mut().find(bytes, self.form_coding()?))
        });
        if let (Some(Known::Coded(coded)), Some(plain), false) = (&known, &shared, wanted.is_head) {
            self.note_plain(plain.len());
            self.count_dictionary(plain.len(), coded.len());
            response.body = Body::of([Piece::Memory(coded.clone())].into());
            self.complete(response);
            if let (Some(before), Some(coding)) = (before, self.form_coding()) {
                let mut forms = self.budget.forms.borrow_mut();
                forms.keep_head(plain, coding, before, &response.fields);
            }
            return;
        }
        let is_again = known == Some(Known::Again);
        let Some(effort) = self.budget.effort(self.client, is_again) else { return };
        if effort == Effort::Least {
            self.dictionary = None;
        }
        let length = response.body.known_length();
        let Some(mut encoder) = self.encoder(effort, length) else { return };
        // What all clients get has no secret of one.
        if let Some(padding) = wanted.padding().filter(|_| shared.is_none()) {
            encoder = encoder.with_padding(padding);
        }
        if wanted.is_head {
            response.stated_length = None;
            response.body = streamed(stream::empty(), StreamKind::Body);
        } else if response.body.is_stream() || response.body.length() > AT_ONCE {
            let Some((source, kind)) = as_stream(&mut response.body) else { return };
            let context = self.context.clone();
            let mut source = CodedBody::new(source, encoder, self.client, self.budget, context);
            if self.dictionary.is_some() {
                source = source.with_dictionary();
            }
            response.body = streamed(stream::from_source(Box::new(source)), kind);
        } else {
            let Some(pieces) = memory_pieces(&response.body) else { return };
            let Ok(coded) = self.at_once(encoder, &pieces) else { return };
            if let (Some(plain), Some(coding)) = (shared.filter(|_| is_again), self.form_coding()) {
                self.budget.forms.borrow_mut().keep(&plain, coding, coded.clone());
            }
            response.body = Body::of([Piece::Memory(coded)].into());
        }
        self.complete(response);
    }

    fn encoder(&self, effort: Effort, length: Option<u64>) -> Option<Encoder> {
        match &self.dictionary {
            Some(dictionary) => Some(Encoder::with_dictionary(dictionary, effort)),
            None => Encoder::new(self.coding?, effort, length).ok(),
        }
    }

    fn form_coding(&self) -> Option<FormCoding> {
        match &self.dictionary {
            Some(dictionary) => Some(FormCoding::Dictionary(dictionary.header)),
            None => self.coding.map(FormCoding::Plain),
        }
    }

    /// Compresses a whole body.
    fn at_once(&self, mut encoder: Encoder, pieces: &[Bytes]) -> io::Result<Bytes> {
        add(&self.budget.counts.responses, 1);
        let length = pieces.iter().map(Bytes::len).sum();
        let mut coded = Vec::new();
        self.budget.measure(self.client, (length, &mut coded), |output| {
            for piece in pieces {
                encoder.push(piece, output)?;
            }
            encoder.finish(output)
        })?;
        self.note_plain(length);
        self.count_dictionary(length, coded.len());
        Ok(coded.into())
    }

    fn note_plain(&self, length: usize) {
        if let Some(context) = &self.context {
            context.add_plain_bytes(length as u64);
        }
    }

    fn count_dictionary(&self, plain: usize, coded: usize) {
        if self.dictionary.is_some() {
            self.budget.files.dictionaries.count(plain as u64, coded as u64);
        }
    }

    fn complete(&self, response: &mut Response) {
        let name = match (&self.dictionary, self.coding) {
            (Some(_), _) => dcz::NAME,
            (None, coding) => coding.map_or("identity", ContentCoding::as_str),
        };
        set_coding(&mut response.fields, name);
        response.coding = name;
    }
}

fn is_event_stream(media_type: &[u8]) -> bool {
    let start = media_type.trim_ascii_start().get(..EVENTS.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(EVENTS))
}

const EVENTS: &[u8] = b"text/event-stream";

fn streamed(source: Receiver, kind: StreamKind) -> Body {
    Body::streamed(Stream { source, length: None, kind })
}

/// Takes a body as a stream; `None` if it has content of files.
fn as_stream(body: &mut Body) -> Option<(Receiver, StreamKind)> {
    if let Some(stream) = body.take_stream() {
        return Some((stream.source, stream.kind));
    }
    let pieces = memory_pieces(body)?;
    *body = Body::default();
    let parts = pieces.into_iter().flat_map(|mut bytes| {
        std::iter::from_fn(move || {
            let length = bytes.len().min(PART);
            (length > 0).then(|| bytes.split_to(length))
        })
    });
    Some((stream::of(parts), StreamKind::Body))
}

/// Returns the pieces of a body, if all are in memory.
fn memory_pieces(body: &Body) -> Option<Vec<Bytes>> {
    let pieces = body.pieces().map(|piece| match piece {
        Piece::Memory(bytes) => Some(bytes.clone()),
        Piece::File(..) => None,
    });
    pieces.collect()
}
