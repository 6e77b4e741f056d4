//! Certificates that are obtained and renewed by ACME (RFC 8555).
//!
//! A thread of its own keeps them: what it obtains it puts into files, which are followed like any
//! others. Nothing that goes wrong here ends it, or the server.

mod advice;
mod challenges;
mod client;
mod files;
mod order;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Semaphore;

use self::advice::Advice;
pub(crate) use self::challenges::{ALPN, Challenges};
pub(crate) use self::files::Outcome;
use self::order::Failure;
pub(crate) use self::order::read_external_key;
use super::certificate;
use crate::config::{Acme, Config};

/// Orders at once.
const ORDERS: usize = 4;
/// The clock is looked at at least so often: it may be set, and machines sleep.
const LOOK: Duration = Duration::from_secs(60);
/// After a restart a failed order is tried again so long after the failure, at the latest: somebody may
/// have mended what was wrong.
const AFTER_RESTART: Duration = Duration::from_secs(60);

/// Keeps the certificates of all sites that have theirs by ACME, until it is `retired`.
///
/// # Errors
/// When no thread can be started.
pub(super) fn start(
    config: &Config,
    challenges: &Arc<Challenges>,
    retired: &Arc<AtomicBool>,
) -> std::io::Result<()> {
    let sites: Vec<Acme> =
        config.sites.iter().filter_map(|site| site.tls.as_ref()?.acme.clone()).collect();
    let (challenges, retired) = (Arc::clone(challenges), Arc::clone(retired));
    let keep_all = move || {
        let runtime =
            Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => {
                tracing::error!("certificates are not obtained: {error}");
                return;
            }
        };
        runtime.block_on(async move {
            let orders = Arc::new(Semaphore::new(ORDERS));
            let mut tasks = Vec::new();
            for acme in sites {
                let (challenges, orders) = (Arc::clone(&challenges), Arc::clone(&orders));
                let keeping = keep(acme, challenges, orders, Arc::clone(&retired));
                tasks.push(tokio::task::spawn_local(keeping));
            }
            for task in tasks {
                if let Err(fault) = task.await {
                    tracing::error!("certificates are not obtained: {fault}");
                }
            }
        });
    };
    std::thread::Builder::new().name("acme".into()).spawn(keep_all).map(drop)
}

/// Keeps one certificate.
async fn keep(
    acme: Acme,
    challenges: Arc<Challenges>,
    orders: Arc<Semaphore>,
    retired: Arc<AtomicBool>,
) {
    let site = acme.names.first().cloned().unwrap_or_default();
    let acme = Arc::new(acme);
    let mut last = Outcome::read(&acme.outcome());
    let mut due = last.as_ref().map(|last| last.next_try().min(last.failed_at() + AFTER_RESTART));
    // A new certificate is not renewed before.
    let mut earliest = SystemTime::UNIX_EPOCH;
    loop {
        match due.take() {
            Some(at) => wait_until(at, &retired).await,
            None => wait_for_renewal(&acme, earliest, &retired).await,
        }
        let Ok(_permit) = orders.acquire().await else { return };
        if retired.load(Ordering::Relaxed) {
            return;
        }
        let refused = last.as_ref().map_or(0, |last| last.refused);
        let Some(&kind) = acme.challenges.get(refused as usize % acme.challenges.len().max(1))
        else {
            tracing::error!(site, "no listener can prove to an authority whose names these are");
            return;
        };
        tracing::info!(
            site,
            directory = acme.directory,
            challenge = kind.as_str(),
            "a certificate is ordered"
        );
        let (own, shown) = (Arc::clone(&acme), Arc::clone(&challenges));
        // A task of its own: a fault in it is a failed try.
        let task = tokio::task::spawn_local(async move { order::obtain(&own, kind, &shown).await });
        let failure = match task.await {
            Ok(Ok(())) => {
                let _ = std::fs::remove_file(acme.outcome());
                last = None;
                earliest = SystemTime::now() + rest(&acme.file());
                let renewal = certificate::date(renewal(&acme.file()).max(earliest));
                tracing::info!(site, renewal, "the certificate was obtained");
                continue;
            }
            Ok(Err(failure)) => failure,
            Err(fault) => Failure::from(fault.to_string()),
        };
        let kinds = acme.challenges.len();
        let outcome = last.take().unwrap_or_default();
        let outcome = outcome
            .failed(&failure.what, failure.unreachable, |outcome| jitter(pause(outcome, kinds)));
        tell(&site, &acme, &outcome);
        if let Err(error) = outcome.write(&acme.outcome()) {
            tracing::error!(site, "{}: {error}", acme.outcome().display());
        }
        due = Some(outcome.next_try());
        last = Some(outcome);
    }
}

fn tell(site: &str, acme: &Acme, outcome: &Outcome) {
    let Outcome { failures, error, .. } = outcome;
    let next_try = certificate::date(outcome.next_try());
    let state = match certificate::validity(&acme.file()) {
        Ok(validity) if validity.until > SystemTime::now() => "the one that is there stays",
        Ok(_) => "the one that is there has expired",
        Err(_) => "there is none yet",
    };
    tracing::error!(site, failures, next_try, "the certificate was not obtained, {state}: {error}");
}

/// Waits until the certificate that is there is to be renewed, by our own plan or the authority's.
async fn wait_for_renewal(acme: &Acme, earliest: SystemTime, retired: &AtomicBool) {
    let file = acme.file();
    loop {
        if renewal(&file).max(earliest) <= SystemTime::now() || retired.load(Ordering::Relaxed) {
            return;
        }
        let again = SystemTime::now() + advice::ask(acme).await;
        wait_until(renewal(&file).max(earliest).min(again), retired).await;
    }
}

async fn wait_until(at: SystemTime, retired: &AtomicBool) {
    while let Ok(left) = at.duration_since(SystemTime::now()) {
        if left.is_zero() || retired.load(Ordering::Relaxed) {
            return;
        }
        tokio::time::sleep(left.min(LOOK)).await;
    }
}

/// When the certificate in this file is to be renewed: when the authority says so, but with a twentieth of its life
/// left at the latest, and not before a hundredth of it has passed. When that says nothing: when a third of its life is left, or up to a twentieth of it earlier, so
/// that those of many servers are not renewed in one hour. Now, when there is none.
pub(super) fn renewal(file: &Path) -> SystemTime {
    let usable = certificate::check_pair(file).and_then(|()| certificate::validity(file));
    let Ok(validity) = usable else { return SystemTime::now() };
    let life = validity.until.duration_since(validity.from).unwrap_or_default();
    if let Some(advice) = Advice::read(file) {
        // A mistake there is no reason for a new one every hour, or for none at all.
        let (first, last) = (life.mul_f64(0.01), life.mul_f64(0.95));
        return advice.time(validity.spread).clamp(validity.from + first, validity.from + last);
    }
    let earlier = f64::from(validity.spread) / 255.0 / 20.0;
    validity.from + life.mul_f64(2.0 / 3.0 - earlier)
}

/// The files that tell how it goes: of the last tries, and of what the authority says about renewal.
pub(super) fn traces(acme: &Acme) -> [PathBuf; 2] {
    [acme.outcome(), advice::kept(&acme.file())]
}

/// How long a new certificate is kept in any case: with a clock that is wrong it may seem to be old at once.
fn rest(file: &Path) -> Duration {
    let validity = certificate::validity(file).ok();
    let life = validity.and_then(|validity| validity.until.duration_since(validity.from).ok());
    life.map_or(Duration::from_secs(3600), |life| (life / 10).min(Duration::from_secs(3600)))
}

/// How long to wait after the last failure, where there are so many kinds of proof. Authorities count proofs that
/// fail (Let's Encrypt allows five in an hour, and another every twelve minutes), but nobody minds to be asked
/// whether he is there.
fn pause(outcome: &Outcome, kinds: usize) -> Duration {
    let (count, first, most) = match (outcome.unheard, outcome.refused) {
        (0, 1) if kinds > 1 => return Duration::from_secs(10), // The other kind may succeed.
        (0, refused) => (refused, 60, 6 * 3600),
        (unheard, _) => (unheard, 5, 3600),
    };
    let factor = 1_u64.checked_shl(count.saturating_sub(1)).unwrap_or(u64::MAX);
    Duration::from_secs(factor.saturating_mul(first).min(most))
}

/// Up to a fifth more or less, so that many servers do not come back at once.
fn jitter(wait: Duration) -> Duration {
    let mut byte = [128];
    let random = certificate::provider().secure_random;
    // Without chance the middle is as good.
    let _ = random.fill(&mut byte);
    wait.mul_f64(0.8 + f64::from(byte[0]) / 255.0 * 0.4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_keep_within_what_authorities_allow() {
        let seconds = |unheard, refused, kinds| {
            pause(&Outcome { unheard, refused, ..Outcome::default() }, kinds).as_secs()
        };
        assert_eq!((seconds(1, 0, 1), seconds(2, 9, 1)), (5, 10));
        assert_eq!(seconds(u32::MAX, 3, 2), 3600);
        assert_eq!(seconds(0, 1, 2), 10);
        assert_eq!((seconds(0, 1, 1), seconds(0, 2, 2)), (60, 120));
        assert_eq!(seconds(0, u32::MAX, 1), 6 * 3600);
        // With the least that jitter makes of the pauses: five at first, then one in twelve minutes.
        for kinds in [1, 2] {
            let (mut now, mut tries) = (0.0, 1.0);
            for refused in 1..30 {
                now += seconds(0, refused, kinds) as f64 * 0.8;
                tries += 1.0;
                assert!(tries <= 6.0 + now / 720.0, "{tries} tries in {now} s");
            }
        }
        let wait = jitter(Duration::from_secs(100));
        assert!((80..=120).contains(&wait.as_secs()), "{wait:?}");
    }
}
