//! From an open file to a resource: its content where it is best sent from, and its heads.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dunlin_http::semantics::{Coding, EntityTag};
use rustix::fs::{fstat, fstatfs};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};
use sha2::{Digest, Sha256};

use super::render::{self, Description};
use super::resolve::{Failure, Mode, Wanted};
use super::roots::Root;
use crate::cache::stored::{DESCRIPTOR_FROM, Facts};
use crate::cache::{Key, Resource, Stored, StoredFile, Version};
use crate::config::{EtagKind, Settings};
use crate::handler::media_type::media_type;
use crate::handler::records;

/// A regular file that was opened to be served.
pub(super) struct Loaded<'a> {
    pub(super) fd: OwnedFd,
    pub(super) facts: Facts,
    /// Its path beneath the root.
    pub(super) file: &'a [u8],
    pub(super) version: Arc<Version>,
    /// Whether a change of it will be notified.
    pub(super) watched: bool,
}

/// How long a file without notification is trusted, in milliseconds.
const UNWATCHED: u64 = 1000;
/// What is larger is not copied on a loop, where others wait meanwhile.
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
    let Loaded { fd, facts, file, version, watched } = opened;
    let (content, facts) = content(wanted, root, file, fd, facts, mode)?;
    let sha256 = match settings.etag {
        EtagKind::Sha256 => Some(hash(&content)?),
        _ => None,
    };
    let stored = content.into_stored(mode);
    let media_type = media_type(&file_name(file), &settings.types, &settings.charset).into_owned();
    let description = Description {
        settings,
        media_type: &media_type,
        coding: Coding::Identity,
        etag: entity_tag(settings, &facts, sha256.as_ref(), Coding::Identity),
        last_modified: u64::try_from(facts.modified).ok(),
        length: length(&stored),
        sha256,
    };
    let identity = render::representation(description, stored, wanted.shared.server_field());
    let resource = Resource::new(
        Key { site: wanted.site, path: wanted.path.into() },
        Arc::clone(settings),
        file,
        facts,
        &media_type,
        identity,
        version,
    );
    trust(wanted, &resource, watched);
    Ok(resource)
}

/// Sets until when `resource` may be used without asking the disk.
pub(super) fn trust(wanted: &Wanted<'_>, resource: &Resource, watched: bool) {
    let revalidate = wanted.shared.config.server.cache.revalidate.as_millis() as u64;
    let mut span = if watched { revalidate } else { UNWATCHED.min(revalidate) };
    if resource.identity.etag.as_ref().is_some_and(|tag| tag.weak) {
        // Look again when the time of change can be told from that of a later change.
        span = span.min(grain(&resource.facts).as_millis() as u64 + 1);
    }
    resource.version.trust_until(wanted.now + span);
}

/// Whether the file system tells of changes: those that others can change without this kernel's
/// knowledge do not.
pub(super) fn is_notified(fd: &OwnedFd, facts: &Facts) -> bool {
    const NFS: u32 = 0x6969;
    const SMB: u32 = 0x517b;
    const SMB2: u32 = 0xfe53_4d42;
    const CIFS: u32 = 0xff53_4d42;
    const FUSE: u32 = 0x6573_5546;
    const NINE_P: u32 = 0x0102_1997;
    const AFS: u32 = 0x5346_414f;
    const CEPH: u32 = 0x00c3_6400;
    // A file with other names can be changed through one that is not watched.
    facts.links <= 1
        && fstatfs(fd).is_ok_and(|fs| {
            ![NFS, SMB, SMB2, CIFS, FUSE, NINE_P, AFS, CEPH].contains(&(fs.f_type as u32))
        })
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
    let mut output = tempfile::spooled_tempfile(settings.cache.file as usize);
    let told = |what: &dyn std::fmt::Display| {
        tracing::error!("{}: {what}", String::from_utf8_lossy(file));
        Failure::Broken
    };
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
    match output.into_inner() {
        tempfile::SpooledData::InMemory(cursor) => Ok(Stored::lasting(cursor.into_inner())),
        tempfile::SpooledData::OnDisk(spooled) => {
            Ok(Stored::File(Arc::new(StoredFile::private(spooled, length))))
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

/// The entity tag of a file. From the content when the setting says so; else from what the disk
/// says of it, and weak as long as a change could go unseen because it falls into the same grain
/// of the file system's clock.
pub(super) fn entity_tag(
    settings: &Settings,
    facts: &Facts,
    sha256: Option<&[u8; 32]>,
    coding: Coding,
) -> Option<EntityTag> {
    let suffix = match coding {
        Coding::Identity => String::new(),
        coding => format!("-{}", coding.as_str()),
    };
    match settings.etag {
        EtagKind::Off => None,
        EtagKind::Sha256 => {
            let hex: String = sha256?.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
            Some(EntityTag::strong(format!("{hex}{suffix}")))
        }
        EtagKind::Stat => {
            let nanos =
                i128::from(facts.modified) * 1_000_000_000 + i128::from(facts.modified_nanos);
            let text = format!("{:x}-{:x}-{nanos:x}{suffix}", facts.inode, facts.size);
            let modified = Duration::new(facts.modified.max(0) as u64, facts.modified_nanos);
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let young = now < modified + grain(facts);
            Some(if young { EntityTag::weak(text) } else { EntityTag::strong(text) })
        }
    }
}

/// How far apart two changes must be to have different times: a tick of the kernel's clock, or
/// two seconds where the file system keeps whole ones.
fn grain(facts: &Facts) -> Duration {
    if facts.modified_nanos == 0 { Duration::from_secs(2) } else { Duration::from_millis(20) }
}

pub(super) fn file_name(file: &[u8]) -> String {
    let start = memchr::memrchr(b'/', file).map_or(0, |slash| slash + 1);
    String::from_utf8_lossy(&file[start..]).into_owned()
}

/// Reads a whole file for [`super::coded`].
pub(super) fn read_to_end(stored: &Stored) -> io::Result<Vec<u8>> {
    match stored {
        Stored::Memory(bytes) => Ok(bytes.to_vec()),
        Stored::File(file) => {
            let mut content = Vec::with_capacity(file.length as usize);
            let mut reader = Positioned { file, at: 0 };
            reader.read_to_end(&mut content)?;
            if content.len() as u64 != file.length || !file.is_unchanged() {
                return Err(io::Error::other("the file changed while it was read"));
            }
            Ok(content)
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
