//! Notices of servers to each other: challenges in progress, and that a certificate was stored. Every server lists them each ten seconds,
//! so that a server which waits a little longer knows that the others have read its notice.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use dunlin_net::log_limiter::LogLimiter;
use dunlin_tls::{Challenges, Published, SharedChallenge, certificates_were_stored};
use tokio::time::Instant;

use crate::lock::nonce;
use crate::objects::{Condition, Objects};

/// The interval in which the notices are listed.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);
/// The time for a listing and for reading what is new.
const READING: Duration = Duration::from_secs(2);
/// The time for which the server responds to a challenge.
const CHALLENGE: Duration = Duration::from_secs(600);
/// The age at which a challenge is removed, whatever the difference of the clocks.
const OLD: Duration = Duration::from_secs(24 * 60 * 60);

const FOLDER: &str = "notices";
/// The notice that a certificate was stored.
const STORED: &str = "certificates";
/// The beginnings of the names of challenges.
const HTTP: &str = "http-01/";
const TLS: &str = "tls-alpn-01/";

/// The notices that this server has read.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// The versions by name.
    seen: HashMap<String, Option<String>>,
    /// Responses to challenges of other servers, and when they end.
    challenges: Vec<(Instant, Published)>,
    /// Old notices that could not be removed.
    kept: HashSet<String>,
    has_listed: bool,
}

impl Notices {
    /// Reads notices that are new.
    pub(crate) async fn read(&mut self, objects: &Objects) -> Result<(), String> {
        let now = Instant::now();
        self.challenges.retain(|(until, _)| *until > now);
        let listed = objects.list(FOLDER).await?;
        let names: HashSet<&str> = listed.iter().map(|(name, _)| &**name).collect();
        self.seen.retain(|name, _| names.contains(&**name));
        self.kept.retain(|name| names.contains(&**name));
        for (name, meta) in listed {
            if self.seen.get(&name) == Some(&meta.e_tag) {
                self.remove_old(objects, &name, meta.last_modified.into()).await;
                continue;
            }
            if name == STORED {
                // At the start of a server each certificate is looked for anyway.
                if self.has_listed {
                    certificates_were_stored();
                }
            } else {
                let found = match objects.read(&format!("{FOLDER}/{name}")).await {
                    Ok(found) => found,
                    // Each would take the time for a request.
                    Err(error) if now.elapsed() > INTERVAL => return Err(error),
                    // One that cannot be read must not hide the others. It is tried again.
                    Err(_) => continue,
                };
                let content = found.map(|found| found.content).unwrap_or_default();
                self.publish(&name, &content);
            }
            self.seen.insert(name, meta.e_tag);
        }
        self.has_listed = true;
        Ok(())
    }

    /// Responds to a challenge of another server from now on, or of this one, which does so already.
    fn publish(&mut self, name: &str, content: &[u8]) {
        let Some(challenge) = decode(name, content) else { return };
        match Challenges::of_process().publish_shared(&challenge) {
            Ok(published) => self.challenges.push((Instant::now() + CHALLENGE, published)),
            Err(error) => {
                static LOG_LIMITER: LogLimiter = LogLimiter::new();
                if LOG_LIMITER.is_due() {
                    tracing::error!("ACME: a challenge of another server: {error}");
                }
            }
        }
    }

    /// Removes a challenge whose server has not done so. One that the store does not delete stays, and does no harm.
    async fn remove_old(&mut self, objects: &Objects, name: &str, modified: SystemTime) {
        let age = SystemTime::now().duration_since(modified).unwrap_or_default();
        if name == STORED || age <= OLD || self.kept.contains(name) {
            return;
        }
        if let Err(error) = objects.remove(&format!("{FOLDER}/{name}")).await {
            if self.kept.is_empty() {
                tracing::warn!("ACME: storage: the old notice {name} cannot be removed: {error}");
            }
            self.kept.insert(name.to_owned());
        }
    }
}

/// Publishes the challenges to every server. Waits until all of them respond to the challenges.
pub(crate) async fn challenge(
    objects: &Objects,
    challenges: &[SharedChallenge],
) -> Result<(), String> {
    for challenge in challenges {
        let (name, content) = encode(challenge);
        objects.write(&format!("{FOLDER}/{name}"), content, Condition::Always).await?;
    }
    tokio::time::sleep(INTERVAL + READING).await;
    Ok(())
}

/// Notifies every server that certificates have changed.
pub(crate) async fn announce(objects: &Objects) -> Result<(), String> {
    let name = format!("{FOLDER}/{STORED}");
    objects.write(&name, nonce().into_bytes(), Condition::Always).await.map(drop)
}

/// Returns the name and the content of the notice of a challenge.
fn encode(challenge: &SharedChallenge) -> (String, Vec<u8>) {
    match challenge {
        SharedChallenge::Http { token, response } => {
            (format!("{HTTP}{token}"), response.clone().into_bytes())
        }
        SharedChallenge::Tls { name, digest } => (format!("{TLS}{name}"), digest.to_vec()),
    }
}

/// Parses a challenge; `None` if the notice has another kind.
fn decode(name: &str, content: &[u8]) -> Option<SharedChallenge> {
    if let Some(token) = name.strip_prefix(HTTP) {
        let response = str::from_utf8(content).ok()?.to_owned();
        return Some(SharedChallenge::Http { token: token.to_owned(), response });
    }
    let name = name.strip_prefix(TLS)?.to_owned();
    Some(SharedChallenge::Tls { name, digest: content.try_into().ok()? })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use futures_util::stream::BoxStream;
    use futures_util::{StreamExt, TryStreamExt};
    use object_store::memory::InMemory;
    use object_store::path::Path as StorePath;
    use object_store::{
        CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
        ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    };

    use super::*;

    fn http(token: &str) -> SharedChallenge {
        SharedChallenge::Http { token: token.into(), response: format!("{token}.thumbprint") }
    }

    fn text(token: &str) -> Option<String> {
        let path = format!("/.well-known/acme-challenge/{token}");
        Challenges::of_process().text(path.as_bytes())
    }

    #[test]
    fn challenges_are_read_as_they_were_written() {
        let tls = SharedChallenge::Tls { name: "a.example".into(), digest: [7; 32] };
        for challenge in [http("token-1"), tls] {
            let (name, content) = encode(&challenge);
            assert_eq!(decode(&name, &content), Some(challenge));
        }
        assert_eq!(decode("tls-alpn-01/a.example", b"short"), None);
        assert_eq!(decode("other", b""), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_lists_the_notices_responds_to_challenges_for_a_while() {
        let client = Arc::new(InMemory::new());
        let objects = Objects::new(client, "s3://a".into(), "", Duration::from_secs(1));
        let mut other = Notices::default();
        other.read(&objects).await.unwrap();
        let (began, one) = (Instant::now(), [http("one")]);
        let (in_time, reading) = tokio::join!(challenge(&objects, &one), async {
            tokio::time::sleep(INTERVAL).await;
            other.read(&objects).await
        });
        assert_eq!((in_time, reading), (Ok(()), Ok(())));
        assert!(began.elapsed() >= INTERVAL + READING);
        assert_eq!(text("one").as_deref(), Some("one.thumbprint"));
        tokio::time::advance(CHALLENGE + Duration::from_secs(1)).await;
        other.read(&objects).await.unwrap();
        assert_eq!(text("one"), None, "it has ended, and is not published again");
    }

    #[tokio::test]
    async fn an_announcement_is_read_once() {
        let client = Arc::new(InMemory::new());
        let objects = Objects::new(client, "s3://a".into(), "p/q", Duration::from_secs(1));
        let mut notices = Notices::default();
        notices.read(&objects).await.unwrap();
        for _ in 0..2 {
            announce(&objects).await.unwrap();
            let [(name, meta)] = &objects.list(FOLDER).await.unwrap()[..] else { panic!() };
            assert_eq!(name, STORED);
            assert_ne!(notices.seen.get(STORED), Some(&meta.e_tag));
            notices.read(&objects).await.unwrap();
            assert_eq!(notices.seen.get(STORED), Some(&meta.e_tag));
        }
    }

    /// A bucket whose policy permits no removal, and no access to one of the notices.
    #[derive(Debug)]
    struct Strict(InMemory);

    impl std::fmt::Display for Strict {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Strict")
        }
    }

    const FORBIDDEN: &str = "b-forbidden";
    const AGED: &str = "a-aged";

    fn denied<T>() -> object_store::Result<T> {
        Err(Error::PermissionDenied { path: String::new(), source: "denied".into() })
    }

    #[async_trait]
    impl ObjectStore for Strict {
        async fn put_opts(
            &self,
            location: &StorePath,
            payload: PutPayload,
            options: PutOptions,
        ) -> object_store::Result<PutResult> {
            self.0.put_opts(location, payload, options).await
        }

        async fn put_multipart_opts(
            &self,
            _location: &StorePath,
            _options: PutMultipartOptions,
        ) -> object_store::Result<Box<dyn MultipartUpload>> {
            denied()
        }

        async fn get_opts(
            &self,
            location: &StorePath,
            options: GetOptions,
        ) -> object_store::Result<GetResult> {
            if location.as_ref().ends_with(FORBIDDEN) {
                return denied();
            }
            self.0.get_opts(location, options).await
        }

        fn delete_stream(
            &self,
            locations: BoxStream<'static, object_store::Result<StorePath>>,
        ) -> BoxStream<'static, object_store::Result<StorePath>> {
            locations.map(|_| denied()).boxed()
        }

        fn list(
            &self,
            prefix: Option<&StorePath>,
        ) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
            let aged = |mut meta: ObjectMeta| {
                if meta.location.as_ref().ends_with(AGED) {
                    meta.last_modified = SystemTime::UNIX_EPOCH.into();
                }
                meta
            };
            self.0.list(prefix).map_ok(aged).boxed()
        }

        async fn list_with_delimiter(
            &self,
            prefix: Option<&StorePath>,
        ) -> object_store::Result<ListResult> {
            self.0.list_with_delimiter(prefix).await
        }

        async fn copy_opts(
            &self,
            _from: &StorePath,
            _to: &StorePath,
            _options: CopyOptions,
        ) -> object_store::Result<()> {
            denied()
        }
    }

    /// Writes the notice of a challenge, without waiting for a reader.
    async fn write(objects: &Objects, challenge: &SharedChallenge) {
        let (name, content) = encode(challenge);
        let name = format!("{FOLDER}/{name}");
        assert!(objects.write(&name, content, Condition::Always).await.unwrap());
    }

    #[tokio::test]
    async fn a_notice_that_cannot_be_removed_or_read_does_not_hide_others() {
        let client = Arc::new(Strict(InMemory::new()));
        let objects = Objects::new(client, "s3://a".into(), "", Duration::from_secs(1));
        let mut notices = Notices::default();
        write(&objects, &http(AGED)).await;
        write(&objects, &http(FORBIDDEN)).await;
        notices.read(&objects).await.unwrap();
        // The next round removes what is old.
        write(&objects, &http("z-new")).await;
        notices.read(&objects).await.unwrap();
        assert_eq!(text("z-new").as_deref(), Some("z-new.thumbprint"));
        assert_eq!(notices.kept.len(), 1);
        notices.read(&objects).await.unwrap();
    }
}
