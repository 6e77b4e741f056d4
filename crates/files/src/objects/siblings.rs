//! Precompressed siblings of objects (`NAME.gz`).

use std::future::poll_fn;
use std::sync::Arc;

use dunlin_fs::content::StoredContent;
use dunlin_http::semantics::ContentCoding;
use tokio::time::timeout;

use super::client::Client;
use super::content::Streamed;
use super::load::{Context, entity_tag};
use super::store::{GetRequest, Got, ObjectBody, ObjectMetadata, StoreError, Version};
use crate::cache::resource::{Object, Representation, Resource, SiblingVersion};
use crate::render::{self, Description};

/// Returns the representation of the sibling of an object in this content coding, and the version of the sibling whether it
/// is used or not. For the thread for object stores.
pub(crate) async fn find(
    client: &Arc<Client>,
    context: &Context,
    resource: &Resource,
    coding: ContentCoding,
) -> (Option<Representation>, Option<SiblingVersion>) {
    let Some(object) = resource.object() else { return (None, None) };
    let key = encoded_key(object, coding);
    let request = GetRequest { key: key.clone(), ..Default::default() };
    let Ok(Got::Object(metadata, body)) = client.get(request).await else { return (None, None) };
    let sibling = Some(SiblingVersion::Object(metadata.version.clone()));
    let is_older = metadata.version.last_modified < object.metadata.version.last_modified;
    if is_older {
        return (None, sibling);
    }
    let (settings, length) = (&resource.settings, metadata.size);
    let (etag, last_modified) = (entity_tag(settings, &metadata), metadata.version.last_modified);
    let description = Description {
        settings,
        content_type: &resource.content_type,
        coding,
        etag,
        last_modified: last_modified.max(resource.identity.last_modified),
        length,
        sha256: None,
        is_settled: true,
        keep: settings.cache.enabled,
    };
    let is_small = settings.cache.enabled && length <= context.cache.largest_copy();
    if !is_small {
        let client = Arc::clone(client);
        let remote = Arc::new(Streamed { client, key, metadata, begun: None });
        return (Some(render::remote(description, remote, context.server_field)), sibling);
    }
    let Some(content) = read(client, body, &metadata).await else { return (None, None) };
    let stored = StoredContent::in_memory(content);
    (Some(render::representation(description, stored, context.server_field)), sibling)
}

/// Returns the whole body; `None` if it ends early.
async fn read(
    client: &Client,
    mut body: Box<dyn ObjectBody>,
    metadata: &ObjectMetadata,
) -> Option<Vec<u8>> {
    let mut content = Vec::with_capacity(metadata.size as usize);
    while let Some(bytes) =
        timeout(client.rules.timeout, poll_fn(|cx| body.poll_next(cx))).await.ok()?
    {
        content.extend_from_slice(&bytes.ok()?);
    }
    (content.len() as u64 == metadata.size).then_some(content)
}

/// Returns `true` if the siblings of an object that were searched for are those of now. While the store does not respond,
/// they are.
pub(super) async fn are_unchanged(client: &Client, resource: &Resource) -> bool {
    let Some(object) = resource.object() else { return true };
    for &coding in &resource.settings.precompressed {
        let Some(variant) = resource.encoded(coding) else { continue };
        let then: Option<Version> = match &variant.sibling {
            Some(SiblingVersion::Object(version)) => Some(version.clone()),
            _ => None,
        };
        let key = encoded_key(object, coding);
        let request = GetRequest { key, unless: then.clone(), ..Default::default() };
        let is_same = match client.get(request).await {
            Ok(Got::NotModified) | Err(StoreError::Failed(_)) => true,
            Ok(Got::Object(metadata, _)) => then == Some(metadata.version),
            Err(_) => then.is_none(),
        };
        if !is_same {
            return false;
        }
    }
    true
}

fn encoded_key(object: &Object, coding: ContentCoding) -> String {
    format!("{}{}", object.key, coding.suffix().unwrap_or_default())
}
