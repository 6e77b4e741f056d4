//! What is derived from the last answers for several names.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dunlin_net::clock;

use crate::resolve::Answer;

/// After this time without an answer, the last one is used.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the last answer is used before another query.
const RETRY: Duration = Duration::from_secs(5);

/// A value that is derived from the answers for several names, and kept until one of them is too old. While a name cannot be
/// resolved, its last answer is used.
///
/// `T` are the items of an answer, `D` is the value.
#[derive(Debug)]
pub struct Present<T, D: ?Sized> {
    /// What has the names, for the log.
    owner: &'static str,
    names: Vec<String>,
    state: Mutex<State<T, D>>,
}

#[derive(Debug)]
struct State<T, D: ?Sized> {
    /// The last answer for each name.
    answers: Vec<Vec<T>>,
    value: Option<Arc<D>>,
    /// When the names are resolved again.
    until: Option<Instant>,
    /// The last attempt has failed, and that was logged.
    has_failed: bool,
}

impl<T: Clone, D: ?Sized> Present<T, D> {
    /// The names of `owner`. `first` is the value until they were resolved; `None` if requests wait for that.
    pub fn new(owner: &'static str, names: Vec<String>, first: Option<Arc<D>>) -> Self {
        let answers = vec![Vec::new(); names.len()];
        let state = State { answers, value: first, until: None, has_failed: false };
        Self { owner, names, state: Mutex::new(state) }
    }

    /// The last value; `None` if there was none.
    pub fn last(&self) -> Option<Arc<D>> {
        self.state().value.clone()
    }

    /// The present value. If it is too old, the names are resolved by `resolve`, which gets their numbers, and the value is derived
    /// again. Meanwhile other requests use the last one.
    ///
    /// `derive` gets the answers and the last value, and returns `None` if the answers have nothing.
    ///
    /// # Errors
    /// A name could not be resolved, and there is no value without it.
    pub async fn get(
        &self,
        resolve: impl AsyncFn(usize) -> Result<Answer<T>, String>,
        derive: impl FnOnce(&[Vec<T>], Option<&Arc<D>>) -> Option<Arc<D>>,
    ) -> Result<Arc<D>, String> {
        if let Some(value) = self.fresh(clock::now()) {
            return Ok(value);
        }
        let has_value = self.begin(clock::now());
        let mut answers = Vec::with_capacity(self.names.len());
        for (number, name) in self.names.iter().enumerate() {
            let query = Box::pin(resolve(number));
            answers.push(match has_value {
                true => clock::timeout(PATIENCE, query)
                    .await
                    .unwrap_or_else(|| Err(format!("resolving {name} takes too long"))),
                false => query.await,
            });
        }
        self.update(answers, derive)
    }

    /// Derives the value from these answers, one for each name, as [`Present::get`] does.
    ///
    /// # Errors
    /// See [`Present::get`].
    pub fn update(
        &self,
        answers: Vec<Result<Answer<T>, String>>,
        derive: impl FnOnce(&[Vec<T>], Option<&Arc<D>>) -> Option<Arc<D>>,
    ) -> Result<Arc<D>, String> {
        let mut state = self.state();
        let (mut time, mut failed) = (Duration::MAX, None);
        for (answer, last) in answers.into_iter().zip(&mut state.answers) {
            match answer {
                Ok(answer) => {
                    time = time.min(answer.time);
                    *last = answer.items;
                }
                Err(reason) => {
                    time = time.min(RETRY);
                    failed = Some(reason);
                }
            }
        }
        let Some(value) = derive(&state.answers, state.value.as_ref()) else {
            return Err(failed.unwrap_or_else(|| format!("{} has no address", self.names())));
        };
        let owner = self.owner;
        if let Some(reason) = failed {
            if !std::mem::replace(&mut state.has_failed, true) {
                tracing::warn!("{owner}: {reason}; the last known addresses are used");
            }
        } else if std::mem::take(&mut state.has_failed) {
            tracing::info!("{owner}: {} resolved again", self.names());
        }
        (state.value, state.until) = (Some(Arc::clone(&value)), Some(clock::now() + time));
        Ok(value)
    }

    /// The value, if its time is not over.
    fn fresh(&self, now: Instant) -> Option<Arc<D>> {
        let state = self.state();
        state.value.as_ref().filter(|_| state.until.is_some_and(|until| now < until)).cloned()
    }

    /// Notes that a query begins. Until its end, other requests use the last value. Returns `false` if there is none.
    fn begin(&self, now: Instant) -> bool {
        let mut state = self.state();
        if state.value.is_some() {
            state.until = Some(now + RETRY);
        }
        state.value.is_some()
    }

    fn names(&self) -> String {
        self.names.join(", ")
    }

    fn state(&self) -> MutexGuard<'_, State<T, D>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use dunlin_net::clock::manual;

    use super::*;

    type Numbers = Present<u8, [u8]>;

    fn all(answers: &[Vec<u8>], _: Option<&Arc<[u8]>>) -> Option<Arc<[u8]>> {
        let all = answers.concat();
        (!all.is_empty()).then(|| all.into())
    }

    fn answer(items: &[u8]) -> Result<Answer<u8>, String> {
        Ok(Answer { items: items.to_vec(), time: Duration::from_secs(10) })
    }

    fn no() -> Result<Answer<u8>, String> {
        Err("no".into())
    }

    fn numbers(first: Option<Arc<[u8]>>) -> Numbers {
        Numbers::new("test", vec!["a".into(), "b".into()], first)
    }

    #[test]
    fn the_last_answer_of_a_name_is_used_while_there_is_no_other() {
        let present = numbers(None);
        assert_eq!(present.update(vec![no(), no()], all), Err("no".into()));
        assert_eq!(present.last(), None);
        assert_eq!(*present.update(vec![answer(&[1]), no()], all).unwrap(), [1]);
        assert_eq!(*present.update(vec![no(), answer(&[2])], all).unwrap(), [1, 2]);
        assert_eq!(*present.update(vec![answer(&[3]), answer(&[])], all).unwrap(), [3]);
        assert!(present.update(vec![answer(&[]), answer(&[])], all).unwrap_err().contains("a, b"));
        assert_eq!(*present.last().unwrap(), [3]);
    }

    #[tokio::test]
    async fn names_are_resolved_when_an_answer_is_too_old() {
        let _stopped = manual::stop();
        let (present, queries) = (numbers(None), Cell::new(0));
        let get = async || {
            let resolve = async |number| {
                queries.set(queries.get() + 1);
                answer(&[number as u8])
            };
            present.get(resolve, all).await
        };
        assert_eq!(*get().await.unwrap(), [0, 1]);
        manual::advance(Duration::from_secs(9));
        assert_eq!((get().await.is_ok(), queries.get()), (true, 2));
        manual::advance(Duration::from_secs(1));
        assert_eq!((get().await.is_ok(), queries.get()), (true, 4));
    }

    #[tokio::test]
    async fn other_requests_use_the_last_value_during_a_query() {
        let _stopped = manual::stop();
        let present = numbers(Some([7].into()));
        assert_eq!(present.fresh(clock::now()), None);
        let resolve = async |_| {
            assert_eq!(present.fresh(clock::now()).as_deref(), Some(&[7][..]));
            no()
        };
        assert_eq!(*present.get(resolve, |_, last| last.cloned()).await.unwrap(), [7]);
        manual::advance(RETRY);
        assert_eq!(present.fresh(clock::now()), None);
    }
}
