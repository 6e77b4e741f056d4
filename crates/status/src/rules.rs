//! The rules by which the values of several servers add up.

use std::collections::HashMap;
use std::hash::Hash;

/// A value that adds up.
pub(crate) trait Summed {
    fn add(&mut self, of: &Self);
}

/// An entry of a list.
pub(crate) trait Keyed: Summed + Clone {
    /// Returns what identifies the entry in the lists of all servers.
    fn key(&self) -> impl Hash + Eq;
}

/// The rule of counts and lists.
pub(crate) fn add<T: Summed>(sum: &mut T, of: &T) {
    sum.add(of);
}

/// The rule of histograms, whose buckets are in the order of their bounds.
pub(crate) fn histogram(sum: &mut Vec<(u64, u64)>, of: &Vec<(u64, u64)>) {
    sum.add(of);
    sum.sort_unstable();
}

/// The rule of what is true if it is for all servers.
pub(crate) fn all(sum: &mut bool, of: &bool) {
    *sum &= *of;
}

/// The rule of what is the same for all servers, or stands for one.
pub(crate) fn keep<T>(_: &mut T, _: &T) {}

/// The rule of errors: the first one.
pub(crate) fn first(sum: &mut Option<String>, of: &Option<String>) {
    if sum.is_none() {
        sum.clone_from(of);
    }
}

/// The rule of the longest duration and the last time.
pub(crate) fn largest<T: PartialOrd + Copy>(sum: &mut T, of: &T) {
    if *of > *sum {
        *sum = *of;
    }
}

/// The rule of the first time.
pub(crate) fn smallest<T: PartialOrd + Copy>(sum: &mut T, of: &T) {
    if *of < *sum {
        *sum = *of;
    }
}

/// The rule of the first time that is known.
pub(crate) fn earliest(sum: &mut Option<f64>, of: &Option<f64>) {
    match (sum.as_mut(), of) {
        (Some(sum), Some(of)) => smallest(sum, of),
        (None, _) => *sum = *of,
        (Some(_), None) => {}
    }
}

impl Summed for u64 {
    fn add(&mut self, of: &Self) {
        *self = self.saturating_add(*of);
    }
}

impl Summed for usize {
    fn add(&mut self, of: &Self) {
        *self = self.saturating_add(*of);
    }
}

impl Summed for f64 {
    fn add(&mut self, of: &Self) {
        // JSON has no infinity.
        let sum = *self + of;
        if sum.is_finite() {
            *self = sum;
        }
    }
}

/// A text of a list, such as a name of a certificate.
impl Summed for String {
    fn add(&mut self, _: &Self) {}
}

impl<N> Summed for (N, u64) {
    fn add(&mut self, of: &Self) {
        self.1.add(&of.1);
    }
}

impl<T: Summed + Clone> Summed for Option<T> {
    fn add(&mut self, of: &Self) {
        match (self.as_mut(), of) {
            (Some(sum), Some(of)) => sum.add(of),
            (None, _) => self.clone_from(of),
            (Some(_), None) => {}
        }
    }
}

impl Keyed for String {
    fn key(&self) -> impl Hash + Eq {
        self
    }
}

impl<N: Hash + Eq + Clone> Keyed for (N, u64) {
    fn key(&self) -> impl Hash + Eq {
        &self.0
    }
}

impl<T: Keyed> Summed for Vec<T> {
    fn add(&mut self, of: &Self) {
        let places: Vec<_> = {
            let known: HashMap<_, _> = keys(self).zip(0..).collect();
            keys(of).map(|key| known.get(&key).copied()).collect()
        };
        for (entry, place) in of.iter().zip(places) {
            match place.and_then(|place: usize| self.get_mut(place)) {
                Some(sum) => sum.add(entry),
                None => self.push(entry.clone()),
            }
        }
    }
}

/// Returns the keys of a list, numbered: the second entry of a key belongs to the second one of another list.
fn keys<T: Keyed>(list: &[T]) -> impl Iterator<Item = (impl Hash + Eq, usize)> {
    let mut seen = HashMap::new();
    list.iter().map(move |entry| {
        let nth = seen.entry(entry.key()).or_insert(0);
        *nth += 1;
        (entry.key(), *nth)
    })
}
