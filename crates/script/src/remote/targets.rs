//! The targets of a route's workers: fixed ones, and those that the Domain Name System has for names.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use dunlin_config::{Address, WorkerAddress};
use dunlin_dns::{self as dns, Answer, CachedLookup};

use super::target::RemoteTarget;
use crate::failure::Failure;

/// A target, and how it is chosen.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    pub(super) target: Arc<RemoteTarget>,
    /// Those with the lowest number are used first.
    pub(super) priority: u16,
    /// The target's part of the requests among those with the same priority.
    pub(super) weight: u16,
}

/// The choices, which all requests share until the next answer.
pub(super) type Choices = Arc<[Choice]>;

/// The targets of a route.
#[derive(Debug)]
pub(super) struct Targets {
    fixed: Choices,
    /// Names, with the port of their addresses unless SRV records have it.
    names: Vec<(String, Option<u16>)>,
    /// The fixed targets, and those of the names.
    present: CachedLookup<Found, [Choice]>,
}

/// A target of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    address: SocketAddr,
    priority: u16,
    weight: u16,
}

impl Targets {
    pub(super) fn new(addresses: &[WorkerAddress]) -> Self {
        let (mut fixed, mut names) = (Vec::new(), Vec::new());
        for address in addresses {
            match address {
                WorkerAddress::Socket(address) => {
                    let target = Arc::new(RemoteTarget::new(address.clone()));
                    fixed.push(Choice { target, priority: 0, weight: 1 });
                }
                WorkerAddress::Name { name, port } => names.push((name.clone(), *port)),
            }
        }
        let fixed: Choices = fixed.into();
        let first = (!fixed.is_empty()).then(|| Arc::clone(&fixed));
        let texts = names.iter().map(|(name, _)| name.clone()).collect();
        Self { fixed, names, present: CachedLookup::new("workers", texts, first) }
    }

    /// Returns the targets of the last answers.
    pub(super) fn last(&self) -> Choices {
        self.present.last().unwrap_or_default()
    }

    /// Returns the targets of now, after names whose answer is too old were resolved by the name servers `servers`. While
    /// that fails, the last answers are used.
    ///
    /// # Errors
    /// There is no target, and there was none before.
    pub(super) async fn present(&self, servers: &[SocketAddr]) -> Result<Choices, Failure> {
        if self.names.is_empty() {
            return Ok(Arc::clone(&self.fixed));
        }
        let query = async |number: usize| {
            let (name, port) = &self.names[number];
            resolve(servers, name, *port).await
        };
        let choices = self.present.get(query, |answers, last| self.choices(answers, last)).await;
        choices.map_err(|reason| {
            tracing::error!("workers: {reason}");
            Failure::Unreachable(reason)
        })
    }

    /// Returns the fixed targets, and those of the answers, which keep their connections and their state; `None` if there are
    /// none.
    fn choices(&self, answers: &[Vec<Found>], last: Option<&Choices>) -> Option<Choices> {
        let mut found: BTreeMap<SocketAddr, &Found> = BTreeMap::new();
        for one in answers.iter().flatten() {
            found.entry(one.address).or_insert(one);
        }
        let mut choices = self.fixed.to_vec();
        for (address, Found { priority, weight, .. }) in found {
            let address = Address::Tcp(address);
            let known = last.iter().flat_map(|last| &***last);
            let known = known.into_iter().find(|choice| choice.target.address == address);
            let target = known.map(|choice| Arc::clone(&choice.target));
            choices.push(Choice {
                target: target.unwrap_or_else(|| Arc::new(RemoteTarget::new(address))),
                priority: *priority,
                // Weight 0 is for targets that get nearly no requests (RFC 2782).
                weight: (*weight).max(1),
            });
        }
        (!choices.is_empty()).then(|| choices.into())
    }
}

/// Returns the targets that a name has.
///
/// # Errors
/// It has none, or its records name hosts without an address.
async fn resolve(
    servers: &[SocketAddr],
    name: &str,
    port: Option<u16>,
) -> Result<Answer<Found>, String> {
    let Answer { items, mut time } = dns::targets(servers, name, port).await?;
    let (mut found, mut failure) = (Vec::new(), None);
    for dns::Target { priority, weight, host, port, address } in items {
        let at = |address| Found { address: SocketAddr::new(address, port), priority, weight };
        if let Some(address) = address {
            found.push(at(address));
            continue;
        }
        match dns::addresses(servers, &host).await {
            Ok(answer) => {
                time = time.min(answer.time);
                found.extend(answer.items.into_iter().map(at));
            }
            Err(reason) => failure = Some(reason),
        }
    }
    match failure {
        Some(reason) if found.is_empty() => Err(reason),
        _ => Ok(Answer { items: found, time }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, priority: u16, weight: u16) -> Found {
        Found { address: text.parse().unwrap(), priority, weight }
    }

    fn named() -> Targets {
        Targets::new(&[WorkerAddress::Name { name: "php".into(), port: Some(9000) }])
    }

    fn texts(choices: &Choices) -> Vec<String> {
        choices
            .iter()
            .map(|choice| {
                format!("{} {} {}", choice.target.address, choice.priority, choice.weight)
            })
            .collect()
    }

    #[test]
    fn targets_that_stay_keep_their_state() {
        let targets = named();
        assert!(targets.choices(&[Vec::new()], None).is_none());
        let first = vec![found("10.0.0.1:9000", 0, 1), found("10.0.0.2:9000", 0, 1)];
        let before = targets.choices(&[first], None).unwrap();
        let second = vec![found("10.0.0.3:9000", 1, 0), found("10.0.0.2:9000", 0, 5)];
        let after = targets.choices(&[second], Some(&before)).unwrap();
        assert_eq!(texts(&after), ["10.0.0.2:9000 0 5", "10.0.0.3:9000 1 1"]);
        assert!(Arc::ptr_eq(&before[1].target, &after[0].target));
    }

    #[tokio::test]
    async fn fixed_targets_are_not_resolved() {
        let address = WorkerAddress::Socket(Address::Unix("/run/a".into()));
        let targets = Targets::new(&[address.clone(), address]);
        assert_eq!(texts(&targets.present(&[]).await.unwrap()).len(), 2);
        assert_eq!(targets.last().len(), 2);
    }
}
