//! Values that are derived from the last answers for several names.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use dunlin_net::clock;

use crate::resolve::Answer;

/// After this time without an answer, the last one is used.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);
/// The time for which the last answer is used before another query.
const RETRY: Duration = Duration::from_secs(5);
/// The time for which it is known that names cannot be resolved, before another query.
const NEGATIVE: Duration = Duration::from_secs(2);

/// A value that is derived from the answers for several names, and kept until one of them is too old. While a name cannot be
/// resolved, its last answer is used. That there is no answer is kept, too, for a shorter time.
///
/// `T` are the items of an answer, `D` is the value.
#[derive(Debug)]
pub struct CachedLookup<T, D: ?Sized> {
    /// The owner of the names, for the log.
    owner: &'static str,
    names: Vec<String>,
    state: Mutex<State<T, D>>,
    /// The request that resolves the names for the first time has it, and others wait for it.
    first: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State<T, D: ?Sized> {
    /// The last answer for each name.
    answers: Vec<Vec<T>>,
    value: Option<Arc<D>>,
    /// Why there is no value.
    failure: Option<String>,
    /// When the names are resolved again.
    until: Option<Instant>,
    /// The last attempt has failed, and that was logged.
    has_failed: bool,
}

impl<T: Clone, D: ?Sized> CachedLookup<T, D> {
    /// Creates the names of `owner`. `first` is the value until they were resolved; `None` if requests wait for that.
    pub fn new(owner: &'static str, names: Vec<String>, first: Option<Arc<D>>) -> Self {
        let answers = vec![Vec::new(); names.len()];
        let state = State { answers, value: first, failure: None, until: None, has_failed: false };
        Self { owner, names, state: Mutex::new(state), first: tokio::sync::Mutex::default() }
    }

    /// Returns the last value; `None` if there was none.
    pub fn last(&self) -> Option<Arc<D>> {
        self.state().value.clone()
    }

    /// Returns the present value. If it is too old, the names are resolved at the same time by `resolve`, which gets their
    /// numbers, and the value is derived again. Meanwhile other requests use the last one, or wait if there is none.
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
        if let Some(known) = self.known(clock::now()) {
            return known;
        }
        let has_value = self.begin(clock::now());
        // If the request ends before it has an answer, another one that waits goes on.
        let _first = if has_value { None } else { Some(self.first.lock().await) };
        if let Some(known) = self.known(clock::now()).filter(|_| !has_value) {
            return known;
        }
        let resolve = &resolve;
        let queries = self.names.iter().enumerate().map(async |(number, name)| {
            let query = Box::pin(resolve(number));
            match has_value {
                true => clock::timeout(LOOKUP_TIMEOUT, query)
                    .await
                    .unwrap_or_else(|| Err(format!("resolving {name} takes too long"))),
                false => query.await,
            }
        });
        let answers = all(queries.map(|query| Box::pin(query) as _).collect()).await;
        self.update(answers, derive)
    }

    /// Derives the value from these answers, one for each name, as [`CachedLookup::get`] does.
    ///
    /// # Errors
    /// See [`CachedLookup::get`].
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
            let reason = failed.unwrap_or_else(|| format!("{} has no address", self.names()));
            if state.value.is_none() {
                state.until = Some(clock::now() + NEGATIVE);
                state.failure = Some(reason.clone());
            }
            return Err(reason);
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
        state.failure = None;
        Ok(value)
    }

    /// Returns the value, or why there is none, if its time is not over.
    fn known(&self, now: Instant) -> Option<Result<Arc<D>, String>> {
        let state = self.state();
        let known = match (&state.value, &state.failure) {
            (Some(value), _) => Ok(Arc::clone(value)),
            (None, Some(reason)) => Err(reason.clone()),
            (None, None) => return None,
        };
        state.until.is_some_and(|until| now < until).then_some(known)
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

/// Returns the outputs of all futures, which make progress at the same time.
async fn all<O>(mut futures: Vec<Pin<Box<dyn Future<Output = O> + '_>>>) -> Vec<O> {
    let mut outputs: Vec<Option<O>> = futures.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(cx)
            {
                *output = Some(ready);
            }
        }
        if outputs.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use dunlin_net::clock::manual;

    use super::*;

    type Numbers = CachedLookup<u8, [u8]>;

    fn concat(answers: &[Vec<u8>], _: Option<&Arc<[u8]>>) -> Option<Arc<[u8]>> {
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
        assert_eq!(present.update(vec![no(), no()], concat), Err("no".into()));
        assert_eq!(present.last(), None);
        assert_eq!(*present.update(vec![answer(&[1]), no()], concat).unwrap(), [1]);
        assert_eq!(*present.update(vec![no(), answer(&[2])], concat).unwrap(), [1, 2]);
        assert_eq!(*present.update(vec![answer(&[3]), answer(&[])], concat).unwrap(), [3]);
        assert!(
            present.update(vec![answer(&[]), answer(&[])], concat).unwrap_err().contains("a, b")
        );
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
            present.get(resolve, concat).await
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
        assert_eq!(present.known(clock::now()), None);
        let resolve = async |_| {
            assert_eq!(present.known(clock::now()), Some(Ok([7].into())));
            no()
        };
        assert_eq!(*present.get(resolve, |_, last| last.cloned()).await.unwrap(), [7]);
        manual::advance(RETRY);
        assert_eq!(present.known(clock::now()), None);
    }

    #[tokio::test]
    async fn that_there_is_no_answer_is_kept_for_a_while() {
        let _stopped = manual::stop();
        let (present, queries) = (numbers(None), Cell::new(0));
        let get = async || {
            let resolve = async |_| {
                queries.set(queries.get() + 1);
                no()
            };
            present.get(resolve, concat).await
        };
        for _ in 0..50 {
            assert_eq!((get().await, queries.get()), (Err("no".into()), 2));
        }
        manual::advance(NEGATIVE);
        assert_eq!((get().await, queries.get()), (Err("no".into()), 4));
        manual::advance(NEGATIVE);
        let found = present.get(async |_| answer(&[1]), concat).await;
        assert_eq!((found, present.last()), (Ok([1, 1].into()), Some([1, 1].into())));
    }

    #[tokio::test]
    async fn all_names_are_resolved_at_the_same_time_and_for_all_requests_that_wait() {
        let _stopped = manual::stop();
        let (present, queries) = (numbers(None), Cell::new(0));
        let released = tokio::sync::Notify::new();
        let get = async || {
            let resolve = async |number| {
                queries.set(queries.get() + 1);
                released.notified().await;
                answer(&[number as u8])
            };
            present.get(resolve, concat).await
        };
        type Results = Vec<Option<Result<Arc<[u8]>, String>>>;
        let (mut requests, mut results): (Vec<_>, Results) =
            (0..20).map(|_| (Box::pin(get()), None)).unzip();
        let mut poll = |results: &mut Results| {
            let cx = &mut std::task::Context::from_waker(std::task::Waker::noop());
            for (request, result) in requests.iter_mut().zip(results) {
                if result.is_none()
                    && let Poll::Ready(ready) = request.as_mut().poll(cx)
                {
                    *result = Some(ready);
                }
            }
        };
        poll(&mut results);
        assert_eq!(queries.get(), 2, "one for each name");
        released.notify_waiters();
        // The lock passes from one request to the next.
        (0..2).for_each(|_| poll(&mut results));
        assert!(results.iter().all(|result| *result == Some(Ok([0, 1].into()))), "{results:?}");
        assert_eq!(queries.get(), 2);
    }

    #[tokio::test]
    async fn another_request_resolves_the_names_if_the_first_one_ends() {
        let _stopped = manual::stop();
        let present = numbers(None);
        let cx = &mut std::task::Context::from_waker(std::task::Waker::noop());
        let never = async |_| std::future::pending().await;
        let mut first = Box::pin(present.get(never, concat));
        let mut second = Box::pin(present.get(async |_| answer(&[1]), concat));
        assert!(first.as_mut().poll(cx).is_pending() && second.as_mut().poll(cx).is_pending());
        drop(first);
        assert_eq!(second.await, Ok([1, 1].into()));
    }
}
