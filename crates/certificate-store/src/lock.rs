//! Locks with a lease. The object of a lock names its owner. The owner writes it again to extend the lease; a server that has seen the same
//! version for the time of the lease takes the lock over.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use object_store::UpdateVersion;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::objects::{Condition, Found, Objects};

/// The locks, as one server sees them.
#[derive(Debug)]
pub(crate) struct Locks {
    /// The ID of this server.
    owner: String,
    /// Versions of other owners, and since when each is known.
    seen: Mutex<HashMap<String, (UpdateVersion, Instant)>>,
}

/// The content of the object of a lock.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    /// The ID of the owner.
    owner: String,
    /// Higher than those of all owners before.
    fence: u64,
    /// The time of the lease in milliseconds.
    lease: u64,
    /// Differs in each version, since the version of some stores is a digest of the content.
    nonce: String,
    /// The owner has given it up.
    is_released: bool,
}

impl Locks {
    pub(crate) fn new(owner: String) -> Self {
        Self { owner, seen: Mutex::default() }
    }

    /// Takes the lock of `name` for `lease`, or extends it. Returns its number; `None` if another server has it.
    pub(crate) async fn take(
        &self,
        objects: &Objects,
        name: &str,
        lease: Duration,
    ) -> Result<Option<u64>, String> {
        let (fence, condition) = match objects.read(&object(name)).await? {
            None => (1, Condition::Absent),
            Some(found) => {
                let record = decode(name, &found)?;
                let is_own = self.is_own(&record);
                if !is_own && !record.is_released && !self.has_expired(name, &found, &record) {
                    return Ok(None);
                }
                let fence = if is_own { record.fence } else { record.fence + 1 };
                (fence, Condition::Unchanged(found.version))
            }
        };
        let is_written = self.write(objects, name, (fence, lease, false), condition).await?;
        Ok(is_written.then_some(fence))
    }

    /// Returns whether this server has the lock of that number.
    pub(crate) async fn is_held(
        &self,
        objects: &Objects,
        name: &str,
        fence: u64,
    ) -> Result<bool, String> {
        let Some(found) = objects.read(&object(name)).await? else { return Ok(false) };
        let record = decode(name, &found)?;
        Ok(self.is_own(&record) && record.fence == fence)
    }

    /// Releases the lock with this fencing token.
    pub(crate) async fn release(
        &self,
        objects: &Objects,
        name: &str,
        fence: u64,
    ) -> Result<(), String> {
        let Some(found) = objects.read(&object(name)).await? else { return Ok(()) };
        let record = decode(name, &found)?;
        if self.is_own(&record) && record.fence == fence {
            let condition = Condition::Unchanged(found.version);
            // If it was written since the read, another server has it.
            self.write(objects, name, (fence, Duration::ZERO, true), condition).await?;
        }
        Ok(())
    }

    async fn write(
        &self,
        objects: &Objects,
        name: &str,
        (fence, lease, is_released): (u64, Duration, bool),
        condition: Condition,
    ) -> Result<bool, String> {
        let record = Record {
            owner: self.owner.clone(),
            fence,
            lease: lease.as_millis() as u64,
            nonce: nonce(),
            is_released,
        };
        let content = serde_json::to_vec(&record).map_err(|error| error.to_string())?;
        objects.write(&object(name), content, condition).await
    }

    fn is_own(&self, record: &Record) -> bool {
        record.owner == self.owner && !record.is_released
    }

    /// Returns `true` if the owner has not extended the lease in its time.
    fn has_expired(&self, name: &str, found: &Found, record: &Record) -> bool {
        let now = Instant::now();
        let mut seen = self.seen();
        match seen.get(name) {
            Some((version, since)) if is_same(version, &found.version) => {
                now.duration_since(*since) > Duration::from_millis(record.lease)
            }
            _ => {
                seen.insert(name.to_owned(), (found.version.clone(), now));
                false
            }
        }
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<String, (UpdateVersion, Instant)>> {
        // No code panics under the lock.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_same(one: &UpdateVersion, other: &UpdateVersion) -> bool {
    one.e_tag == other.e_tag && one.version == other.version
}

fn object(name: &str) -> String {
    format!("locks/{name}")
}

fn decode(name: &str, found: &Found) -> Result<Record, String> {
    serde_json::from_slice(&found.content)
        .map_err(|_| format!("locks/{name} was not written by Dunlin; remove it"))
}

/// Random text.
pub(crate) fn nonce() -> String {
    let mut bytes = [0; 16];
    // Without random numbers the versions of a lock may be equal, which ends it early: then two servers may order a certificate.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;

    const LEASE: Duration = Duration::from_secs(60);

    fn objects() -> Objects {
        Objects::new(Arc::new(InMemory::new()), "s3://a".into(), "p", Duration::from_secs(1))
    }

    fn servers() -> (Locks, Locks) {
        (Locks::new("one".into()), Locks::new("two".into()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_has_one_owner_and_its_number_grows() {
        let (objects, (one, two)) = (objects(), servers());
        assert_eq!(one.take(&objects, "a", LEASE).await, Ok(Some(1)));
        assert_eq!(one.take(&objects, "a", LEASE).await, Ok(Some(1)), "it is extended");
        assert_eq!(two.take(&objects, "a", LEASE).await, Ok(None));
        assert_eq!(two.take(&objects, "b", LEASE).await, Ok(Some(1)), "another name");
        two.release(&objects, "a", 1).await.unwrap();
        assert_eq!(one.is_held(&objects, "a", 1).await, Ok(true), "released by its owner only");
        one.release(&objects, "a", 1).await.unwrap();
        assert_eq!(one.is_held(&objects, "a", 1).await, Ok(false));
        assert_eq!(two.take(&objects, "a", LEASE).await, Ok(Some(2)));
        assert_eq!(one.take(&objects, "a", LEASE).await, Ok(None));
        one.release(&objects, "a", 1).await.unwrap();
        assert_eq!(two.is_held(&objects, "a", 2).await, Ok(true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_passes_on_when_it_was_not_extended_for_its_lease() {
        let (objects, (one, two)) = (objects(), servers());
        assert_eq!(one.take(&objects, "a", LEASE).await, Ok(Some(1)));
        assert_eq!(two.take(&objects, "a", LEASE).await, Ok(None));
        for _ in 0..10 {
            tokio::time::advance(LEASE / 2).await;
            assert_eq!(one.take(&objects, "a", LEASE).await, Ok(Some(1)));
            assert_eq!(two.take(&objects, "a", LEASE).await, Ok(None), "it was extended");
        }
        tokio::time::advance(LEASE).await;
        assert_eq!(two.take(&objects, "a", LEASE).await, Ok(None), "not longer than the lease");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(two.take(&objects, "a", LEASE).await, Ok(Some(2)));
        assert_eq!(one.is_held(&objects, "a", 1).await, Ok(false));
        assert_eq!(one.take(&objects, "a", LEASE).await, Ok(None));
    }

    #[tokio::test]
    async fn of_many_servers_one_gets_the_lock() {
        let objects = Arc::new(objects());
        for round in 0..50_u64 {
            let tasks: Vec<_> = (0..8)
                .map(|number| {
                    let objects = Arc::clone(&objects);
                    tokio::spawn(async move {
                        let locks = Locks::new(format!("server {number}"));
                        let fence = locks.take(&objects, "a", LEASE).await.unwrap();
                        (locks, fence)
                    })
                })
                .collect();
            let mut owners = Vec::new();
            for task in tasks {
                let (locks, fence) = task.await.unwrap();
                owners.extend(fence.map(|fence| (locks, fence)));
            }
            assert_eq!(owners.len(), 1);
            let (locks, fence) = owners.pop().unwrap();
            assert_eq!(fence, round + 1);
            locks.release(&objects, "a", fence).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_server_that_has_lost_the_lock_cannot_write() {
        let (objects, (one, two)) = (objects(), servers());
        assert_eq!(one.take(&objects, "a", Duration::ZERO).await, Ok(Some(1)));
        assert_eq!(crate::content::write(&objects, &one, "a", b"first", 1).await, Ok(true));
        assert_eq!(two.take(&objects, "a", LEASE).await, Ok(None));
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(two.take(&objects, "a", LEASE).await, Ok(Some(2)));
        assert_eq!(crate::content::write(&objects, &one, "a", b"late", 1).await, Ok(false));
        assert_eq!(crate::content::write(&objects, &two, "a", b"second", 2).await, Ok(true));
        assert_eq!(crate::content::read(&objects, "a").await, Ok(Some(b"second".to_vec())));
        assert_eq!(crate::content::read(&objects, "b").await, Ok(None));
    }

    #[tokio::test]
    async fn an_object_of_another_program_is_an_error() {
        let (objects, (one, _)) = (objects(), servers());
        assert_eq!(objects.write("locks/a", b"x".to_vec(), Condition::Always).await, Ok(true));
        let error = one.take(&objects, "a", LEASE).await.unwrap_err();
        assert_eq!(error, "locks/a was not written by Dunlin; remove it");
    }
}
