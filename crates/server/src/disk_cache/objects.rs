//! Objects of object stores in the directory: each is like a response that the store has to confirm.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_files::objects::disk::{ObjectDisk, ObjectFile, ObjectName, StoredObject};
use dunlin_files::objects::store::{ObjectMetadata, Version};
use dunlin_http::FieldLines;
use dunlin_http::semantics::date;
use dunlin_response_cache::freshness::Freshness;
use dunlin_response_cache::key::Key;
use dunlin_response_cache::storable::Rules;
use dunlin_response_cache::stored::{Stored, StoredHead};
use dunlin_response_cache::vary::Vary;
use dunlin_response_disk::Removal;

use super::{DiskCache, now};

impl ObjectDisk for DiskCache {
    fn find(&self, name: ObjectName<'_>) -> Option<ObjectFile> {
        let file = self.disk.find_only(&key(name))?;
        Some(ObjectFile { number: file.number, bytes: file.bytes, is_recent: file.is_recent })
    }

    fn read(&self, name: ObjectName<'_>, file: ObjectFile) -> Option<StoredObject> {
        let now = now();
        let Stored { head, body } = self.disk.read(&key(name), (file.number, file.bytes), now)?;
        let Freshness { initial_age, received, .. } = head.freshness;
        let age = initial_age.saturating_mul(1000).saturating_add(now.monotonic - received);
        let metadata = metadata(&head.fields, body.len() as u64);
        Some(StoredObject { metadata, content: body, age })
    }

    fn write(&self, name: ObjectName<'_>, metadata: &ObjectMetadata, content: Bytes) {
        let freshness = Freshness {
            lifetime: 0,
            is_explicit: true,
            initial_age: 0,
            received: now().monotonic,
            always_validate: true,
            must_revalidate: false,
            while_revalidate: 0,
            if_error: 0,
        };
        let rules = Rules {
            set_cookie: false,
            is_heuristic: false,
            lifetime: None,
            max_body: content.len() as u64,
        };
        let date = metadata.version.last_modified.unwrap_or(0);
        let response = (200, fields(metadata));
        let head = StoredHead::from_parts(response, date, freshness, Vary::default(), rules);
        self.write_stored(key(name), Arc::new(Stored { head, body: content }));
    }

    fn remove(&self, name: ObjectName<'_>) {
        DiskCache::remove(self, &Removal::Url(key(name)));
    }
}

/// Returns the key of an object. Keys of objects have no empty parts, so that none is the URL of a response.
fn key(name: ObjectName<'_>) -> Key {
    Key { site: name.bucket, url: name.key.as_bytes().into() }
}

/// Returns the properties of an object as fields.
fn fields(metadata: &ObjectMetadata) -> FieldLines {
    let mut fields = FieldLines::new();
    let ObjectMetadata { version, content_type, content_encoding, .. } = metadata;
    let modified = version.last_modified.map(date::format);
    for (name, value) in [
        ("ETag", version.etag.as_deref().map(str::as_bytes)),
        ("Last-Modified", modified.as_ref().map(|date| &date[..])),
        ("Content-Type", content_type.as_deref().map(str::as_bytes)),
        ("Content-Encoding", content_encoding.as_deref().map(str::as_bytes)),
    ] {
        if let Some(value) = value {
            fields.push(name, value);
        }
    }
    fields
}

/// Returns the properties of an object that has these fields and `size` bytes.
fn metadata(fields: &FieldLines, size: u64) -> ObjectMetadata {
    let text = |name: &str| Some(str::from_utf8(fields.get(name)?).ok()?.to_owned());
    let last_modified = fields.get("Last-Modified").and_then(date::parse);
    ObjectMetadata {
        size,
        version: Version { etag: text("ETag"), last_modified },
        content_type: text("Content-Type"),
        content_encoding: text("Content-Encoding"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_those_that_were_written() {
        let version = Version { etag: Some("\"a b\"".into()), last_modified: Some(784_111_777) };
        let all = ObjectMetadata {
            size: 5,
            version,
            content_type: Some("text/plain; charset=utf-8".into()),
            content_encoding: Some("gzip".into()),
        };
        let none = ObjectMetadata { size: 0, ..ObjectMetadata::default() };
        for before in [all, none] {
            assert_eq!(metadata(&fields(&before), before.size), before);
        }
    }
}
