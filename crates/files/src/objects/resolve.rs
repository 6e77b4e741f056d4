//! From a path to an object: the search of directories, whose candidates are requested from the store as it visits them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dunlin_config::{ObjectRoot, is_object_key};
use dunlin_fs::failure::Failure;
use dunlin_net::clock::monotonic_millis;

use super::bucket::{Bucket, Joined};
use super::claim::CacheClaim;
use super::flight::FetchResult;
use super::load::{self, Context};
use super::store::StoreError;
use crate::cache::resource::Resource;
use crate::cache::shared_cache::Key;
use crate::listing::respond::ReadDirectory;
use crate::search::{Found, Opener, Wanted, search};

/// The parameters of a resolution, besides the path.
#[derive(Debug)]
pub struct ObjectResolver {
    /// The cache.
    pub context: Arc<Context>,
    /// The serial number of the site; see [`Key`].
    pub site: usize,
    /// The root of the route.
    pub root: Arc<ObjectRoot>,
    /// The bucket of the root.
    pub bucket: Arc<Bucket>,
    /// The resource that the cache has for the path.
    pub previous: Option<Arc<Resource>>,
    /// The object is cached, if the route permits that.
    pub keep: bool,
    /// The whole content is needed: it is not streamed while it arrives.
    pub is_whole: bool,
}

/// A prefix that is a directory: empty, or with a final slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// As the store has it.
    pub prefix: String,
}

/// The result of a resolution.
pub type ResolvedObject = Result<Found<Arc<Resource>, Directory>, Failure>;

/// Returns the entries of a directory.
///
/// # Errors
/// Why it cannot be listed.
pub async fn list(bucket: &Bucket, directory: &Directory) -> Result<ReadDirectory, Failure> {
    let contents = bucket.contents(&directory.prefix).await.map_err(|error| failure(&error))?;
    Ok(ReadDirectory { contents })
}

/// Searches for the object of `wanted`.
pub async fn resolve(wanted: &Wanted<'_>, resolver: &ObjectResolver) -> ResolvedObject {
    let opener = ObjectOpener {
        resolver,
        files: RefCell::default(),
        directories: RefCell::default(),
        unknown: Cell::new(None),
    };
    loop {
        let result = search(wanted, || Ok(&opener));
        let Some(unknown) = opener.unknown.take() else { return result };
        match unknown {
            Unknown::File { key, file, is_directory } => {
                let found = find(resolver, wanted, &key, &file, is_directory).await;
                opener.files.borrow_mut().insert(key, found);
            }
            Unknown::Directory(prefix) => {
                let found = directory(resolver, wanted, &prefix).await;
                opener.directories.borrow_mut().insert(prefix, found);
            }
        }
    }
}

/// The knowledge that the search needs next.
enum Unknown {
    /// The existence of an object, and without one, of objects beneath its key as a directory.
    File { key: String, file: Box<[u8]>, is_directory: bool },
    /// The existence of objects beneath the prefix.
    Directory(String),
}

/// The knowledge of a key.
#[derive(Clone)]
enum Known {
    File(Arc<Resource>),
    Directory,
    Failed(Failure),
}

/// Responds from what is known, and stops the search at what is not.
struct ObjectOpener<'a> {
    resolver: &'a ObjectResolver,
    files: RefCell<HashMap<String, Known>>,
    directories: RefCell<HashMap<String, Result<(), Failure>>>,
    unknown: Cell<Option<Unknown>>,
}

impl Opener for &ObjectOpener<'_> {
    type File = Arc<Resource>;
    type Directory = Directory;

    fn file(&self, wanted: &Wanted<'_>, file: &[u8], _is_probe: bool) -> ResolvedObject {
        let key = key_of(&self.resolver.root, file).ok_or(Failure::Missing)?;
        match self.files.borrow().get(&key) {
            Some(Known::File(resource)) => return Ok(Found::File(Arc::clone(resource))),
            Some(Known::Directory) => return Ok(Found::Directory),
            Some(Known::Failed(failure)) => return Err(*failure),
            None => {}
        }
        // Elsewhere a directory and a missing file have the same effect.
        let is_directory = wanted.route.try_files.is_empty() && !wanted.path.ends_with(b"/");
        self.unknown.set(Some(Unknown::File { key, file: file.into(), is_directory }));
        Err(Failure::WouldBlock)
    }

    fn directory(&self, _wanted: &Wanted<'_>, directory: &[u8]) -> Result<Directory, Failure> {
        let prefix = prefix_of(&self.resolver.root, directory).ok_or(Failure::Missing)?;
        if directory.is_empty() {
            return Ok(Directory { prefix });
        }
        match self.directories.borrow().get(&prefix) {
            Some(Ok(())) => return Ok(Directory { prefix }),
            Some(Err(failure)) => return Err(*failure),
            None => {}
        }
        self.unknown.set(Some(Unknown::Directory(prefix)));
        Err(Failure::WouldBlock)
    }
}

/// Returns the key of a path beneath the root; `None` if no object has it. Every key has one path, and no path leaves the
/// prefix.
pub(crate) fn key_of(root: &ObjectRoot, file: &[u8]) -> Option<String> {
    let file = std::str::from_utf8(file).ok()?;
    if !is_object_key(file) {
        return None;
    }
    let prefix = &root.prefix;
    Some(if prefix.is_empty() { file.to_owned() } else { format!("{prefix}/{file}") })
}

/// Returns the prefix of the keys in a directory beneath the root.
fn prefix_of(root: &ObjectRoot, directory: &[u8]) -> Option<String> {
    if directory.is_empty() {
        let prefix = &root.prefix;
        return Some(if prefix.is_empty() { String::new() } else { format!("{prefix}/") });
    }
    Some(key_of(root, directory)? + "/")
}

/// Returns whether there are objects beneath `prefix`.
async fn directory(
    resolver: &ObjectResolver,
    wanted: &Wanted<'_>,
    prefix: &str,
) -> Result<(), Failure> {
    let bucket = &resolver.bucket;
    if !bucket.client.store.has_prefixes() && !wanted.route.listing {
        return Err(Failure::Missing);
    }
    match bucket.has_prefix(prefix).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::Missing),
        Err(error) => Err(failure(&error)),
    }
}

/// Returns the failure of a request that has no object.
pub(super) fn failure(error: &StoreError) -> Failure {
    match error {
        StoreError::Missing | StoreError::Unsupported => Failure::Missing,
        StoreError::Denied => Failure::Forbidden,
        StoreError::Changed | StoreError::Invalid(_) | StoreError::Failed(_) => {
            Failure::Unavailable
        }
    }
}

/// Requests an object, and what the key is if there is none.
async fn find(
    resolver: &ObjectResolver,
    wanted: &Wanted<'_>,
    key: &str,
    file: &[u8],
    is_directory: bool,
) -> Known {
    let failed = match object(resolver, wanted, key, file).await {
        Ok(resource) => return Known::File(resource),
        Err(failure) => failure,
    };
    if failed == Failure::Missing && is_directory {
        return match directory(resolver, wanted, &format!("{key}/")).await {
            Ok(()) => Known::Directory,
            Err(failure) => Known::Failed(failure),
        };
    }
    Known::Failed(failed)
}

/// Requests an object.
async fn object(
    resolver: &ObjectResolver,
    wanted: &Wanted<'_>,
    key: &str,
    file: &[u8],
) -> Result<Arc<Resource>, Failure> {
    let ObjectResolver { context, bucket, site, .. } = resolver;
    let settings = wanted.route;
    // What memory does not admit is kept on disk.
    let is_kept = settings.cache.enabled && (resolver.keep || context.disk.is_some());
    let limit = settings.cache.file.max(context.cache.largest_copy());
    let is_it = |held: &&Arc<Resource>| {
        held.object().is_some_and(|object| object.key == key && object.bucket == bucket.client.name)
    };
    let mut claim = CacheClaim {
        key: Key { site: *site, path: wanted.path.into() },
        settings: Arc::clone(settings),
        file: file.into(),
        limit: if is_kept { limit } else { 0 },
        held: resolver.previous.as_ref().filter(is_it).cloned(),
    };
    if is_kept && claim.held.is_none() {
        claim.held = bucket.restore(context, key, &claim).await;
        if let Some(held) =
            claim.held.as_ref().filter(|held| held.validity.is_fresh(monotonic_millis()))
        {
            return Ok(Arc::clone(held));
        }
    }
    // Further rounds are for an object whose version was confirmed and which has to be received nevertheless, and for one that
    // another request has received.
    for _ in 0..4 {
        claim.held = claim.held.filter(|held| !held.validity.is_invalidated());
        let flight = match bucket.join(context, key, &claim, is_kept) {
            Joined::Cached(resource) => return Ok(resource),
            Joined::Absent => return Err(absent(&claim)),
            Joined::Down => return stale(bucket, &claim),
            Joined::Ending(flight) => {
                flight.finished().await;
                claim.held = flight.loaded(&claim.key).or(claim.held);
                continue;
            }
            Joined::Flight(flight) => flight,
        };
        // The request goes on in any case, and its result is for later ones.
        let result = match (&claim.held, bucket.client.is_down()) {
            (Some(_), true) => None,
            (Some(_), false) | (None, true) => flight.head_in_time().await,
            (None, false) => Some(flight.head().await),
        };
        match result {
            None | Some(FetchResult::Failed(StoreError::Failed(_))) => {
                return stale(bucket, &claim);
            }
            Some(FetchResult::NotModified) => match &claim.held {
                Some(held) if !held.validity.is_invalidated() => return Ok(Arc::clone(held)),
                _ => {}
            },
            Some(FetchResult::Failed(error)) => {
                absent(&claim);
                return Err(failure(&error));
            }
            Some(FetchResult::Downloading(metadata, download)) => {
                if resolver.is_whole {
                    flight.finished().await;
                }
                if let Some(resource) = flight.loaded(&claim.key) {
                    return Ok(resource);
                }
                if resolver.is_whole {
                    return Err(Failure::Unavailable);
                }
                let object = load::object(&bucket.client, key, &metadata);
                let content = flight.content(download);
                return Ok(Arc::new(load::downloading(context, &claim, object, content)));
            }
            Some(FetchResult::Streamed(metadata, begun)) => {
                let object = load::object(&bucket.client, key, &metadata);
                let resource = load::streamed(context, &claim, object, &bucket.client, Some(begun));
                return Ok(Arc::new(resource));
            }
        }
    }
    Err(Failure::Unavailable)
}

/// Removes what the cache has of an object that is not there any more.
fn absent(claim: &CacheClaim) -> Failure {
    if let Some(held) = &claim.held {
        held.validity.invalidate();
    }
    Failure::Missing
}

/// The time for which a stale object is used before another attempt, in milliseconds.
const STALE: u64 = 1000;

/// Returns what the cache has of an object, while the store does not respond.
fn stale(bucket: &Bucket, claim: &CacheClaim) -> Result<Arc<Resource>, Failure> {
    let held = claim.held.as_ref().filter(|held| !held.validity.is_invalidated());
    let held = held.ok_or(Failure::Unavailable)?;
    bucket.client.counters.stale.fetch_add(1, Ordering::Relaxed);
    held.validity.set_fresh_until(monotonic_millis() + STALE);
    Ok(Arc::clone(held))
}

/// Waits for the content of a resource that arrives, but not long: it will be in the cache then.
pub async fn arrived(resource: &Resource) {
    if let Some(arrived) = resource.identity.remote.as_ref().and_then(|remote| remote.arrived()) {
        // The response has no content coding if it takes longer.
        let _ = dunlin_net::clock::timeout(ARRIVAL, arrived).await;
    }
}

/// The time for which a response that could have a content coding waits for the content.
const ARRIVAL: std::time::Duration = std::time::Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::path::Path;

    use dunlin_config::{Config, Overrides};

    use super::*;

    fn root(url: &str) -> Arc<ObjectRoot> {
        let text = format!("[[listen]]\naddress = '127.0.0.1:0'\n[[site]]\nroot = '{url}'\n");
        let config = Config::parse(&text, Path::new("x"), &Overrides::default()).unwrap();
        let site = config.sites.only().unwrap();
        site.object_roots().next().cloned().unwrap()
    }

    #[test]
    fn a_path_has_one_key_and_cannot_leave_the_prefix() {
        let (all, part) = (root("s3://bucket"), root("s3://bucket/one/two/"));
        for (path, key) in [
            (&b"a/b.txt"[..], Some("a/b.txt")),
            (b"a b+c%20d?#&", Some("a b+c%20d?#&")),
            ("\u{e4}\u{1f600}".as_bytes(), Some("\u{e4}\u{1f600}")),
            (b"\xff", None),
            (b"a//b", None),
            (b"../a", None),
            (b"a/../../b", None),
            (b"a/./b", None),
            (b"a\nb", None),
            (b"", None),
        ] {
            assert_eq!(key_of(&all, path).as_deref(), key, "{path:?}");
            let beneath = key.map(|key| format!("one/two/{key}"));
            assert_eq!(key_of(&part, path), beneath, "{path:?}");
        }
        assert_eq!(prefix_of(&all, b"").as_deref(), Some(""));
        assert_eq!(prefix_of(&part, b"").as_deref(), Some("one/two/"));
        assert_eq!(prefix_of(&part, b"a").as_deref(), Some("one/two/a/"));
    }
}
