//! Finding the highest level that holds: by doubling, then by halving what is left.

use crate::outcome::{Level, Search};

/// What one trial showed.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    /// Users that conformed, or requests per second that were achieved.
    pub achieved: f64,
    /// 99th percentile of the response time, in milliseconds; 0 where it has no meaning.
    pub p99_ms: f64,
    /// Memory of the server, in bytes.
    pub server_memory_bytes: Option<u64>,
    /// Why the level did not hold; absent when it did.
    pub fault: Option<String>,
    /// The generator, not the server, could do no more.
    pub client_bound: bool,
}

/// Where to look.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The first level that is tried.
    pub first: f64,
    /// No level above it is tried.
    pub most: f64,
    /// The search ends when the lowest level that fails is so much above the highest that holds: 0.02 for
    /// two in a hundred.
    pub precision: f64,
    /// Levels are whole numbers.
    pub whole: bool,
}

/// Trials in all; a search that has not ended by then tells what it has.
const MOST_TRIALS: usize = 40;

/// Looks for the highest level at which `trial` finds no fault. A level that fails is tried once more, so
/// that one unlucky run does not decide.
///
/// # Errors
/// What a trial could not be run for.
pub fn find<E>(
    of: &str,
    bounds: Bounds,
    mut trial: impl FnMut(f64) -> Result<Trial, E>,
) -> Result<Search, E> {
    let mut search = Search {
        of: of.to_owned(),
        found: 0.0,
        bounded: false,
        unfinished: false,
        levels: Vec::new(),
    };
    let mut fails: Option<f64> = None;
    let mut level = bounds.first.min(bounds.most);
    loop {
        if search.levels.len() >= MOST_TRIALS {
            search.unfinished = true;
            break;
        }
        let (held, client_bound) = attempt(&mut search, level, &mut trial)?;
        if held {
            search.found = level;
        } else {
            fails = Some(level);
            search.bounded = client_bound;
        }
        let Some(next) = next_level(search.found, fails, bounds) else { break };
        if fails.is_none() && level >= bounds.most {
            search.bounded = true;
            break;
        }
        level = next;
    }
    Ok(search)
}

/// Tries a level, once more when it fails: whether it held, and whether the generator was the limit.
fn attempt<E>(
    search: &mut Search,
    level: f64,
    trial: &mut impl FnMut(f64) -> Result<Trial, E>,
) -> Result<(bool, bool), E> {
    let mut client_bound = false;
    for _ in 0..2 {
        let result = trial(level)?;
        client_bound = result.client_bound;
        let held = result.fault.is_none();
        search.levels.push(Level {
            level,
            held,
            achieved: result.achieved,
            p99_ms: result.p99_ms,
            server_memory_bytes: result.server_memory_bytes,
            why: result.fault.unwrap_or_default(),
        });
        if held {
            return Ok((true, client_bound));
        }
    }
    Ok((false, client_bound))
}

/// The level to try next; `None` when what is left is within the precision.
fn next_level(holds: f64, fails: Option<f64>, bounds: Bounds) -> Option<f64> {
    let round = |level: f64| if bounds.whole { level.floor() } else { level };
    let Some(fails) = fails else { return Some((holds * 2.0).min(bounds.most)) };
    let middle = round(if holds == 0.0 { fails / 2.0 } else { (holds + fails) / 2.0 });
    let wide = fails - holds > bounds.precision * fails;
    let new = middle > holds && middle < fails && middle >= if bounds.whole { 1.0 } else { 1e-3 };
    (wide && new).then_some(middle)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::rng::SplitMix64;

    fn search(bounds: Bounds, mut holds: impl FnMut(f64) -> bool) -> Search {
        let trial = |level: f64| {
            let fault = (!holds(level)).then(|| "too much".to_owned());
            Ok::<_, Infallible>(Trial { achieved: level, fault, ..Trial::default() })
        };
        find("users", bounds, trial).unwrap_or_else(|never| match never {})
    }

    const USERS: Bounds = Bounds { first: 8.0, most: 100_000.0, precision: 0.02, whole: true };

    #[test]
    fn the_capacity_is_found_within_the_precision_in_few_trials() {
        for capacity in [1.0, 3.0, 8.0, 137.0, 1000.0, 4242.0] {
            let found = search(USERS, |level| level <= capacity);
            let near = found.found <= capacity && found.found >= capacity * 0.97 - 1.0;
            assert!(near, "{} for {capacity}", found.found);
            assert!(found.levels.len() <= 30, "{} trials", found.levels.len());
            assert!(!found.bounded);
        }
        assert_eq!(search(USERS, |_| false).found, 0.0);
    }

    #[test]
    fn a_search_that_meets_its_own_bound_says_so() {
        let found = search(Bounds { most: 500.0, ..USERS }, |_| true);
        assert_eq!((found.found, found.bounded), (500.0, true));
    }

    #[test]
    fn one_unlucky_run_in_five_does_not_decide() {
        let mut rng = SplitMix64::new(3);
        let found = search(USERS, |level| level <= 1000.0 && rng.next_f64() > 0.05);
        assert!((950.0..=1000.0).contains(&found.found), "{}", found.found);
    }
}
