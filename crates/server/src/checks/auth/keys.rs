//! Keys of tokens: in a file that is followed, or at a URL from which they are fetched. Workers share them.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dunlin_client as client;
use dunlin_config::KeySource;
use dunlin_tokens::KeySet;
use tokio::sync::Mutex as Waiting;

use super::users::Stamp;
use crate::checks::Services;

/// Keys of tokens, and where they come from.
#[derive(Debug)]
pub(crate) struct Keys {
    source: KeySource,
    /// Created for the first request, as an https URL needs certificates from files.
    origin: OnceLock<client::Origin>,
    state: Mutex<State>,
    /// Held while keys are read or fetched.
    refreshing: Arc<Waiting<()>>,
}

#[derive(Debug, Default)]
struct State {
    set: Arc<KeySet>,
    /// Identifies the version of the file that was read.
    stamp: Option<Stamp>,
    /// When the file's metadata was last read, or when it was last attempted to fetch the keys.
    looked: Option<Instant>,
    /// When the keys were fetched.
    fetched: Option<Instant>,
    /// The last error has been logged.
    is_logged: bool,
}

/// Maximum size of a file or response with keys in bytes.
const MAX_SIZE: usize = 1 << 20;
/// Interval in which the metadata of a file is compared.
const LOOK: Duration = Duration::from_secs(1);
/// Interval in which keys are fetched again.
const LIFETIME: Duration = Duration::from_secs(600);
/// Shortest time between two attempts to fetch keys, and the same if there are none.
const PAUSE: Duration = Duration::from_secs(60);
const PAUSE_WITHOUT: Duration = Duration::from_secs(5);

impl Keys {
    /// Creates the keys of a source. Those of a file are read; the check of the configuration has reported errors.
    pub(crate) fn new(source: KeySource) -> Self {
        let mut state = State::default();
        if let KeySource::File(path) = &source
            && let Ok((set, stamp)) = read(path)
        {
            (state.set, state.stamp) = (Arc::new(set), Some(stamp));
        }
        let (origin, refreshing) = (OnceLock::new(), Arc::default());
        Self { source, origin, state: Mutex::new(state), refreshing }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the keys in force.
    pub(super) fn current(&self) -> Arc<KeySet> {
        Arc::clone(&self.state().set)
    }

    /// Begins to read or fetch the keys if that is due, or if a token names an unknown key (`is_unknown`), at most once a minute.
    /// Returns `true` if they are being read or fetched.
    pub(super) fn refresh(
        self: &Arc<Self>,
        services: &Rc<dyn Services>,
        now: Instant,
        is_unknown: bool,
    ) -> bool {
        let Ok(guard) = Arc::clone(&self.refreshing).try_lock_owned() else { return true };
        if !self.is_due(now, is_unknown) {
            return false;
        }
        let (keys, services) = (Arc::clone(self), Rc::clone(services));
        // It does not end with the client that has caused it.
        tokio::task::spawn_local(async move {
            let obtained = keys.obtain(&*services).await;
            keys.store(obtained);
            drop(guard);
        });
        true
    }

    /// Waits until the keys that are being read or fetched are in force.
    pub(super) async fn settled(&self) {
        drop(self.refreshing.lock().await);
    }

    fn is_due(&self, now: Instant, is_unknown: bool) -> bool {
        let mut state = self.state();
        let since = |time: Option<Instant>| time.map(|time| now.saturating_duration_since(time));
        let looked = since(state.looked);
        let is_due = match &self.source {
            KeySource::File(path) => {
                if looked.is_some_and(|looked| looked < LOOK) {
                    return false;
                }
                // This does not block: the file was read recently, so its metadata is in memory.
                fs::metadata(path).ok().map(|metadata| Stamp::of(&metadata)) != state.stamp
            }
            KeySource::Url { .. } => {
                let pause = if state.set.is_empty() { PAUSE_WITHOUT } else { PAUSE };
                let may_fetch = looked.is_none_or(|looked| looked >= pause);
                let is_old = since(state.fetched).is_none_or(|age| age >= LIFETIME);
                if !may_fetch || !(is_old || is_unknown) {
                    return false;
                }
                true
            }
        };
        state.looked = Some(now);
        is_due
    }

    async fn obtain(&self, services: &dyn Services) -> Result<(KeySet, Option<Stamp>), String> {
        match &self.source {
            KeySource::File(path) => {
                let path = path.clone();
                let read = services.passwords().run(move || read(&path)).await;
                let (set, stamp) = read.map_err(|_| "too much other work waits".to_owned())??;
                Ok((set, Some(stamp)))
            }
            KeySource::Url { url, authority, timeout } => {
                let origin = match self.origin.get() {
                    Some(origin) => origin,
                    None => {
                        let tls = || dunlin_tls::client_config(authority.as_deref());
                        let origin = client::Origin::from_url(url, tls)?;
                        self.origin.get_or_init(|| origin)
                    }
                };
                let mut request = client::Request::for_url(origin, "GET", url);
                request.head.fields.push("Accept", "application/jwk-set+json, application/json");
                request.timeouts = client::Timeouts::total(*timeout);
                let fetch = async {
                    let mut exchange = services.client().send(request, client::Empty).await?;
                    let head = exchange.final_head().await?;
                    Ok((head.status, exchange.collect(MAX_SIZE).await?))
                };
                let (status, body) =
                    fetch.await.map_err(|error: client::Error| error.reason().to_owned())?;
                if status != 200 {
                    return Err(format!("its response has status {status}"));
                }
                Ok((KeySet::published(&body)?, None))
            }
        }
    }

    fn store(&self, obtained: Result<(KeySet, Option<Stamp>), String>) {
        let mut state = self.state();
        match obtained {
            Ok((set, stamp)) => {
                (state.set, state.stamp) = (Arc::new(set), stamp);
                (state.fetched, state.is_logged) = (Some(Instant::now()), false);
            }
            Err(why) => {
                let is_logged = std::mem::replace(&mut state.is_logged, true);
                let effect = match state.set.is_empty() {
                    true => "there are no keys, so that requests with tokens get 503",
                    false => "the previous keys stay in use",
                };
                drop(state);
                if !is_logged {
                    tracing::error!("keys of tokens, {}: {why}; {effect}", self.source);
                }
            }
        }
    }
}

/// Reads a file with keys.
///
/// # Errors
/// The file cannot be read, or has no usable keys.
pub(crate) fn read_keys(path: &Path) -> Result<(), String> {
    read(path).map(|_| ())
}

fn read(path: &Path) -> Result<(KeySet, Stamp), String> {
    let text = |error: std::io::Error| error.to_string();
    let file = fs::File::open(path).map_err(text)?;
    let stamp = Stamp::of(&file.metadata().map_err(text)?);
    let mut content = Vec::new();
    file.take(MAX_SIZE as u64 + 1).read_to_end(&mut content).map_err(text)?;
    if content.len() > MAX_SIZE {
        return Err(format!("larger than {} MiB, the maximum for keys", MAX_SIZE >> 20));
    }
    Ok((KeySet::of_file(&content)?, stamp))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(source: KeySource) -> Keys {
        Keys::new(source)
    }

    #[test]
    fn keys_are_fetched_at_most_once_a_minute() {
        let url = dunlin_http::semantics::Url::parse("https://id.test/keys").unwrap();
        let timeout = Duration::from_secs(5);
        let keys = keys(KeySource::Url { url, authority: None, timeout });
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(keys.is_due(start, true));
        assert!(!keys.is_due(after(4), true));
        // There are none yet.
        assert!(keys.is_due(after(5), true));
        let set = KeySet::of_file(
            br#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#,
        );
        keys.store(Ok((set.unwrap(), None)));
        assert!(!keys.is_due(after(64), true));
        assert!(!keys.is_due(after(66), false));
        assert!(keys.is_due(after(66), true));
        assert!(!keys.is_due(after(125), true));
        assert!(keys.is_due(after(660), false));
        // They are kept if that fails.
        keys.store(Err("unreachable".into()));
        assert!(!keys.current().is_empty());
    }
}
