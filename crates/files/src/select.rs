//! Selects the response to a request from the representations of a resource: content negotiation, conditions and ranges.

use std::hash::{BuildHasher, RandomState};

use dunlin_dictionary::dcz;
use dunlin_http::semantics::conditional::{self, PreconditionOutcome, Preconditions, Validators};
use dunlin_http::semantics::multipart::Multipart;
use dunlin_http::semantics::negotiate::accept_encoding;
use dunlin_http::semantics::range::{self, ByteRange, RangeOutcome};
use dunlin_http::semantics::{ContentCoding, Method, date, digest};
use dunlin_http::{FieldLines, FieldName, FieldSet, Request};
use smallvec::SmallVec;

use super::cache::resource::{Representation, Resource};
use super::cache::worker_cache::CacheEntry;
use super::file_response::FileResponse;
use super::{encoded, render};
use dunlin_fs::content::{Piece, StoredContent};

/// Request fields that can make the response differ from the complete 200.
pub(super) const SPECIAL: FieldSet = FieldSet::of(&[
    FieldName::IfMatch,
    FieldName::IfNoneMatch,
    FieldName::IfModifiedSince,
    FieldName::IfUnmodifiedSince,
    FieldName::Range,
    FieldName::WantReprDigest,
]);

/// The response to a request.
#[derive(Debug)]
pub enum Selected {
    /// The complete 200 with the representation in this content coding.
    Whole(ContentCoding),
    /// The prepared 304 of the representation in this content coding.
    NotModified(ContentCoding),
    /// A response that was built for the request. The caller omits its body for HEAD.
    Response(FileResponse),
    /// No search for the variant in this content coding has ended: the caller runs [`encoded::search`], then selects again.
    Unknown(ContentCoding),
    /// An error with this status and these additional fields.
    Error(u16, FieldLines),
}

/// Selects the response to a request from a fresh entry. `now` is in seconds since 1970.
#[inline]
pub fn select<R>(request: &Request<'_>, entry: &CacheEntry<R>, now: u64) -> Selected {
    match plain_coding(request, entry) {
        Some(coding) => Selected::Whole(coding),
        None => select_special(request, &entry.resource, now),
    }
}

/// Selects the response with the unencoded representation, for a search that did not end in time.
pub fn select_identity(request: &Request<'_>, resource: &Resource, now: u64) -> Selected {
    select_form(request, resource, &resource.identity, now)
}

/// Returns the content coding of the response if it is the complete 200 and the representation exists.
#[inline]
pub fn plain_coding<R>(request: &Request<'_>, entry: &CacheEntry<R>) -> Option<ContentCoding> {
    // A prebuilt response does not depend on the time.
    if request.has_any(SPECIAL) || entry.prebuilt.is_none() && is_made_for_request(&entry.resource)
    {
        return None;
    }
    if !request.has(FieldName::AcceptEncoding) {
        return Some(ContentCoding::Identity);
    }
    match negotiate(request, &entry.resource) {
        Chosen::Coding(coding) => {
            Some(coding).filter(|&coding| !is_remote(&entry.resource, coding))
        }
        _ => None,
    }
}

/// Returns `true` if each response is made for its request: it depends on the time, or its body is not here.
fn is_made_for_request(resource: &Resource) -> bool {
    resource.settings.expires.is_some() || resource.identity.remote.is_some()
}

/// Returns `true` if the representation is streamed: a large sibling of an object.
#[inline]
fn is_remote(resource: &Resource, coding: ContentCoding) -> bool {
    resource.object().is_some()
        && matches!(resource.representation(coding), Some(Some(form)) if form.remote.is_some())
}

/// Returns `true` if the response to a request for this resource may have a content coding, but no search for it has ended.
pub fn may_be_coded(request: &Request<'_>, resource: &Resource) -> bool {
    request.has(FieldName::AcceptEncoding)
        && matches!(negotiate(request, resource), Chosen::Unknown(_))
}

enum Chosen {
    Coding(ContentCoding),
    /// The preferred content coding; no search for it has ended.
    Unknown(ContentCoding),
    Nothing,
}

fn negotiate(request: &Request<'_>, resource: &Resource) -> Chosen {
    let values: SmallVec<[&[u8]; 2]> = request.values(FieldName::AcceptEncoding).collect();
    let accepted = accept_encoding(&values);
    let settings = &resource.settings;
    let mut available: SmallVec<[ContentCoding; 4]> = SmallVec::new();
    for &coding in settings.precompressed.iter().chain(&settings.compress) {
        let none = matches!(resource.representation(coding), Some(None));
        if !none && !available.contains(&coding) && encoded::is_possible(resource, coding) {
            available.push(coding);
        }
    }
    available.push(ContentCoding::Identity);
    match accepted.choose(&available) {
        None => Chosen::Nothing,
        Some(coding) if resource.representation(coding).is_none() => Chosen::Unknown(coding),
        Some(coding) => Chosen::Coding(coding),
    }
}

/// Selects the response with a form that was made with a dictionary.
pub fn select_with_dictionary(
    request: &Request<'_>,
    resource: &Resource,
    form: &Representation,
    now: u64,
) -> Selected {
    let mut selected = select_form(request, resource, form, now);
    if let Selected::Response(response) = &mut selected {
        response.coding = dcz::NAME;
    }
    selected
}

fn select_special(request: &Request<'_>, resource: &Resource, now: u64) -> Selected {
    let chosen = match request.has(FieldName::AcceptEncoding) {
        true => negotiate(request, resource),
        false => Chosen::Coding(ContentCoding::Identity),
    };
    match chosen {
        Chosen::Coding(coding) => {
            let form = match resource.representation(coding) {
                Some(Some(form)) => form,
                _ => &resource.identity,
            };
            select_form(request, resource, form, now)
        }
        Chosen::Unknown(coding) => Selected::Unknown(coding),
        // The response depends on Accept-Encoding (RFC 9110 §12.5.5).
        Chosen::Nothing => Selected::Error(406, one_field("Vary", "Accept-Encoding")),
    }
}

fn select_form(
    request: &Request<'_>,
    resource: &Resource,
    form: &Representation,
    now: u64,
) -> Selected {
    let expires = resource.settings.expires;
    let mut response = match precondition(request, Some(&validators(form))) {
        PreconditionOutcome::NotModified => {
            let is_prepared = !form.head_not_modified.is_empty();
            if is_prepared && expires.is_none() {
                return Selected::NotModified(form.coding);
            }
            not_modified(resource, form)
        }
        PreconditionOutcome::PreconditionFailed => {
            return Selected::Error(412, precondition_failed(form));
        }
        PreconditionOutcome::Proceed => match wanted_ranges(request, resource, form, now) {
            RangeOutcome::Whole => whole(resource, form),
            RangeOutcome::Ranges(ranges) => partial(resource, form, &ranges),
            RangeOutcome::Unsatisfiable => return Selected::Error(416, unsatisfiable(form)),
        },
    };
    if let Some(expires) = expires.filter(|_| response.fields.get("Expires").is_none()) {
        response.fields.push("Expires", date::format(now + expires.as_secs()));
    }
    if let Some(sha256) = &form.sha256
        && request.has(FieldName::WantReprDigest)
        && matches!(response.status, 200 | 206)
    {
        let values: SmallVec<[&[u8]; 2]> = request.values(FieldName::WantReprDigest).collect();
        if digest::wants_sha256(&values) {
            response.fields.push("Repr-Digest", digest::repr_digest(sha256));
        }
    }
    Selected::Response(response)
}

/// Evaluates the conditions of the request for a representation with these validators; `None` if there is none.
pub(super) fn precondition(
    request: &Request<'_>,
    current: Option<&Validators<'_>>,
) -> PreconditionOutcome {
    let values = |name| request.values(name).collect::<SmallVec<[&[u8]; 2]>>();
    let preconditions = Preconditions {
        if_match: &values(FieldName::IfMatch),
        if_none_match: &values(FieldName::IfNoneMatch),
        if_modified_since: &values(FieldName::IfModifiedSince),
        if_unmodified_since: &values(FieldName::IfUnmodifiedSince),
    };
    conditional::evaluate(request.method(), &preconditions, current)
}

fn validators(form: &Representation) -> Validators<'_> {
    Validators { etag: form.etag.as_ref(), last_modified: form.last_modified }
}

fn wanted_ranges(
    request: &Request<'_>,
    resource: &Resource,
    form: &Representation,
    now: u64,
) -> RangeOutcome {
    let max = resource.settings.ranges;
    if request.method() != Method::Get || !request.has(FieldName::Range) || max == 0 {
        return RangeOutcome::Whole;
    }
    let if_range: SmallVec<[&[u8]; 2]> = request.values(FieldName::IfRange).collect();
    if !conditional::if_range_allows(&if_range, &validators(form), now) {
        return RangeOutcome::Whole;
    }
    let values: SmallVec<[&[u8]; 2]> = request.values(FieldName::Range).collect();
    range::parse(&values, form.length, max)
}

/// Returns the complete 200 response.
pub fn whole(resource: &Resource, form: &Representation) -> FileResponse {
    let mut response = start(200, resource, form);
    response.push_range(form, 0..form.length);
    response
}

/// Returns the 304 response.
pub fn not_modified(resource: &Resource, form: &Representation) -> FileResponse {
    let fields = render::without_content(&form.fields);
    let fields = render::with_edits(&resource.settings, 304, fields);
    FileResponse { coding: coding_of(form), ..FileResponse::new(304, fields) }
}

/// Additional fields of a 412.
fn precondition_failed(form: &Representation) -> FieldLines {
    form.etag.as_ref().map_or_else(FieldLines::new, |etag| one_field("ETag", etag.to_string()))
}

/// Additional fields of a 416.
fn unsatisfiable(form: &Representation) -> FieldLines {
    let mut fields = one_field("Content-Range", range::content_range_unsatisfied(form.length));
    fields.push("Accept-Ranges", "bytes");
    fields
}

fn one_field(name: &str, value: impl AsRef<[u8]>) -> FieldLines {
    let mut fields = FieldLines::new();
    fields.push(name, value);
    fields
}

fn partial(resource: &Resource, form: &Representation, ranges: &[ByteRange]) -> FileResponse {
    let mut response = start(206, resource, form);
    if let [range] = ranges {
        response.fields.push("Content-Range", range::content_range(range, form.length));
        response.push_range(form, range.start..range.end);
        return response;
    }
    let boundary = boundary();
    let media_type = &resource.content_type.media_type;
    let multipart = Multipart::new(boundary.as_bytes(), media_type, form.length, ranges);
    response.fields.set("Content-Type", multipart.content_type());
    for (head, range) in multipart.parts() {
        response.push(Piece::Memory(head.into()));
        response.push_range(form, range.start..range.end);
    }
    response.push(Piece::Memory(multipart.end().into()));
    response
}

fn start(status: u16, resource: &Resource, form: &Representation) -> FileResponse {
    let fields = render::with_edits(&resource.settings, status, form.fields.clone());
    FileResponse { coding: coding_of(form), ..FileResponse::new(status, fields) }
}

/// Returns the content coding for the log.
fn coding_of(form: &Representation) -> &'static str {
    if form.coding == ContentCoding::Identity { "-" } else { form.coding.as_str() }
}

/// Returns a multipart boundary of 128 random bits: the content cannot contain it by chance.
fn boundary() -> String {
    let random = || RandomState::new().hash_one(0_u8);
    format!("{:016x}{:016x}", random(), random())
}

/// Returns `true` if the open file of the entry has changed since it was opened.
#[inline]
pub fn has_changed<R>(entry: &CacheEntry<R>) -> bool {
    matches!(&entry.resource.identity.body, StoredContent::File(file) if file.is_live() && !file.is_unchanged())
}
