//! Makes resources of objects.

use std::sync::Arc;

use dunlin_config::{EtagKind, Settings};
use dunlin_fs::content::StoredContent;
use dunlin_fs::validity::Validity;
use dunlin_http::semantics::{ContentCoding, EntityTag};
use dunlin_net::blocking::Pools;
use dunlin_net::clock::{monotonic_millis, since_1970};

use super::claim::CacheClaim;
use super::client::Client;
use super::content::{Downloading, Streamed, StreamedBody};
use super::disk::ObjectDisk;
use super::store::ObjectMetadata;
use crate::cache::resource::{Object, Origin, Representation, Resource};
use crate::cache::shared_cache::{Key, SharedCache};
use crate::dictionaries::rules;
use crate::media_type::{ContentType, content_type, file_name, of_object};
use crate::render::{self, Description};

/// The means by which resources are made, and the cache that keeps them.
#[derive(Debug)]
pub struct Context {
    /// The cache.
    pub(crate) cache: Arc<SharedCache>,
    /// The objects on disk; `None` if there is no directory for them.
    pub(crate) disk: Option<Arc<dyn ObjectDisk>>,
    /// Threads for work that may block.
    pub(crate) pools: Arc<Pools>,
    /// Responses have the field `Server`.
    pub(crate) server_field: bool,
}

impl Context {
    /// Returns the bytes of the objects that may be on their way into the cache at once. What arrives is in memory twice for a
    /// moment.
    pub(super) fn room(&self) -> u64 {
        self.cache.largest_copy().saturating_mul(3)
    }

    /// Returns what the cache has for this key, if it is fresh.
    pub fn cached(&self, key: &Key) -> Option<Arc<Resource>> {
        self.cache.get(key).filter(|resource| resource.validity.is_fresh(monotonic_millis()))
    }
}

/// Returns an object for a resource.
pub(super) fn object(client: &Client, key: &str, metadata: &ObjectMetadata) -> Object {
    let bucket = Arc::clone(&client.name);
    Object { bucket, key: key.to_owned(), metadata: metadata.clone() }
}

/// Returns a resource with all content, which is stored where sending it is cheapest. May block on a disk.
pub(super) fn whole(
    context: &Context,
    claim: &CacheClaim,
    object: Object,
    content: Vec<u8>,
) -> Resource {
    let content = StoredContent::on_disk(content);
    resource(context, claim, object, |description, server_field| {
        render::representation(description, content, server_field)
    })
}

/// Returns a resource whose content arrives. It serves one request.
pub(super) fn downloading(
    context: &Context,
    claim: &CacheClaim,
    object: Object,
    content: Downloading,
) -> Resource {
    let remote = Arc::new(content);
    resource(context, claim, object, |description, server_field| {
        render::remote(description, remote, server_field)
    })
}

/// Returns a resource whose content is requested for each response.
pub(super) fn streamed(
    context: &Context,
    claim: &CacheClaim,
    object: Object,
    client: &Arc<Client>,
    begun: Option<Arc<StreamedBody>>,
) -> Resource {
    let (client, key, metadata) = (Arc::clone(client), object.key.clone(), object.metadata.clone());
    let remote = Arc::new(Streamed { client, key, metadata, begun });
    resource(context, claim, object, |description, server_field| {
        render::remote(description, remote, server_field)
    })
}

fn resource(
    context: &Context,
    claim: &CacheClaim,
    object: Object,
    render: impl FnOnce(Description<'_>, bool) -> Representation,
) -> Resource {
    let settings = &claim.settings;
    let content_type = object_type(settings, &claim.file, &object.metadata);
    let metadata = &object.metadata;
    let description = Description {
        settings,
        content_type: &content_type,
        coding: ContentCoding::Identity,
        etag: entity_tag(settings, metadata),
        // A date in the future must not be sent (RFC 9110 §8.8.2.1).
        last_modified: metadata.version.last_modified.map(|date| date.min(since_1970().as_secs())),
        length: metadata.size,
        sha256: None,
        is_settled: true,
        keep: true,
    };
    let identity = render(description, context.server_field);
    let mut resource = Resource::new(
        claim.key.clone(),
        Arc::clone(settings),
        &claim.file,
        Origin::Object(Arc::new(object)),
        content_type,
        identity,
        Arc::new(Validity::default()),
    );
    resource.dictionaries = rules::of(&resource);
    resource
}

/// Returns the entity tag of the store.
pub(super) fn entity_tag(settings: &Settings, metadata: &ObjectMetadata) -> Option<EntityTag> {
    let tag = metadata.version.etag.as_ref().filter(|_| settings.etag != EtagKind::Off)?;
    EntityTag::parse(tag.as_bytes())
}

/// Returns the content type by the name, like that of a file; if the name implies none, the one that the store has.
fn object_type(settings: &Settings, file: &[u8], metadata: &ObjectMetadata) -> ContentType {
    let by_name = content_type(&file_name(file), &settings.types, &settings.charset);
    let ObjectMetadata { content_type, content_encoding, .. } = metadata;
    of_object(by_name, content_type.as_deref(), content_encoding.as_deref(), &settings.charset)
}
