//! Whole files that the cache does not hold: each request opens, reads and checks the file, and builds the response, with as
//! few system calls as possible.
//!
//! A file that is requested again and again is kept open for a short time.
//!
//! This is a shorter way to the response of [`resolve`](crate::resolve::resolve) and [`select`](crate::select::select) for
//! the most frequent requests; the server's parity tests compare both.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bytes::Bytes;
use dunlin_http::Request;
use dunlin_http::semantics::negotiate::accept_encoding;
use dunlin_http::semantics::path::has_hidden_segment;
use dunlin_http::semantics::{ContentCoding, Method};
use dunlin_http::{FieldLines, FieldName};
use rustix::fs::FileType;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use smallvec::SmallVec;

use super::descriptor_cache::CachedDescriptor;
use super::file_response::FileResponse;
use super::load::{MAX_UNCACHED_READ, UNWATCHED};
use super::media_type::{ContentType, content_type, file_name};
use super::render::{self, Description};
use super::select::SPECIAL;
use super::validators::{self, Basis};
use super::worker::Worker;
use dunlin_config::{EtagKind, Settings};
use dunlin_fs::content::{ContentFile, Piece};
use dunlin_fs::metadata::FileMetadata;
use dunlin_fs::mode::Mode;
use dunlin_fs::open::open;
use dunlin_fs::roots::Root;

/// A response with a whole file.
#[derive(Debug)]
pub struct WholeFile {
    /// The response; its body is there for HEAD, too.
    pub response: FileResponse,
    /// Length of the file in bytes.
    pub length: u64,
    /// The date of the field `Last-Modified`, in seconds since 1970.
    pub last_modified: Option<u64>,
}

thread_local! {
    /// Free buffers. A buffer that is used again need not be cleared, and its content need not be copied.
    static FREE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// Maximum number of free buffers of a thread.
const MAX_FREE: usize = 32;

/// The start of a file. Its buffer is used again after it was sent.
struct Content {
    /// Has room for one byte more than a file that is sent from memory can have.
    buffer: Box<[u8]>,
    length: usize,
}

impl AsRef<[u8]> for Content {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        // An error means that the thread ends.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < MAX_FREE {
                free.push(buffer);
            }
        });
    }
}

/// Returns the response with the whole file at the decoded `path`. Returns `None` if the response is another one, an error or
/// a variant, or if it takes more than opening and reading one file.
pub fn respond<R>(
    worker: &Worker<R>,
    request: &Request<'_>,
    settings: &Settings,
    path: &[u8],
) -> Option<WholeFile> {
    let is_hidden = !settings.hidden && has_hidden_segment(path);
    let path = settings.file_path(path)?;
    let file = path.strip_prefix(b"/")?;
    if !is_plain(settings) || request.has_any(SPECIAL) || is_hidden || file.ends_with(b"/") {
        return None;
    }
    // A change of the root invalidates the files that are kept open.
    respond_kept(worker, request, settings, file)
        .or_else(|| respond_opened(worker, request, settings, file))
}

/// Returns the response with a file that is kept open.
fn respond_kept<R>(
    worker: &Worker<R>,
    request: &Request<'_>,
    settings: &Settings,
    file: &[u8],
) -> Option<WholeFile> {
    let mut kept_files = worker.kept.borrow_mut();
    let kept = kept_files.get(settings, file, worker.clock.now())?;
    if !accepts_identity(request, settings, &kept.content_type) {
        return None;
    }
    let (file_content, length) = (&kept.content, kept.content.length);
    let body = match request.method() {
        Method::Get if length <= MAX_UNCACHED_READ => {
            read(file_content).filter(|content| content.length as u64 == length).map(Body::Read)
        }
        _ => Some(Body::File(Arc::clone(file_content))),
    };
    // After the read: the content is that of the version which the fields describe.
    let Some(body) = body.filter(|_| file_content.is_unchanged()) else {
        kept_files.remove(settings, file);
        return None;
    };
    let (fields, last_modified) = (kept.fields.clone(), kept.last_modified);
    Some(whole(fields, last_modified, body, length))
}

/// Returns the response with a file that is opened for it.
fn respond_opened<R>(
    worker: &Worker<R>,
    request: &Request<'_>,
    settings: &Settings,
    file: &[u8],
) -> Option<WholeFile> {
    let shared = &worker.shared;
    let root = shared.root(&settings.root).ok()?;
    let content_type = content_type(&file_name(file), &settings.types, &settings.charset);
    if !accepts_identity(request, settings, &content_type) {
        return None;
    }
    let watch = shared.watch.as_ref().filter(|_| shared.revalidate > 0);
    let candidate = worker.kept.borrow_mut().candidate(settings, (watch, &root), file);
    // Before the file is opened: a change that is not earlier than this may be a change during the read.
    let seen = validators::now();
    let fd = open(&root, file, settings.symlinks, Mode::Inline).ok()?;
    let content = match request.method() {
        Method::Get => Some(read(&fd)?),
        _ => None,
    };
    let metadata = FileMetadata::of(&fd).ok()?;
    if metadata.file_type() != FileType::RegularFile {
        return None;
    }
    shared.protected.check(&metadata, Mode::Inline).ok()?;
    let basis = basis(settings, &root, &fd, &metadata, seen)?;
    let (fields, last_modified) = fields(&basis, &content_type);
    let length = metadata.size;
    let content = content.filter(|_| length <= MAX_UNCACHED_READ);
    if content.as_ref().is_some_and(|content| content.length as u64 != length) {
        return None;
    }
    let candidate = candidate
        .filter(|candidate| candidate.is_watched(&fd, &metadata, root.file_system(&fd, &metadata)));
    let live = (candidate.is_some() || content.is_none())
        .then(|| Arc::new(ContentFile::live(fd, metadata, settings.sendfile)));
    if let (Some(candidate), Some(live)) = (candidate, &live) {
        let (content, fields) = (Arc::clone(live), fields.clone());
        let kept = CachedDescriptor { content, content_type, fields, last_modified };
        let until = worker.clock.now() + shared.revalidate.min(UNWATCHED);
        worker.kept.borrow_mut().insert(candidate, kept, until);
    }
    let body = content.map(Body::Read).or_else(|| live.map(Body::File))?;
    Some(whole(fields, last_modified, body, length))
}

/// The body of a response.
enum Body {
    Read(Content),
    File(Arc<ContentFile>),
}

fn whole(fields: FieldLines, last_modified: Option<u64>, body: Body, length: u64) -> WholeFile {
    let mut response = FileResponse::new(200, fields);
    response.push(match body {
        Body::Read(content) => Piece::Memory(Bytes::from_owner(content)),
        Body::File(file) => Piece::File(file, 0..length),
    });
    WholeFile { response, length, last_modified }
}

/// Returns `true` if a file of the route is found by its path alone, and its response depends on nothing but its metadata.
fn is_plain(settings: &Settings) -> bool {
    settings.try_files.is_empty()
        && settings.records.is_none()
        && settings.sources.is_none()
        && settings.expires.is_none()
        && settings.etag != EtagKind::Sha256
        && settings.handler.script().is_none()
}

/// Returns `true` if the response has no content coding, whatever codings the file may have.
fn accepts_identity(
    request: &Request<'_>,
    settings: &Settings,
    content_type: &ContentType,
) -> bool {
    if !request.has(FieldName::AcceptEncoding) {
        return true;
    }
    let values: SmallVec<[&[u8]; 2]> = request.values(FieldName::AcceptEncoding).collect();
    let chosen = accept_encoding(&values).choose(&[ContentCoding::Identity]);
    !render::may_be_coded(settings, content_type) && chosen.is_some()
}

/// Returns the basis of the validators, if the metadata shows that the file did not change while it was read: its last change
/// is older than `seen` by more than the granularity of its times.
fn basis<'a>(
    settings: &'a Settings,
    root: &Root,
    fd: &OwnedFd,
    metadata: &'a FileMetadata,
    seen: std::time::Duration,
) -> Option<Basis<'a>> {
    let file_system = root.file_system(fd, metadata);
    let basis = Basis { settings, metadata, file_system, seen };
    (file_system.keeps_change_times && basis.is_settled()).then_some(basis)
}

fn fields(basis: &Basis<'_>, content_type: &ContentType) -> (FieldLines, Option<u64>) {
    let coding = ContentCoding::Identity;
    let last_modified = basis.last_modified();
    let description = Description {
        settings: basis.settings,
        content_type,
        coding,
        etag: basis.entity_tag(None, coding),
        last_modified,
        length: basis.metadata.size,
        sha256: None,
        is_settled: true,
        keep: false,
    };
    let fields = render::with_edits(basis.settings, 200, render::fields(&description));
    (fields, last_modified)
}

/// Reads the start of a file, as far as the page cache has it, in one call.
fn read(fd: impl AsFd) -> Option<Content> {
    let free = FREE.with_borrow_mut(Vec::pop);
    let buffer = free.unwrap_or_else(|| vec![0; MAX_UNCACHED_READ as usize + 1].into());
    let mut content = Content { buffer, length: 0 };
    loop {
        let mut slices = [io::IoSliceMut::new(&mut content.buffer)];
        match preadv2(&fd, &mut slices, 0, ReadWriteFlags::NOWAIT) {
            Ok(count) => {
                content.length = count;
                return Some(content);
            }
            Err(Errno::INTR) => {}
            // A directory, a file whose pages are not in memory, or an error: the other way finds out.
            Err(_) => return None,
        }
    }
}
