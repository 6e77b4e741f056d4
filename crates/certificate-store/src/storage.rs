//! The storage, and the thread on which its requests run.

use std::sync::{Arc, Weak};
use std::time::Duration;

use dunlin_config::ObjectRoot;
use dunlin_files::objects::thread::Thread;
use dunlin_tls::{Pending, SharedChallenge, SharedStorage};

use crate::content;
use crate::lock::{Locks, nonce};
use crate::notices::{self, INTERVAL, Notices};
use crate::objects::Objects;

/// The storage of certificates in a bucket.
#[derive(Debug)]
pub(crate) struct CertificateStore {
    state: Arc<State>,
    thread: Thread,
}

#[derive(Debug)]
struct State {
    objects: Objects,
    locks: Locks,
}

impl CertificateStore {
    /// Opens the storage, and begins to read the notices of other servers.
    pub(crate) fn open(root: &ObjectRoot) -> Result<Self, String> {
        let thread = Thread::start().map_err(|error| format!("a thread: {error}"))?;
        // The clients of stores belong to the runtime in which they are made.
        let client = {
            let _guard = thread.handle().enter();
            dunlin_object_root::client(root).map_err(|error| format!("{root}: {error}"))?
        };
        let objects = Objects::new(client, root.to_string(), &root.prefix, root.store.timeout);
        let state = Arc::new(State { objects, locks: Locks::new(nonce()) });
        thread.handle().spawn(read_notices(Arc::downgrade(&state)));
        Ok(Self { state, thread })
    }

    /// Runs `work` on the thread.
    fn run<T: Send + 'static, F: Future<Output = Result<T, String>> + Send + 'static>(
        &self,
        work: impl FnOnce(Arc<State>) -> F,
    ) -> Pending<T> {
        let task = self.thread.handle().spawn(work(Arc::clone(&self.state)));
        // A task that does not end belongs to a thread that has ended.
        Box::pin(async move { task.await.unwrap_or_else(|error| Err(error.to_string())) })
    }
}

/// Reads notices until the storage is dropped.
async fn read_notices(state: Weak<State>) {
    let mut notices = Notices::default();
    while let Some(state) = state.upgrade() {
        // The storage logs the error.
        let _ = notices.read(&state.objects).await;
        drop(state);
        tokio::time::sleep(INTERVAL).await;
    }
}

impl SharedStorage for CertificateStore {
    fn read(&self, name: &str) -> Pending<Option<Vec<u8>>> {
        let name = name.to_owned();
        self.run(async move |state| content::read(&state.objects, &name).await)
    }

    fn write(&self, name: &str, content: Vec<u8>, fence: u64) -> Pending<bool> {
        let name = name.to_owned();
        self.run(async move |state| {
            content::write(&state.objects, &state.locks, &name, &content, fence).await
        })
    }

    fn lock(&self, name: &str, lease: Duration) -> Pending<Option<u64>> {
        let name = name.to_owned();
        self.run(async move |state| state.locks.take(&state.objects, &name, lease).await)
    }

    fn unlock(&self, name: &str, fence: u64) -> Pending<()> {
        let name = name.to_owned();
        self.run(async move |state| state.locks.release(&state.objects, &name, fence).await)
    }

    fn challenge(&self, challenges: Vec<SharedChallenge>) -> Pending<()> {
        self.run(async move |state| notices::challenge(&state.objects, &challenges).await)
    }

    fn announce(&self) -> Pending<()> {
        self.run(async move |state| notices::announce(&state.objects).await)
    }
}
