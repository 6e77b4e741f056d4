//! The targets of a route's workers: fixed ones, and those that the Domain Name System has for names.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dunlin_config::{Address, WorkerAddress};
use dunlin_dns::{self as dns, PATIENCE, RETRY};

use super::target::Target;
use crate::failure::Failure;

/// A target, and how it is chosen.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    pub(super) target: Arc<Target>,
    /// Those with the lowest number are used first.
    pub(super) priority: u16,
    /// Its part of the requests among those with the same priority.
    pub(super) weight: u16,
}

/// The choices, which all requests share until the next answer.
pub(super) type Choices = Arc<[Choice]>;

/// The targets of a route.
#[derive(Debug)]
pub(super) struct Targets {
    fixed: Vec<Choice>,
    /// Names, with the port of their addresses unless SRV records have it.
    names: Vec<(String, Option<u16>)>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    choices: Choices,
    /// The last answer for each name.
    answers: Vec<Vec<Found>>,
    /// When the names are resolved again.
    until: Option<Instant>,
    /// The last attempt has failed, and that was logged.
    has_failed: bool,
}

/// A target of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    address: SocketAddr,
    priority: u16,
    weight: u16,
}

/// The answer for a name, and how long it may be used.
type Answer = Result<(Vec<Found>, Duration), String>;

impl Targets {
    pub(super) fn new(addresses: &[WorkerAddress]) -> Self {
        let (mut fixed, mut names) = (Vec::new(), Vec::new());
        for address in addresses {
            match address {
                WorkerAddress::Socket(address) => {
                    let target = Arc::new(Target::new(address.clone()));
                    fixed.push(Choice { target, priority: 0, weight: 1 });
                }
                WorkerAddress::Name { name, port } => names.push((name.clone(), *port)),
            }
        }
        let state = State {
            choices: fixed.clone().into(),
            answers: vec![Vec::new(); names.len()],
            until: None,
            has_failed: false,
        };
        Self { fixed, names, state: Mutex::new(state) }
    }

    /// The targets of now.
    pub(super) fn last(&self) -> Choices {
        Arc::clone(&self.state().choices)
    }

    /// The targets of now, after names whose answer is too old were resolved by the name servers `servers`. While that fails, the
    /// last answers are used.
    ///
    /// # Errors
    /// There is no target, and there was none before.
    pub(super) async fn present(&self, servers: &[SocketAddr]) -> Result<Choices, Failure> {
        if self.names.is_empty() {
            return Ok(self.last());
        }
        let has_answers = {
            let mut state = self.state();
            let now = Instant::now();
            if state.until.is_some_and(|until| now < until) {
                return Ok(Arc::clone(&state.choices));
            }
            let has_answers = !state.choices.is_empty();
            // Other requests use the last answers meanwhile.
            state.until = has_answers.then(|| now + RETRY);
            has_answers
        };
        let mut answers = Vec::new();
        for (name, port) in &self.names {
            let question = Box::pin(resolve(servers, name, *port));
            answers.push(match has_answers {
                true => tokio::time::timeout(PATIENCE, question)
                    .await
                    .unwrap_or_else(|_| Err(format!("resolving {name} takes too long"))),
                false => question.await,
            });
        }
        self.update(answers)
    }

    fn update(&self, answers: Vec<Answer>) -> Result<Choices, Failure> {
        let mut state = self.state();
        let (mut time, mut failed) = (Duration::MAX, None);
        for (answer, last) in answers.into_iter().zip(&mut state.answers) {
            match answer {
                Ok((found, valid)) => {
                    time = time.min(valid);
                    *last = found;
                }
                Err(reason) => {
                    time = time.min(RETRY);
                    failed = Some(reason);
                }
            }
        }
        let choices = self.choices(&state);
        match failed {
            Some(reason) if choices.is_empty() => {
                tracing::error!("workers: {reason}");
                return Err(Failure::Unreachable(reason));
            }
            Some(reason) => {
                if !std::mem::replace(&mut state.has_failed, true) {
                    tracing::warn!("workers: {reason}; the last addresses are used");
                }
            }
            None => {
                if std::mem::take(&mut state.has_failed) {
                    let names: Vec<_> = self.names.iter().map(|(name, _)| &**name).collect();
                    tracing::info!("workers: {} resolved again", names.join(", "));
                }
            }
        }
        (state.choices, state.until) = (choices.into(), Some(Instant::now() + time));
        Ok(Arc::clone(&state.choices))
    }

    /// The fixed targets, and those of the last answers, which keep their connections and their state.
    fn choices(&self, state: &State) -> Vec<Choice> {
        let mut found: BTreeMap<SocketAddr, &Found> = BTreeMap::new();
        for one in state.answers.iter().flatten() {
            found.entry(one.address).or_insert(one);
        }
        let mut choices = self.fixed.clone();
        for (address, Found { priority, weight, .. }) in found {
            let address = Address::Tcp(address);
            let known = state.choices.iter().find(|choice| choice.target.address == address);
            let target = known.map(|choice| Arc::clone(&choice.target));
            choices.push(Choice {
                target: target.unwrap_or_else(|| Arc::new(Target::new(address))),
                priority: *priority,
                // Weight 0 is for targets that get nearly no requests (RFC 2782).
                weight: (*weight).max(1),
            });
        }
        choices
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The targets that a name has.
async fn resolve(servers: &[SocketAddr], name: &str, port: Option<u16>) -> Answer {
    let dns::Answer { items, mut time } = dns::targets(servers, name, port).await?;
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
        _ => Ok((found, time)),
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

    const TIME: Duration = Duration::from_secs(10);

    #[test]
    fn targets_that_stay_keep_their_state() {
        let targets = named();
        let first = vec![found("10.0.0.1:9000", 0, 1), found("10.0.0.2:9000", 0, 1)];
        let before = targets.update(vec![Ok((first, TIME))]).unwrap();
        let second = vec![found("10.0.0.3:9000", 1, 0), found("10.0.0.2:9000", 0, 5)];
        let after = targets.update(vec![Ok((second, TIME))]).unwrap();
        assert_eq!(texts(&after), ["10.0.0.2:9000 0 5", "10.0.0.3:9000 1 1"]);
        assert!(Arc::ptr_eq(&before[1].target, &after[0].target));
    }

    #[test]
    fn the_last_answer_is_used_while_there_is_no_other() {
        let targets = named();
        assert!(targets.update(vec![Err("no".into())]).is_err());
        let answer = vec![found("10.0.0.1:9000", 0, 1)];
        let before = targets.update(vec![Ok((answer, TIME))]).unwrap();
        let after = targets.update(vec![Err("no".into())]).unwrap();
        assert_eq!(texts(&before), texts(&after));
    }

    #[tokio::test]
    async fn fixed_targets_are_not_resolved() {
        let address = WorkerAddress::Socket(Address::Unix("/run/a".into()));
        let targets = Targets::new(&[address.clone(), address]);
        assert_eq!(texts(&targets.present(&[]).await.unwrap()).len(), 2);
    }
}
