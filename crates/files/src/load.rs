//! Loads an open file as a resource: stores its content and builds its heads.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use dunlin_http::semantics::ContentCoding;
use rustix::fs::fstat;
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};
use sha2::{Digest, Sha256};

use super::cache::resource::{Origin, Resource};
use super::cache::shared_cache::Key;
use super::dictionaries::rules;
use super::media_type::{content_type, file_name};
use super::records::convert::convert;
use super::records::stored_copy::write_copy;
use super::render::{self, Description};
use super::resolve::Resolver;
use super::search::Wanted;
use super::validators::{self, Basis};
use dunlin_config::{EtagKind, Records, Settings};
use dunlin_fs::content::{ContentFile, DESCRIPTOR_FROM, StoredContent};
use dunlin_fs::failure::Failure;
use dunlin_fs::file_system::FileSystem;
use dunlin_fs::metadata::FileMetadata;
use dunlin_fs::mode::Mode;
use dunlin_fs::roots::Root;
use dunlin_fs::validity::Validity;
use dunlin_net::temp_files;

/// A regular file that was opened for a response.
pub(super) struct Loaded<'a> {
    pub(super) fd: OwnedFd,
    pub(super) metadata: FileMetadata,
    /// Path beneath the root.
    pub(super) file: &'a [u8],
    pub(super) file_system: FileSystem,
    pub(super) validity: Arc<Validity>,
    /// The file is watched for changes.
    pub(super) watched: bool,
}

/// The time for which an unwatched file stays fresh, in milliseconds.
pub(super) const UNWATCHED: u64 = 1000;
/// Maximum size of a file that is copied on a worker's thread; larger ones are copied on the pool for files.
const INLINE_COPY: u64 = 512 * 1024;
/// Without a cache, files up to this size are read into memory, so that one write sends head and body; larger ones are sent
/// from their descriptors.
pub(super) const MAX_UNCACHED_READ: u64 = 32 * 1024;

/// Makes a resource of an open file.
pub(super) fn load(
    wanted: &Wanted<'_>,
    resolver: &Resolver<'_>,
    root: &Root,
    opened: Loaded<'_>,
) -> Result<Resource, Failure> {
    let settings = wanted.route;
    let mode = resolver.mode;
    let slow = settings.records.is_some() || settings.etag == EtagKind::Sha256;
    if slow && mode == Mode::Inline {
        return Err(Failure::WouldBlock);
    }
    let Loaded { fd, metadata, file, file_system, validity, watched } = opened;
    // Read the clock before the content, so that a later change has a later time.
    let seen = validators::now();
    let (content, metadata) = content(settings, resolver, root, file, (fd, metadata))?;
    let sha256 = match settings.etag {
        EtagKind::Sha256 => Some(hash(&content)?),
        _ => None,
    };
    let stored = content.into_stored(mode);
    let content_type = content_type(&file_name(file), &settings.types, &settings.charset);
    let basis = Basis { settings, metadata: &metadata, file_system, seen };
    let description = Description {
        settings,
        content_type: &content_type,
        coding: ContentCoding::Identity,
        etag: basis.entity_tag(sha256.as_ref(), ContentCoding::Identity),
        last_modified: basis.last_modified(),
        length: length(&stored),
        sha256,
        is_settled: basis.is_settled(),
        keep: resolver.keeps(settings),
    };
    let identity = render::representation(description, stored, resolver.shared.server_field);
    let mut resource = Resource::new(
        Key { site: resolver.site, path: wanted.path.into() },
        Arc::clone(settings),
        file,
        Origin::File(metadata),
        content_type,
        identity,
        validity,
    );
    resource.dictionaries = rules::of(&resource);
    set_freshness(resolver, &resource, file_system, watched);
    Ok(resource)
}

/// Sets until when `resource` may be used without a check of the file.
pub(super) fn set_freshness(
    resolver: &Resolver<'_>,
    resource: &Resource,
    file_system: FileSystem,
    watched: bool,
) {
    let revalidate = resolver.shared.revalidate;
    let watched = watched && !resource.has_unwatched_sibling();
    let mut span = if watched { revalidate } else { UNWATCHED.min(revalidate) };
    if !resource.identity.is_settled
        && let Origin::File(metadata) = &resource.origin
    {
        let settings = &*resource.settings;
        let basis = Basis { settings, metadata, file_system, seen: validators::now() };
        span = span.min(until_settled(&basis));
    }
    resource.validity.set_fresh_until(resolver.now + span);
}

/// Milliseconds until every later change of the file has a different time.
pub(super) fn until_settled(basis: &Basis<'_>) -> u64 {
    basis.settles_at().saturating_sub(basis.seen).as_millis() as u64 + 1
}

enum Content {
    Read(Vec<u8>),
    Live(Arc<ContentFile>),
    Converted(StoredContent),
}

impl Content {
    fn into_stored(self, mode: Mode) -> StoredContent {
        match self {
            Self::Read(bytes) if mode == Mode::Inline => StoredContent::in_memory(bytes),
            Self::Read(bytes) => StoredContent::on_disk(bytes),
            Self::Live(file) => StoredContent::File(file),
            Self::Converted(stored) => stored,
        }
    }
}

fn length(stored: &StoredContent) -> u64 {
    match stored {
        StoredContent::Memory(bytes) => bytes.len() as u64,
        StoredContent::File(file) => file.length,
    }
}

fn content(
    settings: &Settings,
    resolver: &Resolver<'_>,
    root: &Root,
    file: &[u8],
    (fd, metadata): (OwnedFd, FileMetadata),
) -> Result<(Content, FileMetadata), Failure> {
    let mode = resolver.mode;
    // A file written beside a record file has been converted already.
    if let Some(rules) = settings.records.as_ref().filter(|_| !file.ends_with(b".stmlf")) {
        let stored = converted(settings, rules, root, file, fd, &metadata)?;
        return Ok((Content::Converted(stored), metadata));
    }
    let max = match resolver.keeps(settings) {
        true if resolver.copy => settings.cache.file.max(resolver.shared.cache.largest_copy()),
        true => settings.cache.file,
        false => MAX_UNCACHED_READ,
    };
    if metadata.size > max {
        // Send the copy that is hashed: writes through a memory mapping would not be noticed.
        let is_copied = metadata.size <= resolver.shared.cache.largest_copy();
        if settings.etag == EtagKind::Sha256 && !resolver.keeps(settings) && is_copied {
            return copied(settings, fd, metadata).map(|copy| (Content::Converted(copy), metadata));
        }
        let live = ContentFile::live(fd, metadata, settings.sendfile);
        return Ok((Content::Live(Arc::new(live)), metadata));
    }
    let lasting = resolver.copy && metadata.size >= DESCRIPTOR_FROM as u64;
    if (lasting || metadata.size > INLINE_COPY) && mode == Mode::Inline {
        return Err(Failure::WouldBlock);
    }
    let (bytes, metadata) = read_whole(&fd, metadata, mode)?;
    Ok((Content::Read(bytes), metadata))
}

/// Reads the content and the matching metadata.
fn read_whole(
    fd: &OwnedFd,
    metadata: FileMetadata,
    mode: Mode,
) -> Result<(Vec<u8>, FileMetadata), Failure> {
    let mut metadata = metadata;
    for _ in 0..10 {
        let content = read(fd, metadata.size, mode)?;
        let after = FileMetadata::of(fd).map_err(|_| Failure::Broken)?;
        if after.same_content(&metadata) && content.len() as u64 == metadata.size {
            return Ok((content, metadata));
        }
        metadata = after;
    }
    // Another process writes to it continuously; a later request may succeed.
    Err(Failure::Exhausted)
}

/// Reads up to `size` bytes from the start.
fn read(fd: &OwnedFd, size: u64, mode: Mode) -> Result<Vec<u8>, Failure> {
    let mut content = vec![0; size as usize];
    let mut filled = 0;
    while filled < content.len() {
        let rest = &mut content[filled..];
        let result = match mode {
            Mode::Blocking => pread(fd, rest, filled as u64),
            Mode::Inline => {
                let mut slices = [io::IoSliceMut::new(rest)];
                match preadv2(fd, &mut slices, filled as u64, ReadWriteFlags::NOWAIT) {
                    Err(Errno::OPNOTSUPP | Errno::AGAIN) => return Err(Failure::WouldBlock),
                    result => result,
                }
            }
        };
        match result {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => {
                tracing::error!("a file cannot be read: {error}");
                return Err(Failure::Broken);
            }
        }
    }
    content.truncate(filled);
    Ok(content)
}

/// Returns a private copy of a file.
fn copied(
    settings: &Settings,
    fd: OwnedFd,
    metadata: FileMetadata,
) -> Result<StoredContent, Failure> {
    let source = File::from(fd);
    let copy = || {
        let directory = temp_files::for_files()?;
        let mut output = tempfile::spooled_tempfile_in(settings.cache.file as usize, directory);
        let length = io::copy(&mut &source, &mut output)?;
        Ok((output, length))
    };
    let (output, length) = copy().map_err(|error: io::Error| {
        tracing::error!(
            "a file cannot be copied for its SHA-256: {error}; check TMPDIR and its free space"
        );
        Failure::Broken
    })?;
    if length != metadata.size
        || !FileMetadata::of(&source).is_ok_and(|after| after.same_content(&metadata))
    {
        return Err(Failure::Exhausted);
    }
    Ok(spooled(output, length))
}

/// Returns the content of a record file, converted to lines.
fn converted(
    settings: &Settings,
    rules: &Records,
    root: &Root,
    file: &[u8],
    fd: OwnedFd,
    metadata: &FileMetadata,
) -> Result<StoredContent, Failure> {
    let mut source = File::from(fd);
    let report = |what: &dyn std::fmt::Display| {
        tracing::error!("{}: {what}", String::from_utf8_lossy(file));
        Failure::Broken
    };
    let directory = temp_files::for_files().map_err(|error| report(&error))?;
    let mut output = tempfile::spooled_tempfile_in(settings.cache.file as usize, directory);
    let before = fstat(&source).map_err(|error| report(&error))?;
    let length = convert(&mut source, rules.format, &mut output).map_err(|error| report(&error))?;
    output.flush().map_err(|error| report(&error))?;
    if !FileMetadata::of(&source).is_ok_and(|after| after.same_content(metadata)) {
        // Another process writes to it; a later request may succeed.
        return Err(Failure::Exhausted);
    }
    if rules.write {
        io::Seek::rewind(&mut output).map_err(|error| report(&error))?;
        if let Err(error) = write_copy(&root.fd, file, &before, &mut output) {
            // The response does not depend on the stored file.
            report(&error);
        }
    }
    Ok(spooled(output, length))
}

fn spooled(output: tempfile::SpooledTempFile, length: u64) -> StoredContent {
    match output.into_inner() {
        tempfile::SpooledData::InMemory(cursor) => StoredContent::on_disk(cursor.into_inner()),
        tempfile::SpooledData::OnDisk(file) => {
            StoredContent::File(Arc::new(ContentFile::private(file, length)))
        }
    }
}

fn hash(content: &Content) -> Result<[u8; 32], Failure> {
    let stored = match content {
        Content::Read(bytes) => return Ok(Sha256::digest(bytes).into()),
        Content::Live(file) => file,
        Content::Converted(StoredContent::Memory(bytes)) => return Ok(Sha256::digest(bytes).into()),
        Content::Converted(StoredContent::File(file)) => file,
    };
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    let mut at = 0;
    loop {
        match pread(&**stored, &mut buffer, at) {
            Ok(0) => break,
            Ok(count) => {
                hasher.update(&buffer[..count]);
                at += count as u64;
            }
            Err(error) => {
                tracing::error!("a file cannot be read for its SHA-256: {error}");
                return Err(Failure::Broken);
            }
        }
    }
    // The hashed content must be the content that is sent.
    if at == stored.length && stored.is_unchanged() {
        Ok(hasher.finalize().into())
    } else {
        Err(Failure::Exhausted)
    }
}

/// Reads the whole content.
pub(super) fn read_to_end(stored: &StoredContent) -> io::Result<Vec<u8>> {
    with_reader(stored, |reader| {
        let mut content = Vec::new();
        reader.read_to_end(&mut content)?;
        Ok(content)
    })
}

/// Calls `read` with a reader of the content.
///
/// # Errors
/// Those of `read`, and when the file has changed during the read.
pub(super) fn with_reader<T>(
    stored: &StoredContent,
    read: impl FnOnce(&mut dyn Read) -> io::Result<T>,
) -> io::Result<T> {
    match stored {
        StoredContent::Memory(bytes) => read(&mut &bytes[..]),
        StoredContent::File(file) => {
            let mut reader = Positioned { file, at: 0 };
            let result = read(&mut reader)?;
            if reader.at != file.length || !file.is_unchanged() {
                return Err(io::Error::other("the file changed while it was read"));
            }
            Ok(result)
        }
    }
}

struct Positioned<'a> {
    file: &'a ContentFile,
    at: u64,
}

impl Read for Positioned<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = pread(self.file, buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}
