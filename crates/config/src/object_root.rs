//! Roots in object storage.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::file::Secret;

/// A root in object storage: `s3://bucket/prefix`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRoot {
    /// The kind of the service.
    pub scheme: StoreScheme,
    /// The bucket; with [`StoreScheme::Https`] the authority of the server.
    pub bucket: String,
    /// The prefix of all keys, without slashes at its ends; empty for the whole bucket.
    pub prefix: String,
    /// The service of the bucket.
    pub store: Arc<StoreRules>,
}

/// The kind of an object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreScheme {
    /// Amazon S3, or a service with its interface.
    S3,
    /// Google Cloud Storage.
    Gs,
    /// Azure Blob Storage.
    Az,
    /// Any HTTP server.
    Https,
}

/// The rules for a service.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is described at the key of that name in `file::StoreTable`")]
pub struct StoreRules {
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub access_key: Option<String>,
    pub secret_key: Option<Secret>,
    pub credentials: Option<PathBuf>,
    pub anonymous: bool,
    pub authority: Option<PathBuf>,
    pub revalidate: Duration,
    pub timeout: Duration,
}

/// The rules of all services.
#[derive(Debug, Clone)]
pub(crate) struct Stores {
    pub(crate) s3: Arc<StoreRules>,
    pub(crate) gs: Arc<StoreRules>,
    pub(crate) az: Arc<StoreRules>,
    pub(crate) https: Arc<StoreRules>,
}

impl StoreScheme {
    /// Returns the scheme of URLs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gs => "gs",
            Self::Az => "az",
            Self::Https => "https",
        }
    }
}

impl ObjectRoot {
    /// Returns `true` if all keys beneath the prefix of `other` are beneath that of this root.
    pub(crate) fn contains(&self, other: &Self) -> bool {
        let is_within = other
            .prefix
            .strip_prefix(&*self.prefix)
            .is_some_and(|rest| self.prefix.is_empty() || rest.is_empty() || rest.starts_with('/'));
        self.scheme == other.scheme && self.bucket == other.bucket && is_within
    }
}

impl fmt::Display for ObjectRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.bucket)?;
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

/// Returns `true` if a root is a URL, and no path.
pub(crate) fn is_url(root: &Path) -> bool {
    root.to_str().is_some_and(|root| root.contains("://"))
}

/// Returns `true` if a path can be the key of an object: no part of it is empty, `.` or `..`, or has a control character.
pub fn is_object_key(path: &str) -> bool {
    let is_segment = |segment: &str| {
        !matches!(segment, "" | "." | "..") && !segment.contains(|c: char| c.is_ascii_control())
    };
    path.split('/').all(is_segment)
}

/// Returns the parts of the URL of a root: scheme, bucket and prefix.
///
/// # Errors
/// Returns the fault of the URL.
pub(crate) fn parse(root: &Path) -> Result<(StoreScheme, String, String), String> {
    let text = root.to_str().unwrap_or_default();
    let wrong =
        |what: &str| Err(format!("{text:?}: {what}; write for example \"s3://bucket/prefix\""));
    let Some((scheme, rest)) = text.split_once("://") else { return wrong("it is not a URL") };
    let scheme = match scheme {
        "s3" => StoreScheme::S3,
        "gs" => StoreScheme::Gs,
        "az" => StoreScheme::Az,
        "https" => StoreScheme::Https,
        "http" => {
            return wrong("write https://, and in [store.https] endpoint = \"http://...\"");
        }
        _ => return wrong("the schemes of object stores are s3, gs, az and https"),
    };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    if bucket.is_empty() || !bucket.chars().all(is_name) {
        return wrong("it has no bucket");
    }
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    if !prefix.is_empty() && !is_object_key(prefix) {
        return wrong("a part of its prefix is empty, `.` or `..`");
    }
    if text.contains(['?', '#']) {
        return wrong("it has a query or a fragment");
    }
    Ok((scheme, bucket.to_owned(), prefix.to_owned()))
}

impl Stores {
    /// Returns the root in object storage that `root` is; `None` if it is a directory, or not a URL of an object store.
    pub(crate) fn root(&self, root: &Path) -> Option<Arc<ObjectRoot>> {
        if !is_url(root) {
            return None;
        }
        let (scheme, bucket, prefix) = parse(root).ok()?;
        let store = match scheme {
            StoreScheme::S3 => &self.s3,
            StoreScheme::Gs => &self.gs,
            StoreScheme::Az => &self.az,
            StoreScheme::Https => &self.https,
        };
        Some(Arc::new(ObjectRoot { scheme, bucket, prefix, store: Arc::clone(store) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_a_bucket_with_a_prefix() {
        for (text, expected) in [
            ("s3://bucket", Ok((StoreScheme::S3, "bucket", ""))),
            ("s3://bucket/", Ok((StoreScheme::S3, "bucket", ""))),
            ("gs://b/one/two/", Ok((StoreScheme::Gs, "b", "one/two"))),
            ("https://example.com:8443/x y", Ok((StoreScheme::Https, "example.com:8443", "x y"))),
            ("s3://", Err("no bucket")),
            ("s3:///x", Err("no bucket")),
            ("s3://key:secret@bucket/x", Err("no bucket")),
            ("s3://b/a/../c", Err("prefix")),
            ("s3://b//c", Err("prefix")),
            ("ftp://b/c", Err("schemes")),
            ("http://b/c", Err("endpoint")),
            ("https://b/c?d", Err("query")),
        ] {
            match (parse(Path::new(text)), expected) {
                (Ok((scheme, bucket, prefix)), Ok(expected)) => {
                    assert_eq!((scheme, &*bucket, &*prefix), expected, "{text}");
                }
                (Err(what), Err(expected)) => assert!(what.contains(expected), "{what}"),
                (found, expected) => panic!("{text}: {found:?}, and not {expected:?}"),
            }
        }
    }
}
