//! Search for the highest level that holds: by doubling, then by bisection.

use crate::outcome::{Level, Search};

/// Result of a trial.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    /// Users that conformed, or requests per second that were achieved.
    pub achieved: f64,
    /// 99th percentile of the response time, in milliseconds; 0 where it has no meaning.
    pub p99_ms: f64,
    /// Memory of the server, in bytes.
    pub server_memory_bytes: Option<u64>,
    /// The reason why the level did not hold; absent if it did.
    pub fault: Option<String>,
    /// The generator was the limit, and not the server.
    pub client_bound: bool,
    /// The limit that the level met, if that is neither the server nor the generator's processors.
    pub limit: Option<String>,
}

/// Bounds of a search.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The first level.
    pub first: f64,
    /// The lowest level that can be tried.
    pub least: f64,
    /// The highest level that is tried.
    pub max: f64,
    /// Relative distance between the highest level that holds and the lowest one that fails at which the search ends: 0.02
    /// for two percent.
    pub precision: f64,
    /// Levels are integers.
    pub whole: bool,
}

/// Largest number of trials. A search that has not ended by then returns its best result.
const MOST_TRIALS: usize = 40;

/// Searches the highest level at which `trial` reports no fault. A level that fails is tried once more, so that a single
/// disturbed run does not decide.
///
/// # Errors
/// The error of a trial that cannot be run.
pub fn find<E>(
    of: &str,
    bounds: Bounds,
    mut trial: impl FnMut(f64) -> Result<Trial, E>,
) -> Result<Search, E> {
    let mut search = Search {
        of: of.to_owned(),
        found: 0.0,
        bounded: false,
        limit: None,
        unfinished: false,
        levels: Vec::new(),
    };
    let mut fails: Option<f64> = None;
    let mut level = bounds.first.min(bounds.max);
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
        if fails.is_none() && level >= bounds.max {
            search.bounded = true;
            break;
        }
        level = next;
    }
    Ok(search)
}

/// Tries a level, and once more if it fails. Returns whether it held, and whether the generator was the limit.
fn attempt<E>(
    search: &mut Search,
    level: f64,
    trial: &mut impl FnMut(f64) -> Result<Trial, E>,
) -> Result<(bool, bool), E> {
    let mut client_bound = false;
    for _ in 0..2 {
        let result = trial(level)?;
        client_bound = result.client_bound;
        let limit = result.limit;
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
        // Each level that fails is lower than those that failed before.
        search.limit = limit;
    }
    Ok((false, client_bound))
}

/// Returns the next level; `None` once the precision is reached.
fn next_level(holds: f64, fails: Option<f64>, bounds: Bounds) -> Option<f64> {
    let round = |level: f64| if bounds.whole { level.floor() } else { level };
    let Some(fails) = fails else { return Some((holds * 2.0).min(bounds.max)) };
    let middle = round(if holds == 0.0 { fails / 2.0 } else { (holds + fails) / 2.0 });
    let wide = fails - holds > bounds.precision * fails;
    let new = middle > holds && middle < fails && middle >= bounds.least;
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

    const USERS: Bounds =
        Bounds { first: 8.0, least: 1.0, max: 100_000.0, precision: 0.02, whole: true };

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
    fn a_search_that_reaches_its_bound_is_marked() {
        let found = search(Bounds { max: 500.0, ..USERS }, |_| true);
        assert_eq!((found.found, found.bounded), (500.0, true));
    }

    #[test]
    fn one_disturbed_run_in_five_does_not_decide() {
        let mut rng = SplitMix64::new(3);
        let found = search(USERS, |level| level <= 1000.0 && rng.next_f64() > 0.05);
        assert!((950.0..=1000.0).contains(&found.found), "{}", found.found);
    }
}
