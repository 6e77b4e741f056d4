//! From an open file to a resource: its content where it is best sent from, and its heads.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use dunlin_http::semantics::Coding;
use rustix::fs::fstat;
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};
use sha2::{Digest, Sha256};

use super::file_system::FileSystem;
use super::render::{self, Description};
use super::resolve::{Failure, Mode, Wanted};
use super::roots::Root;
use super::validators::{self, Basis};
use crate::cache::stored::{DESCRIPTOR_FROM, Facts};
use crate::cache::{Key, Resource, Stored, StoredFile, Version};
use crate::config::{EtagKind, Settings};
use crate::handler::media_type::content_type;
use crate::handler::records;
use crate::scratch;

/// A regular file that was opened to be served.
pub(super) struct Loaded<'a> {
    pub(super) fd: OwnedFd,
    pub(super) facts: Facts,
    /// Its path beneath the root.
    pub(super) file: &'a [u8],
    pub(super) file_system: FileSystem,
    pub(super) version: Arc<Version>,
    /// Whether a change of it will be notified.
    pub(super) watched: bool,
}

/// How long a file without notification is trusted, in milliseconds.
pub(super) const UNWATCHED: u64 = 1000;
/// What is larger is not copied on a worker, where others wait meanwhile.
const INLINE_COPY: u64 = 512 * 1024;
/// With cached content off, files up to this size are still read, to leave in one write with
/// their heads; larger ones are sent from their descriptors.
pub(super) const READ_ANYWAY: u64 = 32 * 1024;

/// Makes the resource that `opened` is.
pub(super) fn load(
    wanted: &Wanted<'_>,
    root: &Root,
    opened: Loaded<'_>,
    mode: Mode,
) -> Result<Resource, Failure> {
    let settings = wanted.settings;
    let slow = settings.records.is_some() || settings.etag == EtagKind::Sha256;
    if slow && mode == Mode::Inline {
        return Err(Failure::WouldBlock);
    }
    let Loaded { fd, facts, file, file_system, version, watched } = opened;
    // The clock is read before the content: a change after that is later than this.
    let seen = validators::now();
    let (content, facts) = content(wanted, root, file, fd, facts, mode)?;
    let sha256 = match settings.etag {
        EtagKind::Sha256 => Some(hash(&content)?),
        _ => None,
    };
    let stored = content.into_stored(mode);
    let content_type = content_type(&file_name(file), &settings.types, &settings.charset);
    let basis = Basis { settings, facts: &facts, file_system, seen };
    let description = Description {
        settings,
        content_type: &content_type,
        coding: Coding::Identity,
        etag: basis.entity_tag(sha256.as_ref(), Coding::Identity),
        last_modified: basis.last_modified(),
        length: length(&stored),
        sha256,
        is_settled: basis.is_settled(),
    };
    let identity = render::representation(description, stored, wanted.shared.server_field());
    let resource = Resource::new(
        Key { site: wanted.site.serial, path: wanted.path.into() },
        Arc::clone(settings),
        file,
        facts,
        content_type,
        identity,
        version,
    );
    trust(wanted, &resource, file_system, watched);
    Ok(resource)
}

/// Sets until when `resource` may be used without asking the disk.
pub(super) fn trust(
    wanted: &Wanted<'_>,
    resource: &Resource,
    file_system: FileSystem,
    watched: bool,
) {
    let revalidate = wanted.shared.config.server.cache.revalidate.as_millis() as u64;
    let watched = watched && !resource.has_unwatched_sibling();
    let mut span = if watched { revalidate } else { UNWATCHED.min(revalidate) };
    if !resource.identity.is_settled {
        let (settings, facts) = (&*resource.settings, &resource.facts);
        let basis = Basis { settings, facts, file_system, seen: validators::now() };
        span = span.min(until_settled(&basis));
    }
    resource.version.trust_until(wanted.now + span);
}

/// Milliseconds until a change of the file could be told from its last one.
pub(super) fn until_settled(basis: &Basis<'_>) -> u64 {
    basis.settles_at().saturating_sub(basis.seen).as_millis() as u64 + 1
}

enum Content {
    Read(Vec<u8>),
    Live(Arc<StoredFile>),
    Converted(Stored),
}

impl Content {
    fn into_stored(self, mode: Mode) -> Stored {
        match self {
            Self::Read(bytes) if mode == Mode::Inline => Stored::at_once(bytes),
            Self::Read(bytes) => Stored::lasting(bytes),
            Self::Live(file) => Stored::File(file),
            Self::Converted(stored) => stored,
        }
    }
}

fn length(stored: &Stored) -> u64 {
    match stored {
        Stored::Memory(bytes) => bytes.len() as u64,
        Stored::File(file) => file.length,
    }
}

fn content(
    wanted: &Wanted<'_>,
    root: &Root,
    file: &[u8],
    fd: OwnedFd,
    facts: Facts,
    mode: Mode,
) -> Result<(Content, Facts), Failure> {
    let settings = wanted.settings;
    // What was written beside a file of records is lines already.
    if let Some(rules) = settings.records.as_ref().filter(|_| !file.ends_with(b".stmlf")) {
        let stored = converted(settings, rules, root, file, fd, &facts)?;
        return Ok((Content::Converted(stored), facts));
    }
    let most = match settings.cache.enabled {
        true if wanted.copy => settings.cache.file.max(wanted.shared.store.largest_copy()),
        true => settings.cache.file,
        false => READ_ANYWAY,
    };
    if facts.size > most {
        // What is hashed has to be what is sent, and a mapping that writes to the file leaves no trace.
        let is_copied = facts.size <= wanted.shared.store.largest_copy();
        if settings.etag == EtagKind::Sha256 && !settings.cache.enabled && is_copied {
            return copied(settings, fd, facts).map(|copy| (Content::Converted(copy), facts));
        }
        let live = StoredFile::live(fd, facts, settings.sendfile);
        return Ok((Content::Live(Arc::new(live)), facts));
    }
    let lasting = wanted.copy && facts.size >= DESCRIPTOR_FROM as u64;
    if (lasting || facts.size > INLINE_COPY) && mode == Mode::Inline {
        return Err(Failure::WouldBlock);
    }
    let (bytes, facts) = read_whole(&fd, facts, mode)?;
    Ok((Content::Read(bytes), facts))
}

/// The content and what the file was while it was read: both of one version.
fn read_whole(fd: &OwnedFd, facts: Facts, mode: Mode) -> Result<(Vec<u8>, Facts), Failure> {
    let mut facts = facts;
    for _ in 0..10 {
        let content = read(fd, facts.size, mode)?;
        let after = Facts::of(fd).map_err(|_| Failure::Broken)?;
        if after.same_content(&facts) && content.len() as u64 == facts.size {
            return Ok((content, facts));
        }
        facts = after;
    }
    // Somebody writes to it without end; the next request may have more luck.
    Err(Failure::Exhausted)
}

/// Up to `size` bytes from the beginning.
pub(super) fn read(fd: &OwnedFd, size: u64, mode: Mode) -> Result<Vec<u8>, Failure> {
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
                tracing::error!("reading a file: {error}");
                return Err(Failure::Broken);
            }
        }
    }
    content.truncate(filled);
    Ok(content)
}

/// A copy of a file that nobody else can reach.
fn copied(settings: &Settings, fd: OwnedFd, facts: Facts) -> Result<Stored, Failure> {
    let source = File::from(fd);
    let copy = || {
        let directory = scratch::for_files()?;
        let mut output = tempfile::spooled_tempfile_in(settings.cache.file as usize, directory);
        let length = io::copy(&mut &source, &mut output)?;
        Ok((output, length))
    };
    let (output, length) = copy().map_err(|error: io::Error| {
        tracing::error!("copying a file to hash it: {error}; check TMPDIR and the space there");
        Failure::Broken
    })?;
    if length != facts.size || !Facts::of(&source).is_ok_and(|after| after.same_content(&facts)) {
        return Err(Failure::Exhausted);
    }
    Ok(spooled(output, length))
}

/// The stream of lines that a file of records stands for.
fn converted(
    settings: &Settings,
    rules: &crate::config::Records,
    root: &Root,
    file: &[u8],
    fd: OwnedFd,
    facts: &Facts,
) -> Result<Stored, Failure> {
    let mut source = File::from(fd);
    let told = |what: &dyn std::fmt::Display| {
        tracing::error!("{}: {what}", String::from_utf8_lossy(file));
        Failure::Broken
    };
    let directory = scratch::for_files().map_err(|error| told(&error))?;
    let mut output = tempfile::spooled_tempfile_in(settings.cache.file as usize, directory);
    let before = fstat(&source).map_err(|error| told(&error))?;
    let length =
        records::convert(&mut source, rules.format, &mut output).map_err(|error| told(&error))?;
    output.flush().map_err(|error| told(&error))?;
    if !Facts::of(&source).is_ok_and(|after| after.same_content(facts)) {
        // Somebody writes to it; the next request may have more luck.
        return Err(Failure::Exhausted);
    }
    if rules.write {
        io::Seek::rewind(&mut output).map_err(|error| told(&error))?;
        if let Err(error) = records::write_beside(&root.fd, file, &before, &mut output) {
            // Serving goes on without it.
            told(&error);
        }
    }
    Ok(spooled(output, length))
}

fn spooled(output: tempfile::SpooledTempFile, length: u64) -> Stored {
    match output.into_inner() {
        tempfile::SpooledData::InMemory(cursor) => Stored::lasting(cursor.into_inner()),
        tempfile::SpooledData::OnDisk(file) => {
            Stored::File(Arc::new(StoredFile::private(file, length)))
        }
    }
}

fn hash(content: &Content) -> Result<[u8; 32], Failure> {
    let stored = match content {
        Content::Read(bytes) => return Ok(Sha256::digest(bytes).into()),
        Content::Live(file) => file,
        Content::Converted(Stored::Memory(bytes)) => return Ok(Sha256::digest(bytes).into()),
        Content::Converted(Stored::File(file)) => file,
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
                tracing::error!("hashing a file: {error}");
                return Err(Failure::Broken);
            }
        }
    }
    // What was hashed must be what will be sent.
    if at == stored.length && stored.is_unchanged() {
        Ok(hasher.finalize().into())
    } else {
        Err(Failure::Exhausted)
    }
}

pub(super) fn file_name(file: &[u8]) -> String {
    let start = memchr::memrchr(b'/', file).map_or(0, |slash| slash + 1);
    String::from_utf8_lossy(&file[start..]).into_owned()
}

/// Reads a whole file for [`super::coded`].
pub(super) fn read_to_end(stored: &Stored) -> io::Result<Vec<u8>> {
    with_reader(stored, |reader| {
        let mut content = Vec::new();
        reader.read_to_end(&mut content)?;
        Ok(content)
    })
}

/// Has `read` read the content to its end, for [`super::coded`].
///
/// # Errors
/// Those of `read`, and when the file changed meanwhile.
pub(super) fn with_reader<T>(
    stored: &Stored,
    read: impl FnOnce(&mut dyn Read) -> io::Result<T>,
) -> io::Result<T> {
    match stored {
        Stored::Memory(bytes) => read(&mut &bytes[..]),
        Stored::File(file) => {
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
    file: &'a StoredFile,
    at: u64,
}

impl Read for Positioned<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = pread(self.file, buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}
