//! Objects beneath a prefix, with conditional writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Error, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion,
};

/// The objects of one bucket beneath a prefix.
#[derive(Debug)]
pub(crate) struct Objects {
    client: Arc<dyn ObjectStore>,
    /// The URL, for logs.
    url: String,
    /// Without slashes at its ends; may be empty.
    prefix: String,
    /// The time for one request.
    timeout: Duration,
    /// The last request had no response.
    is_down: AtomicBool,
}

/// The maximum of objects that a listing has. A bucket for certificates has few, and a listing may have no end.
const MAX_LISTED: usize = 10_000;

/// An object that was read.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) content: Bytes,
    pub(crate) version: UpdateVersion,
}

/// The condition of a write.
#[derive(Debug, Clone)]
pub(crate) enum Condition {
    /// None.
    Always,
    /// There is no such object.
    Absent,
    /// This is the current version.
    Unchanged(UpdateVersion),
}

impl Objects {
    pub(crate) fn new(
        client: Arc<dyn ObjectStore>,
        url: String,
        prefix: &str,
        timeout: Duration,
    ) -> Self {
        let prefix = prefix.to_owned();
        Self { client, url, prefix, timeout, is_down: AtomicBool::new(false) }
    }

    /// Reads an object; `None` if there is none.
    pub(crate) async fn read(&self, name: &str) -> Result<Option<Found>, String> {
        let path = self.path(name)?;
        let read = async {
            let result = self.client.get(&path).await?;
            let meta = &result.meta;
            let version =
                UpdateVersion { e_tag: meta.e_tag.clone(), version: meta.version.clone() };
            Ok(Found { content: result.bytes().await?, version })
        };
        match self.judge(read).await? {
            Ok(found) => Ok(Some(found)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Writes an object. Returns `false` if the condition does not hold.
    pub(crate) async fn write(
        &self,
        name: &str,
        content: Vec<u8>,
        condition: Condition,
    ) -> Result<bool, String> {
        let path = self.path(name)?;
        let mode = match condition {
            Condition::Always => PutMode::Overwrite,
            Condition::Absent => PutMode::Create,
            Condition::Unchanged(version) => PutMode::Update(version),
        };
        let options = PutOptions { mode, ..Default::default() };
        let write = self.client.put_opts(&path, content.into(), options);
        match self.judge(write).await? {
            Ok(_) => Ok(true),
            // An object that is not there any more has no version.
            Err(
                Error::Precondition { .. } | Error::AlreadyExists { .. } | Error::NotFound { .. },
            ) => Ok(false),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Returns the objects whose names begin with `folder` and a slash, by their names behind that; of very many, the first
    /// ones.
    pub(crate) async fn list(&self, folder: &str) -> Result<Vec<(String, ObjectMeta)>, String> {
        let path = self.path(folder)?;
        let first = self.client.list(Some(&path)).take(MAX_LISTED);
        let listed = self.judge(first.try_collect::<Vec<_>>()).await?;
        let listed = listed.map_err(|error| self.failed(&error))?;
        let named = listed.into_iter().filter_map(|meta| {
            let name = meta.location.as_ref().strip_prefix(path.as_ref())?.strip_prefix('/')?;
            Some((name.to_owned(), meta))
        });
        Ok(named.collect())
    }

    /// Removes an object. It may be gone already. That it is not permitted does not mean that the storage is down.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), String> {
        let path = self.path(name)?;
        match self.judge(self.client.delete(&path)).await? {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(dunlin_object_root::describe(&error)),
        }
    }

    fn path(&self, name: &str) -> Result<Path, String> {
        let whole = format!("{}/{name}", self.prefix);
        Path::parse(whole.trim_start_matches('/'))
            .map_err(|_| format!("{name:?} cannot be the name of an object"))
    }

    /// Waits for a result within the time for a request. A response, also one that means that there is no such object, shows that the
    /// store responds.
    async fn judge<T>(
        &self,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<Result<T, Error>, String> {
        match tokio::time::timeout(self.timeout, request).await {
            Ok(result) => {
                let is_response = matches!(
                    result,
                    Ok(_)
                        | Err(Error::NotFound { .. }
                            | Error::Precondition { .. }
                            | Error::AlreadyExists { .. })
                );
                if is_response && self.is_down.swap(false, Ordering::Relaxed) {
                    tracing::info!("ACME: storage {}: it responds again", self.url);
                }
                Ok(result)
            }
            Err(_) => {
                Err(self
                    .log(format!("there is no response within {} s", self.timeout.as_secs_f64())))
            }
        }
    }

    /// Returns the text of an error, which is logged if it is the first one.
    fn failed(&self, error: &Error) -> String {
        self.log(dunlin_object_root::describe(error))
    }

    fn log(&self, error: String) -> String {
        if !self.is_down.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "ACME: storage {}: {error}; certificates stay in use, and none is obtained or renewed until it responds",
                self.url
            );
        }
        error
    }
}
