//! Requests to a bucket.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use dunlin_files::objects::store::{
    GetRequest, Got, Later, ListPage, ListRequest, ListedObject, ObjectBody, ObjectMetadata,
    ObjectStore, StoreError, Version,
};
use futures_util::stream::{BoxStream, StreamExt};
use http::Extensions;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{Attribute, GetOptions, GetRange, GetResult, ListResult, ObjectStore as Client};

use crate::errors::classify;
use crate::reply::{Content, ReplyLimit};

/// A bucket.
pub(crate) struct Bucket {
    client: Arc<dyn Client>,
    /// For services with listings in pages.
    pages: Option<Arc<dyn PaginatedListStore>>,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bucket")
    }
}

impl Bucket {
    /// Returns a bucket of a service that has listings in pages.
    pub(crate) fn paged<S: Client + PaginatedListStore>(client: Arc<S>) -> Self {
        Self { client: Arc::clone(&client) as _, pages: Some(client) }
    }

    /// Returns the client.
    pub(crate) fn into_client(self) -> Arc<dyn Client> {
        self.client
    }

    /// Returns a server that may have listings by WebDAV.
    pub(crate) fn plain(client: Arc<dyn Client>) -> Self {
        Self { client, pages: None }
    }
}

impl ObjectStore for Bucket {
    fn get(&self, request: GetRequest) -> Later<Result<Got, StoreError>> {
        let client = Arc::clone(&self.client);
        Box::pin(async move {
            let path = Path::parse(&request.key).map_err(|_| StoreError::Missing)?;
            // Such a key is not the one that was requested: it lacks a slash.
            if path.as_ref() != request.key {
                return Err(StoreError::Missing);
            }
            let options = options(&request);
            match client.get_opts(&path, options.clone()).await {
                Err(error) if is_stale_connection(&error) => {
                    // The service closed an idle connection at this moment.
                    got(client.get_opts(&path, options).await)
                }
                result => got(result),
            }
        })
    }

    fn list(&self, request: ListRequest) -> Later<Result<ListPage, StoreError>> {
        let (client, pages) = (Arc::clone(&self.client), self.pages.clone());
        Box::pin(async move {
            let ListRequest { prefix, max, page } = request;
            if let Some(pages) = pages {
                let mut extensions = Extensions::new();
                if let Some(max) = max {
                    extensions.insert(ReplyLimit::of_page(max));
                }
                let options = PaginatedListOptions {
                    extensions,
                    delimiter: Some(Cow::Borrowed("/")),
                    max_keys: max,
                    page_token: page,
                    ..Default::default()
                };
                let whole = Some(&*prefix).filter(|prefix| !prefix.is_empty());
                let listed = pages.list_paginated(whole, options).await;
                let listed = listed.map_err(|error| classify(&error))?;
                return Ok(list_page(&prefix, listed.result, listed.page_token));
            }
            let path = Path::parse(&prefix).map_err(|_| StoreError::Missing)?;
            let listed = client.list_with_delimiter(Some(&path)).await;
            Ok(list_page(&prefix, listed.map_err(|error| classify(&error))?, None))
        })
    }

    fn has_prefixes(&self) -> bool {
        self.pages.is_some()
    }
}

fn options(request: &GetRequest) -> GetOptions {
    let date = |version: &Version| {
        let seconds = version.last_modified.filter(|_| version.etag.is_none())?;
        chrono_time(seconds)
    };
    let GetRequest { unless, only, range, .. } = request;
    let mut extensions = Extensions::new();
    extensions.insert(Content);
    GetOptions {
        extensions,
        if_none_match: unless.as_ref().and_then(|version| version.etag.clone()),
        if_modified_since: unless.as_ref().and_then(date),
        // A weak tag never matches.
        if_match: only
            .as_ref()
            .and_then(|version| version.etag.clone().filter(|tag| !tag.starts_with("W/"))),
        if_unmodified_since: only.as_ref().and_then(date),
        range: range.clone().map(GetRange::Bounded),
        ..Default::default()
    }
}

/// Returns a time of the library that the client uses.
fn chrono_time<T: From<std::time::SystemTime>>(seconds: u64) -> Option<T> {
    let time = std::time::UNIX_EPOCH.checked_add(std::time::Duration::from_secs(seconds))?;
    Some(time.into())
}

fn is_stale_connection(error: &object_store::Error) -> bool {
    crate::errors::is_closed(error)
}

fn got(result: object_store::Result<GetResult>) -> Result<Got, StoreError> {
    let result = match result {
        Ok(result) => result,
        Err(object_store::Error::NotModified { .. }) => return Ok(Got::NotModified),
        Err(error) => return Err(classify(&error)),
    };
    let attribute = |key| result.attributes.get(&key).map(|value| value.as_ref().to_owned());
    let metadata = ObjectMetadata {
        size: result.meta.size,
        version: Version {
            etag: result.meta.e_tag.clone(),
            last_modified: u64::try_from(result.meta.last_modified.timestamp())
                .ok()
                .filter(|&seconds| seconds > 0),
        },
        content_type: attribute(Attribute::ContentType),
        content_encoding: attribute(Attribute::ContentEncoding),
    };
    Ok(Got::Object(metadata, Box::new(Body(result.into_stream()))))
}

struct Body(BoxStream<'static, object_store::Result<Bytes>>);

impl ObjectBody for Body {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StoreError>>> {
        self.0.poll_next_unpin(cx).map_err(|error| classify(&error))
    }
}

/// Returns a page of a listing. Objects whose names are no single part of a path, such as those that stand for a directory,
/// are left out.
fn list_page(prefix: &str, listed: ListResult, next: Option<String>) -> ListPage {
    let name = |path: &Path| {
        let name = path.as_ref().strip_prefix(prefix)?;
        (!name.is_empty() && !name.contains('/')).then(|| name.to_owned())
    };
    let objects = listed.objects.iter().filter_map(|object| {
        Some(ListedObject {
            name: name(&object.location)?,
            size: object.size,
            modified: object.last_modified.timestamp().max(0) as u64,
        })
    });
    let prefixes = listed.common_prefixes.iter().filter_map(name);
    ListPage { objects: objects.collect(), prefixes: prefixes.collect(), next }
}
