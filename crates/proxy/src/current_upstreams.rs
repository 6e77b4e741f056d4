//! The upstreams that a group has at present: those that are fixed, and those that the Domain Name System has.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dunlin_config::Service;
use dunlin_dns::{self as dns, Target};

use crate::failure::{Failure, Kind};
use crate::group::Group;
use crate::pool::WorkerProxy;
use crate::upstream::Upstream;

impl Group {
    /// Returns `true` if [`Group::present`] has to be called for each request.
    pub fn has_services(&self) -> bool {
        !self.services.is_empty()
    }

    /// Returns the group with the upstreams that SRV records name now, and those at the present addresses of names. If the
    /// names cannot be resolved, those of their last records are used.
    ///
    /// # Errors
    /// There are no upstreams, and there were none before.
    pub async fn present(&self, worker: &WorkerProxy) -> Result<Arc<Self>, Failure> {
        let query = async |number: usize| {
            let (service, _) = &self.services[number];
            dns::targets(&worker.name_servers(), &service.name, service.port).await
        };
        let group = self.present.get(query, |targets, last| self.derive(targets, last)).await;
        group.map_err(|reason| {
            if self.log_limiter.is_due() {
                tracing::error!("proxy: {reason}");
            }
            Failure::new(Kind::Resolve, reason)
        })
    }

    /// Returns the upstreams of the last answers.
    pub(crate) fn last_upstreams(&self) -> Vec<Arc<Upstream>> {
        self.present.last().as_deref().unwrap_or(self).upstreams.clone()
    }

    /// Returns the group with the fixed upstreams and those at the targets of each service; `None` if there are none. It is
    /// the last one if nothing has changed.
    fn derive(&self, targets: &[Vec<Target>], last: Option<&Arc<Self>>) -> Option<Arc<Self>> {
        let before = last.map_or(&[][..], |group| &group.upstreams);
        let mut upstreams = self.upstreams.clone();
        for ((service, weight), targets) in self.services.iter().zip(targets) {
            for target in targets {
                upstreams.extend(self.upstream_of(service, *weight, target, before));
            }
        }
        if upstreams.is_empty() {
            return None;
        }
        let is_same = |group: &&Arc<Self>| {
            group.upstreams.len() == upstreams.len()
                && group.upstreams.iter().zip(&upstreams).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        let kept = last.filter(is_same).cloned();
        Some(kept.unwrap_or_else(|| Arc::new(self.with(upstreams))))
    }

    /// Returns the upstream of a target: the one that it had before, with its state, if nothing has changed.
    fn upstream_of(
        &self,
        service: &Service,
        weight: u32,
        target: &Target,
        before: &[Arc<Upstream>],
    ) -> Option<Arc<Upstream>> {
        let address = service.at(&target.host, target.port)?;
        // Weight 0 is for targets that get nearly no requests; the weight of the service applies to each.
        let weight = u32::from(target.weight).max(1) * weight;
        let is_it = |other: &&Arc<Upstream>| {
            other.address == address
                && other.resolved.is_only(target.address)
                && (other.weight, other.priority) == (weight, target.priority)
        };
        if let Some(kept) = before.iter().find(is_it) {
            return Some(Arc::clone(kept));
        }
        let upstream = dunlin_config::Upstream { address, weight, backup: false };
        let made = self.with_tls(|tls| Upstream::new(&upstream, &self.rules, tls));
        let made = made.with_priority(target.priority);
        let Some(address) = target.address else { return Some(Arc::new(made)) };
        let host = SocketAddr::new(address, target.port).to_string();
        let (host, _) = host.rsplit_once(':')?;
        let name = service.at(host, target.port)?.to_string();
        Some(Arc::new(made.at(address, &name, &self.rules)))
    }

    /// Creates a group with these upstreams and the state of this one.
    fn with(&self, upstreams: Vec<Arc<Upstream>>) -> Self {
        let lowest = upstreams.first().map(|upstream| upstream.priority);
        let mut group = self.copy();
        group.has_priorities = upstreams.iter().any(|other| Some(other.priority) != lowest);
        group.upstreams = upstreams;
        group.next.store(self.next.load(Ordering::Relaxed), Ordering::Relaxed);
        group
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use dunlin_dns::Answer;

    use super::*;
    use crate::balance::Choice;
    use crate::testing::rules;

    fn target(host: &str, priority: u16, weight: u16) -> Target {
        Target { priority, weight, host: host.to_owned(), port: 80, address: None }
    }

    fn update(group: &Group, answer: Result<Vec<Target>, &str>) -> Result<Arc<Group>, String> {
        let answer = answer.map(|items| Answer { items, time: Duration::from_secs(10) });
        let answers = vec![answer.map_err(str::to_owned)];
        group.present.update(answers, |targets, last| group.derive(targets, last))
    }

    fn names(group: &Group) -> Vec<&str> {
        group.upstreams.iter().map(|upstream| &*upstream.name).collect()
    }

    #[test]
    fn upstreams_follow_the_records_and_keep_their_state() {
        let group = Group::new(&rules("to = ['srv+http://_http._tcp.test', 'http://fixed']"));
        assert!(update(&group, Err("no answer")).is_ok(), "one is fixed");
        let found = |items| update(&group, Ok(items)).unwrap();
        let first = found(vec![target("a", 0, 1), target("b", 0, 1)]);
        assert_eq!(names(&first), ["http://fixed", "http://a:80", "http://b:80"]);
        let same = found(vec![target("a", 0, 1), target("b", 0, 1)]);
        assert!(Arc::ptr_eq(&first, &same));
        let second = found(vec![target("b", 0, 1), target("c", 0, 5)]);
        assert_eq!(names(&second), ["http://fixed", "http://b:80", "http://c:80"]);
        assert!(Arc::ptr_eq(&first.upstreams[2], &second.upstreams[1]));
        assert_eq!(second.upstreams[2].weight, 5);
        let kept = update(&group, Err("no answer")).unwrap();
        assert_eq!(names(&kept), names(&second));
        assert_eq!(group.last_upstreams().len(), 3);
    }

    #[test]
    fn each_address_of_a_name_is_an_upstream() {
        let group = Group::new(&rules("to = 'dns+http://app:80', eject = { failures = 1 }"));
        let at = |address: &str| Target {
            address: Some(address.parse().unwrap()),
            ..target("app", 0, 1)
        };
        let update = |items| update(&group, Ok(items)).unwrap();
        let first = update(vec![at("10.0.0.1"), at("10.0.0.2"), at("::1")]);
        assert_eq!(names(&first), ["http://10.0.0.1:80", "http://10.0.0.2:80", "http://[::1]:80"]);
        first.note_failure(&first.upstreams[1], Instant::now());
        let second = update(vec![at("10.0.0.2"), at("10.0.0.3")]);
        assert!(Arc::ptr_eq(&first.upstreams[1], &second.upstreams[0]), "it stays ejected");
        let failed = second.upstreams.iter().map(|it| it.health.is_available(Instant::now()));
        assert_eq!(failed.collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn without_any_record_there_is_no_upstream() {
        let group = Group::new(&rules("to = 'srv+http://_http._tcp.test'"));
        let failure = update(&group, Err("no answer")).unwrap_err();
        assert_eq!(failure, "no answer");
    }

    #[test]
    fn other_priorities_are_used_only_if_the_first_fails() {
        let group = Group::new(&rules(
            "to = 'srv+http://_http._tcp.test', balance = 'round-robin', eject = { failures = 1 }",
        ));
        let targets = vec![target("a", 1, 1), target("b", 2, 1), target("c", 2, 1)];
        let present = update(&group, Ok(targets)).unwrap();
        let now = Instant::now();
        let choice = Choice { tried: &[], key: &[], sticky: None, now };
        let chosen = |choice| present.choose(choice).unwrap().name.to_string();
        assert!((0..5).all(|_| chosen(choice) == "http://a:80"));
        let tried = [present.upstreams[0].id];
        assert_ne!(chosen(Choice { tried: &tried, ..choice }), "http://a:80");
        present.note_failure(&present.upstreams[0], now);
        assert!((0..5).all(|_| chosen(choice) != "http://a:80"));
    }
}
