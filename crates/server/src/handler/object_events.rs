//! Notifications of object stores, which are posted to the admin socket.

use std::rc::Rc;

use dunlin_exchange::Response;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::route::reply::Reply;
use crate::worker::WorkerContext;

/// Maximum size of a notification in bytes.
pub(super) const MAX: u64 = 4 << 20;

/// Reads the notification in the request body, and marks the objects that it names for revalidation on next use.
pub(super) fn receive(ctx: &Rc<WorkerContext>) -> Reply {
    let ctx = Rc::clone(ctx);
    Reply::reading(async move |mut incoming| {
        let Ok(body) = incoming.body.rest().await else {
            return text(400, "the notification is incomplete");
        };
        let Some(changes) = serde_json::from_slice(&body).ok().and_then(|body| read(&body)) else {
            return text(400, "the body is not an S3 event: JSON with `Records`");
        };
        let (mut known, mut unknown) = (0, 0);
        for (bucket, keys) in &changes {
            let shared = &ctx.shared.files;
            match shared.buckets.notify(&shared.context, bucket, keys) {
                true => known += keys.len(),
                false => unknown += keys.len(),
            }
        }
        let objects = if known == 1 { "object is" } else { "objects are" };
        let mut line = format!("{known} {objects} requested again");
        if unknown > 0 {
            line.push_str(&format!(", {unknown} are in buckets that no root is in"));
        }
        text(200, &line)
    })
}

fn text(status: u16, line: &str) -> Response {
    Response::with_text(status, "text/plain; charset=utf-8", format!("{line}\n"))
}

/// Returns the changed keys by bucket: of an event notification of S3, also in the envelope of SNS, and of EventBridge.
/// `None` if it is something else. Tests of S3 name no object.
fn read(body: &Value) -> Option<Vec<(String, Vec<String>)>> {
    if let Some(message) = body.get("Message").and_then(Value::as_str) {
        return read(&serde_json::from_str(message).ok()?);
    }
    if body.get("Event").is_some_and(|event| event == "s3:TestEvent") {
        return Some(Vec::new());
    }
    if let Some(detail) = body.get("detail") {
        let name = |what: &str, key: &str| detail.get(what)?.get(key)?.as_str().map(str::to_owned);
        return Some(vec![(name("bucket", "name")?, vec![name("object", "key")?])]);
    }
    let mut changes: Vec<(String, Vec<String>)> = Vec::new();
    for record in body.get("Records")?.as_array()? {
        let s3 = record.get("s3")?;
        let bucket = s3.get("bucket")?.get("name")?.as_str()?;
        // Keys are encoded like forms.
        let key = s3.get("object")?.get("key")?.as_str()?.replace('+', " ");
        let key = percent_decode_str(&key).decode_utf8().ok()?.into_owned();
        match changes.iter_mut().find(|(name, _)| name == bucket) {
            Some((_, keys)) => keys.push(key),
            None => changes.push((bucket.to_owned(), vec![key])),
        }
    }
    Some(changes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_name_their_objects() {
        let record = |bucket: &str, key: &str| {
            let s3 = json!({ "bucket": { "name": bucket }, "object": { "key": key } });
            json!({ "eventName": "ObjectCreated:Put", "s3": s3 })
        };
        let records = json!({ "Records": [
            record("b", "a+b%2Bc/%C3%A4.txt"), record("c", "x"), record("b", "y"),
        ] });
        let of = |bucket: &str, keys: &[&str]| {
            (bucket.to_owned(), keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>())
        };
        let expected = vec![of("b", &["a b+c/ä.txt", "y"]), of("c", &["x"])];
        assert_eq!(read(&records), Some(expected.clone()));
        let sns = json!({ "Type": "Notification", "Message": records.to_string() });
        assert_eq!(read(&sns), Some(expected));
        let bridge = json!({ "detail-type": "Object Created",
            "detail": { "bucket": { "name": "b" }, "object": { "key": "a+b%20" } } });
        assert_eq!(read(&bridge), Some(vec![of("b", &["a+b%20"])]));
        assert_eq!(read(&json!({ "Event": "s3:TestEvent", "Bucket": "b" })), Some(Vec::new()));
        for other in [json!({}), json!([]), json!({ "Records": [{}] }), json!({ "Records": 1 })] {
            assert_eq!(read(&other), None, "{other}");
        }
    }
}
