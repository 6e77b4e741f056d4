//! Heights of the parts of the screen.

/// Lines of each part, from top to bottom.
pub(super) type Heights = [u16; 10];

const HEAD: usize = 0;
const CHARTS: usize = 1;
const FACTS: usize = 2;
const ROUTES: usize = 3;
const SCRIPTS: usize = 4;
const STORES: usize = 5;
const LIMITS: usize = 6;
const CERTIFICATES: usize = 7;
const CLIENTS: usize = 8;
const FOOT: usize = 9;

/// Lines of the frame around a part.
const FRAME: usize = 2;
/// Lines of a table with its header and one row.
const TABLE: u16 = 4;

/// Distributes the `height` lines of a terminal. `lists` are the lines of script pools, object stores, limits and certificates; empty lists
/// are not shown.
///
/// The main figures have priority: 24 lines hold a part of everything but limits and certificates.
pub(super) fn heights(height: u16, lists: [usize; 4]) -> Heights {
    let list = |lines: usize, max: usize| match lines.min(max) {
        0 => 0,
        lines => (lines + FRAME) as u16,
    };
    let [scripts, stores, limits, certificates] = lists;
    let wanted = [
        (HEAD, 1),
        (FOOT, 1),
        (CHARTS, 3),
        (FACTS, 5),
        (ROUTES, TABLE),
        (CLIENTS, TABLE),
        (SCRIPTS, list(scripts, 1)),
        (FACTS, 8),
        (STORES, list(stores, 1)),
        (LIMITS, list(limits, 1)),
        (CERTIFICATES, list(certificates, 1)),
        (ROUTES, TABLE + 2),
        (CLIENTS, TABLE + 2),
        (CHARTS, 6),
        (SCRIPTS, list(scripts, 6)),
        (STORES, list(stores, 3)),
        (LIMITS, list(limits, 5)),
        (CERTIFICATES, list(certificates, 3)),
        (FACTS, 14),
    ];
    let mut heights = [0; 10];
    let mut left = height;
    for (part, lines) in wanted {
        let more = lines - heights[part];
        // Omit a part if only its frame would fit.
        if heights[part] == 0 && more > left {
            continue;
        }
        let more = more.min(left);
        heights[part] += more;
        left -= more;
    }
    if heights[ROUTES] > 0 {
        let clients = if heights[CLIENTS] > 0 { left * 2 / 5 } else { 0 };
        heights[ROUTES] += left - clients;
        heights[CLIENTS] += clients;
    }
    heights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_terminal_has_a_part_of_the_main_figures() {
        let heights_of = heights(24, [2, 1, 9, 3]);
        assert_eq!(heights_of, [1, 3, 8, TABLE, 3, 0, 0, 0, TABLE, 1]);
        let without_scripts = heights(24, [0, 0, 9, 3]);
        assert_eq!(without_scripts, [1, 3, 8, TABLE, 0, 0, 3, 0, TABLE, 1]);
    }

    #[test]
    fn a_large_terminal_has_everything_and_most_lines_for_routes() {
        let heights_of = heights(60, [1, 1, 9, 1]);
        assert_eq!((heights_of[CHARTS], heights_of[FACTS], heights_of[LIMITS]), (6, 14, 7));
        assert_eq!((heights_of[SCRIPTS], heights_of[STORES], heights_of[CERTIFICATES]), (3, 3, 3));
        assert!(heights_of[ROUTES] > heights_of[CLIENTS] && heights_of[CLIENTS] > TABLE);
    }

    #[test]
    fn lines_suffice_and_no_part_is_only_a_frame() {
        for height in 0..100 {
            for lists in [[0, 0, 0, 0], [1, 1, 1, 1], [9, 9, 9, 9], [0, 1, 9, 1]] {
                let heights_of = heights(height, lists);
                let frames = &heights_of[CHARTS..FOOT];
                assert!(
                    frames.iter().all(|&lines| lines == 0 || lines > 2),
                    "{height}: {heights_of:?}"
                );
                let used = heights_of.iter().sum::<u16>();
                assert!(used == height || used < height && height < 9, "{height}: {heights_of:?}");
            }
        }
    }
}
