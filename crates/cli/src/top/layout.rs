//! How high each part of the screen is.

/// Lines of each part, from the top down.
pub(super) type Heights = [u16; 9];

const HEAD: usize = 0;
const CHARTS: usize = 1;
const FACTS: usize = 2;
const ROUTES: usize = 3;
const SCRIPTS: usize = 4;
const LIMITS: usize = 5;
const CERTIFICATES: usize = 6;
const CLIENTS: usize = 7;
const FOOT: usize = 8;

/// The frame around a part.
const FRAME: usize = 2;
/// A table with its head and one row.
const TABLE: u16 = 4;

/// Shares out a terminal of `height` lines. `lists` says how many lines there are to be told of pools of
/// scripts, limits and certificates; of nothing, nothing is shown.
///
/// What `top` is for comes first: 24 lines hold a piece of everything but limits and certificates.
pub(super) fn heights(height: u16, lists: [usize; 3]) -> Heights {
    let list = |lines: usize, most: usize| match lines.min(most) {
        0 => 0,
        lines => (lines + FRAME) as u16,
    };
    let [scripts, limits, certificates] = lists;
    let wanted = [
        (HEAD, 1),
        (FOOT, 1),
        (CHARTS, 3),
        (FACTS, 5),
        (ROUTES, TABLE),
        (CLIENTS, TABLE),
        (SCRIPTS, list(scripts, 1)),
        (FACTS, 8),
        (LIMITS, list(limits, 1)),
        (CERTIFICATES, list(certificates, 1)),
        (ROUTES, TABLE + 2),
        (CLIENTS, TABLE + 2),
        (CHARTS, 6),
        (SCRIPTS, list(scripts, 6)),
        (LIMITS, list(limits, 5)),
        (CERTIFICATES, list(certificates, 3)),
    ];
    let mut heights = [0; 9];
    let mut left = height;
    for (part, lines) in wanted {
        let more = lines - heights[part];
        // A part of which only the frame would be seen is none.
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
    fn a_small_terminal_has_a_piece_of_everything_that_is_asked_for_first() {
        let told = heights(24, [2, 9, 3]);
        assert_eq!(told, [1, 3, 8, TABLE, 3, 0, 0, TABLE, 1]);
        let without_scripts = heights(24, [0, 9, 3]);
        assert_eq!(without_scripts, [1, 3, 8, TABLE, 0, 3, 0, TABLE, 1]);
    }

    #[test]
    fn a_large_terminal_has_everything_and_routes_have_most() {
        let told = heights(60, [1, 9, 1]);
        assert_eq!((told[CHARTS], told[FACTS], told[LIMITS]), (6, 8, 7));
        assert_eq!((told[SCRIPTS], told[CERTIFICATES]), (3, 3));
        assert!(told[ROUTES] > told[CLIENTS] && told[CLIENTS] > TABLE);
    }

    #[test]
    fn no_more_lines_are_used_than_there_are_and_no_part_is_a_frame_only() {
        for height in 0..100 {
            for lists in [[0, 0, 0], [1, 1, 1], [9, 9, 9], [0, 9, 1]] {
                let told = heights(height, lists);
                let frames = &told[CHARTS..FOOT];
                assert!(frames.iter().all(|&lines| lines == 0 || lines > 2), "{height}: {told:?}");
                let used = told.iter().sum::<u16>();
                assert!(used == height || used < height && height < 9, "{height}: {told:?}");
            }
        }
    }
}
