//! Certificates by ACME (RFC 8555).
//!
//! A dedicated thread obtains and renews certificates and writes them into files, which are reloaded like all certificate
//! files. A failure here ends neither the thread nor the server.

pub(crate) mod account;
mod advice;
pub(crate) mod challenges;
mod client;
pub(crate) mod files;
mod hook;
mod maintain;
mod order;
mod query;
pub(crate) mod records;
mod renewal;
pub(crate) mod storage;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use dunlin_config::{Acme, Config};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Semaphore;

use self::challenges::Challenges;
use self::files::Outcome;
use self::maintain::Maintained;
pub(crate) use self::renewal::renewal;
use self::storage::{SharedStorage, Storage};
use super::certificate;

/// Maximum number of concurrent orders.
const MAX_ORDERS: usize = 4;
/// Starts the thread that obtains and renews the certificates of all sites that use ACME, until `retired` is set. `shared` is the
/// storage of the fleet, if there is one.
///
/// # Errors
/// When the thread cannot be started.
pub(crate) fn start(
    config: &Config,
    challenges: &Arc<Challenges>,
    retired: &Arc<AtomicBool>,
    shared: Option<Arc<dyn SharedStorage>>,
) -> std::io::Result<()> {
    let sites: Vec<Acme> =
        config.sites.iter().filter_map(|site| site.tls.as_ref()?.acme.clone()).collect();
    let (challenges, retired) = (Arc::clone(challenges), Arc::clone(retired));
    let run = move || {
        let runtime =
            Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => {
                tracing::error!("ACME: certificates cannot be obtained: {error}");
                return;
            }
        };
        runtime.block_on(async move {
            let orders = Arc::new(Semaphore::new(MAX_ORDERS));
            let mut tasks = Vec::new();
            for acme in sites {
                let storage = Storage::new(shared.clone());
                let maintained =
                    Maintained::new(acme, storage, Arc::clone(&challenges), Arc::clone(&retired));
                tasks.push(tokio::task::spawn_local(maintained.run(Arc::clone(&orders))));
            }
            for task in tasks {
                if let Err(fault) = task.await {
                    tracing::error!("ACME: the renewal of a certificate has stopped: {fault}");
                }
            }
        });
    };
    std::thread::Builder::new().name("acme".into()).spawn(run).map(drop)
}

fn log_failure(site: &str, acme: &Acme, outcome: &Outcome) {
    let Outcome { failures, error, .. } = outcome;
    let next_try = certificate::date(outcome.next_try());
    let state = match certificate::validity(&acme.file()) {
        Ok(validity) if validity.until > SystemTime::now() => "the current one stays in use",
        Ok(_) => "the current one has expired",
        Err(_) => "there is none yet",
    };
    tracing::error!(
        site,
        failures,
        next_try,
        "ACME: the certificate was not obtained, {state}: {error}"
    );
}

/// Returns the files with the outcome of the last attempts and the authority's renewal window.
pub(crate) fn state_files(acme: &Acme) -> [PathBuf; 2] {
    [acme.outcome(), advice::path(&acme.file())]
}

/// Minimum time before a new certificate is renewed: with a wrong clock it may seem to be due at once.
fn minimum_age(file: &Path) -> Duration {
    let validity = certificate::validity(file).ok();
    let life = validity.and_then(|validity| validity.until.duration_since(validity.from).ok());
    life.map_or(Duration::from_secs(3600), |life| (life / 10).min(Duration::from_secs(3600)))
}

/// Returns the delay after the last failure, with this number of usable challenge types. Authorities limit failed validations
/// (Let's Encrypt: five in an hour, then one every twelve minutes), but not attempts that do not reach them.
fn backoff(outcome: &Outcome, kinds: usize) -> Duration {
    let (count, first, max) = match (outcome.unreachable, outcome.rejected) {
        (0, 1) if kinds > 1 => return Duration::from_secs(10), // The other challenge type may succeed.
        (0, rejected) => (rejected, 60, 6 * 3600),
        (unreachable, _) => (unreachable, 5, 3600),
    };
    let factor = 1_u64.checked_shl(count.saturating_sub(1)).unwrap_or(u64::MAX);
    Duration::from_secs(factor.saturating_mul(first).min(max))
}

/// Up to 20 % more or less, so that many servers do not retry at the same time.
fn jitter(wait: Duration) -> Duration {
    let mut byte = [128];
    let random = certificate::provider().secure_random;
    // Without random numbers the middle is used.
    let _ = random.fill(&mut byte);
    wait.mul_f64(0.8 + f64::from(byte[0]) / 255.0 * 0.4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_is_bounded_and_respects_limits_of_authorities() {
        let seconds = |unreachable, rejected, kinds| {
            backoff(&Outcome { unreachable, rejected, ..Outcome::default() }, kinds).as_secs()
        };
        assert_eq!((seconds(1, 0, 1), seconds(2, 9, 1)), (5, 10));
        assert_eq!(seconds(u32::MAX, 3, 2), 3600);
        assert_eq!(seconds(0, 1, 2), 10);
        assert_eq!((seconds(0, 1, 1), seconds(0, 2, 2)), (60, 120));
        assert_eq!(seconds(0, u32::MAX, 1), 6 * 3600);
        // With the smallest jitter: five attempts at first, then one in twelve minutes.
        for kinds in [1, 2] {
            let (mut now, mut tries) = (0.0, 1.0);
            for rejected in 1..30 {
                now += seconds(0, rejected, kinds) as f64 * 0.8;
                tries += 1.0;
                assert!(tries <= 6.0 + now / 720.0, "{tries} tries in {now} s");
            }
        }
        let wait = jitter(Duration::from_secs(100));
        assert!((80..=120).contains(&wait.as_secs()), "{wait:?}");
    }
}
