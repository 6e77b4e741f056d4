//! Entity tags and dates of files (RFC 9110 §8.8).

use std::time::Duration;

use dunlin_http::semantics::{ContentCoding, EntityTag};
use sha2::{Digest, Sha256};

use dunlin_config::{EtagKind, RecordFormat, Settings};
use dunlin_fs::file_system::FileSystem;
use dunlin_fs::metadata::FileMetadata;
use dunlin_net::clock;

/// The properties from which validators are made.
#[derive(Clone, Copy)]
pub(super) struct Basis<'a> {
    pub(super) settings: &'a Settings,
    pub(super) metadata: &'a FileMetadata,
    pub(super) file_system: FileSystem,
    /// The earliest time at which the content was read, since 1970.
    pub(super) seen: Duration,
}

/// Returns the current time since 1970.
pub(super) fn now() -> Duration {
    clock::since_1970()
}

impl Basis<'_> {
    /// Returns the entity tag of the representation in this content coding: from the content if the route is configured so,
    /// otherwise from the metadata.
    ///
    /// A tag from the metadata contains the change time (ctime), which programs cannot set, so that different contents have
    /// different tags whatever their modification time (mtime). It is weak as long as another change could have the same
    /// time, and on file systems without ctime.
    pub(super) fn entity_tag(
        &self,
        sha256: Option<&[u8; 32]>,
        coding: ContentCoding,
    ) -> Option<EntityTag> {
        let suffix = suffix(coding);
        match self.settings.etag {
            EtagKind::Off => None,
            EtagKind::Sha256 => Some(EntityTag::strong(hex(&sha256?[..16]) + &suffix)),
            EtagKind::Stat => {
                let text = self.hash_of_metadata() + &suffix;
                let is_strong = self.file_system.keeps_change_times && self.is_settled();
                Some(if is_strong { EntityTag::strong(text) } else { EntityTag::weak(text) })
            }
        }
    }

    /// Seconds since 1970. A time in the future must not be sent (RFC 9110 §8.8.2.1); the change time, at which it was set,
    /// replaces it.
    pub(super) fn last_modified(&self) -> Option<u64> {
        let modified = u64::try_from(self.metadata.modified).ok()?;
        let now = self.seen.as_secs();
        if modified <= now {
            return Some(modified);
        }
        Some(u64::try_from(self.metadata.changed).unwrap_or_default().min(now))
    }

    /// Returns `true` if every change after the read of the content gives the file a different time.
    pub(super) fn is_settled(&self) -> bool {
        self.seen >= self.settles_at()
    }

    /// Returns when [`Basis::is_settled`] becomes true, since 1970.
    pub(super) fn settles_at(&self) -> Duration {
        let FileMetadata { modified, modified_nanos, changed, changed_nanos, .. } = *self.metadata;
        let settled = |seconds: i64, nanos| {
            let time = Duration::new(seconds.max(0) as u64, nanos);
            (time, time + grain(nanos))
        };
        let (_, by_change) = settled(changed, changed_nanos);
        match settled(modified, modified_nanos) {
            (modified, by_modification) if modified <= self.seen => by_change.max(by_modification),
            // A time in the future was set by a program.
            _ => by_change,
        }
    }

    fn hash_of_metadata(&self) -> String {
        let FileMetadata { inode, size, modified, modified_nanos, changed, changed_nanos, .. } =
            *self.metadata;
        let mut hasher = Sha256::new();
        for number in [inode, size, modified as u64, changed as u64] {
            hasher.update(number.to_le_bytes());
        }
        for nanos in [modified_nanos, changed_nanos] {
            hasher.update(nanos.to_le_bytes());
        }
        // A record file has different content under different rules of conversion.
        match self.settings.records.as_ref().map(|rules| rules.format) {
            None => {}
            Some(RecordFormat::Variable) => hasher.update([1]),
            Some(RecordFormat::Vfc { control }) => hasher.update(control.to_le_bytes()),
        }
        hex(&hasher.finalize()[..12])
    }
}

/// Returns the entity tag of a variant that is compressed from the content with tag `original`.
pub(super) fn coded_tag(
    original: &EntityTag,
    sha256: Option<&[u8; 32]>,
    coding: ContentCoding,
) -> EntityTag {
    let text = match sha256 {
        Some(sha256) => hex(&sha256[..16]),
        None => String::from_utf8_lossy(&original.opaque).into_owned(),
    };
    EntityTag { weak: original.weak, ..EntityTag::strong(text + &suffix(coding)) }
}

fn suffix(coding: ContentCoding) -> String {
    match coding {
        ContentCoding::Identity => String::new(),
        coding => format!("-{}", coding.as_str()),
    }
}

/// Returns `true` if every change of a file after `seen`, a time since 1970, gives it another change time.
pub(super) fn is_change_settled(metadata: &FileMetadata, seen: Duration) -> bool {
    let FileMetadata { changed, changed_nanos, .. } = *metadata;
    seen >= Duration::new(changed.max(0) as u64, changed_nanos) + grain(changed_nanos)
}

/// Minimum distance of two changes with different times: a tick of the kernel's clock, or two seconds on file systems that
/// store whole seconds.
fn grain(nanos: u32) -> Duration {
    if nanos == 0 { Duration::from_secs(2) } else { Duration::from_millis(20) }
}

/// Returns the bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

#[cfg(test)]
#[expect(clippy::redundant_closure_for_method_calls, reason = "lifetimes need the closures")]
mod tests {
    use std::path::Path;

    use super::*;
    use dunlin_config::{Config, Overrides};

    const METADATA: FileMetadata = FileMetadata {
        device: 1,
        inode: 2,
        size: 3,
        modified: 1_000,
        modified_nanos: 0,
        changed: 5_000,
        changed_nanos: 500_000_000,
        links: 1,
        mode: 0o100_644,
    };
    const LOCAL: FileSystem = FileSystem { notifies: true, keeps_change_times: true };

    fn with<R>(metadata: FileMetadata, seen: f64, look: impl FnOnce(&Basis<'_>) -> R) -> R {
        let text = "[[listen]]\naddress = '127.0.0.1:0'\n[[site]]\nroot = '/'\n";
        let config = Config::parse(text, Path::new("x"), &Overrides::default()).unwrap();
        let settings = &config.sites.only().unwrap().route(b"/");
        let (metadata, seen) = (&metadata, Duration::from_secs_f64(seen));
        look(&Basis { settings, metadata, file_system: LOCAL, seen })
    }

    fn tag(metadata: FileMetadata) -> EntityTag {
        with(metadata, 9_000.0, |basis| basis.entity_tag(None, ContentCoding::Identity)).unwrap()
    }

    #[test]
    fn every_difference_of_the_metadata_gives_another_strong_tag() {
        let tags: Vec<EntityTag> = [
            METADATA,
            FileMetadata { inode: 9, ..METADATA },
            FileMetadata { size: 9, ..METADATA },
            FileMetadata { modified: 9, ..METADATA },
            FileMetadata { modified_nanos: 9, ..METADATA },
            FileMetadata { changed: 9, ..METADATA },
            FileMetadata { changed_nanos: 9, ..METADATA },
        ]
        .map(tag)
        .into();
        for (at, one) in tags.iter().enumerate() {
            assert!(!one.weak);
            assert!(tags[at + 1..].iter().all(|other| !other.weak_eq(one)));
        }
    }

    #[test]
    fn a_tag_is_weak_until_a_second_change_would_have_another_time() {
        for (metadata, seen, is_settled) in [
            (METADATA, 5_000.51, false),
            (METADATA, 5_000.53, true),
            (METADATA, 4_000.0, false), // the clock was set back
            (FileMetadata { changed_nanos: 0, ..METADATA }, 5_001.9, false),
            (FileMetadata { changed_nanos: 0, ..METADATA }, 5_002.1, true),
            (FileMetadata { modified: 5_010, modified_nanos: 1, ..METADATA }, 5_010.01, false),
            // A modification time in the future does not keep it weak.
            (FileMetadata { modified: 99_999, ..METADATA }, 5_010.0, true),
        ] {
            assert_eq!(
                with(metadata, seen, |it| it.is_settled()),
                is_settled,
                "{metadata:?} {seen}"
            );
        }
    }

    #[test]
    fn no_date_is_in_the_future() {
        let future = FileMetadata { modified: 99_999, ..METADATA };
        for (metadata, seen, expected) in [
            (METADATA, 9_000.0, Some(1_000)),
            (future, 9_000.0, Some(5_000)),
            (future, 4_000.0, Some(4_000)),
            (future, 99_999.5, Some(99_999)),
            (FileMetadata { modified: -1, ..METADATA }, 9_000.0, None),
        ] {
            assert_eq!(with(metadata, seen, |it| it.last_modified()), expected, "{metadata:?}");
        }
    }
}
