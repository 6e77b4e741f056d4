//! The order of runs.

use dunlin_load::rng::SplitMix64;

/// A run of one server on one row, by index, in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) round: u32,
    pub(super) row: usize,
    pub(super) server: usize,
}

/// Orders the runs of all cells (row, server): round after round, in a random order within each round. Runs of the same
/// round are close in time, so that a disturbance of the machine affects all servers alike. `rounds` holds the number
/// of rounds of each row.
pub(super) fn interleave(cells: &[(usize, usize)], rounds: &[u32], seed: u64) -> Vec<Run> {
    let mut rng = SplitMix64::new(seed);
    let mut runs = Vec::new();
    for round in 0..rounds.iter().copied().max().unwrap_or(0) {
        let start = runs.len();
        let in_round = cells.iter().filter(|(row, _)| round < rounds[*row]);
        runs.extend(in_round.map(|&(row, server)| Run { round, row, server }));
        shuffle(&mut runs[start..], &mut rng);
    }
    runs
}

/// Fisher-Yates.
fn shuffle<T>(items: &mut [T], rng: &mut SplitMix64) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.below(last + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_runs_once_in_each_of_its_rounds() {
        let cells: Vec<(usize, usize)> = (0..12).map(|cell| (cell / 4, cell % 4)).collect();
        let runs = interleave(&cells, &[3, 1, 2], 1);
        assert_eq!(runs.len(), 4 * (3 + 1 + 2));
        assert!(runs.is_sorted_by_key(|run| run.round));
        for (index, run) in runs.iter().enumerate() {
            assert!(!runs[..index].contains(run), "{run:?}");
        }
    }

    #[test]
    fn the_order_depends_on_the_seed_alone() {
        let cells: Vec<(usize, usize)> = (0..20).map(|server| (0, server)).collect();
        assert_eq!(interleave(&cells, &[2], 7), interleave(&cells, &[2], 7));
        assert_ne!(interleave(&cells, &[2], 7), interleave(&cells, &[2], 8));
    }
}
