//! Heights of the parts of the screen.

/// Lines of each part, from top to bottom.
pub(super) type Heights = [u16; 11];

/// What the parts have to show.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Lines of the longest block of facts.
    pub(super) facts: usize,
    pub(super) routes: usize,
    /// Lines of script pools.
    pub(super) scripts: usize,
    pub(super) upstreams: usize,
    /// Lines of object stores.
    pub(super) stores: usize,
    pub(super) limits: usize,
    pub(super) certificates: usize,
    pub(super) clients: usize,
}

const HEAD: usize = 0;
const CHARTS: usize = 1;
const FACTS: usize = 2;
const ROUTES: usize = 3;
const SCRIPTS: usize = 4;
const UPSTREAMS: usize = 5;
const STORES: usize = 6;
const LIMITS: usize = 7;
const CERTIFICATES: usize = 8;
const CLIENTS: usize = 9;
const FOOT: usize = 10;

/// Lines of the frame around a part.
const FRAME: usize = 2;
/// Lines of a table with its header and one row.
const TABLE: u16 = 4;

/// Distributes the `height` lines of a terminal. Empty lists are not shown.
///
/// Routes have priority over what is only counted: 24 lines hold the main figures, eight routes, and an upstream or a pool of
/// scripts. No part but routes, which get what is left, has more lines than it can fill.
pub(super) fn heights(height: u16, counts: &Counts) -> Heights {
    let list = |lines: usize, max: usize| match lines.min(max) {
        0 => 0,
        lines => (lines + FRAME) as u16,
    };
    let table = |rows: usize, max: usize| TABLE - 1 + rows.clamp(1, max) as u16;
    let facts = |max: u16| max.min(counts.facts as u16 + FRAME as u16);
    let wanted = [
        (HEAD, 1),
        (FOOT, 1),
        (CHARTS, 3),
        (FACTS, 5),
        (ROUTES, TABLE),
        (UPSTREAMS, list(counts.upstreams, 1)),
        (ROUTES, table(counts.routes, 8)),
        (SCRIPTS, list(counts.scripts, 1)),
        (ROUTES, table(counts.routes, 11)),
        (CLIENTS, TABLE),
        (STORES, list(counts.stores, 1)),
        (LIMITS, list(counts.limits, 1)),
        (CERTIFICATES, list(counts.certificates, 1)),
        (FACTS, facts(8)),
        (CLIENTS, table(counts.clients, 3)),
        (CHARTS, 6),
        (SCRIPTS, list(counts.scripts, 6)),
        (UPSTREAMS, list(counts.upstreams, 4)),
        (STORES, list(counts.stores, 3)),
        (LIMITS, list(counts.limits, 5)),
        (CERTIFICATES, list(counts.certificates, 3)),
        (FACTS, facts(14)),
        (ROUTES, table(counts.routes, 20)),
        (CLIENTS, table(counts.clients, 10)),
    ];
    let mut heights = [0; 11];
    let mut left = height;
    for (part, lines) in wanted {
        let more = lines.saturating_sub(heights[part]);
        // Omit a part if only its frame would fit.
        if heights[part] == 0 && more > left {
            continue;
        }
        let more = more.min(left);
        heights[part] += more;
        left -= more;
    }
    if heights[ROUTES] > 0 {
        heights[ROUTES] += left;
    }
    heights
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: Counts = Counts {
        facts: 12,
        routes: 11,
        scripts: 1,
        upstreams: 2,
        stores: 1,
        limits: 9,
        certificates: 1,
        clients: 1,
    };

    #[test]
    fn a_small_terminal_has_the_main_figures_and_eight_or_all_routes() {
        assert_eq!(heights(24, &COUNTS), [1, 3, 5, TABLE + 7, 0, 3, 0, 0, 0, 0, 1]);
        let heights_of = heights(24, &Counts { upstreams: 0, ..COUNTS });
        assert_eq!(heights_of, [1, 3, 5, TABLE + 7, 3, 0, 0, 0, 0, 0, 1]);
        let alone = heights(24, &Counts { scripts: 0, upstreams: 0, ..COUNTS });
        assert_eq!(alone, [1, 3, 5, TABLE + 10, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn a_large_terminal_has_everything_and_no_empty_lines_but_below_routes() {
        let heights_of = heights(60, &COUNTS);
        assert_eq!((heights_of[CHARTS], heights_of[FACTS], heights_of[LIMITS]), (6, 14, 7));
        assert_eq!((heights_of[SCRIPTS], heights_of[STORES], heights_of[CERTIFICATES]), (3, 3, 3));
        assert_eq!((heights_of[UPSTREAMS], heights_of[CLIENTS]), (4, TABLE));
        assert!(usize::from(heights_of[ROUTES]) >= COUNTS.routes + 3);
        let few = heights(60, &Counts { facts: 4, ..COUNTS });
        assert_eq!(few[FACTS], 6);
    }

    #[test]
    fn lines_suffice_and_no_part_is_only_a_frame() {
        for height in 0..100 {
            for lines in [0, 1, 9] {
                let counts = Counts {
                    scripts: lines,
                    upstreams: lines,
                    stores: lines,
                    limits: lines,
                    ..COUNTS
                };
                let heights_of = heights(height, &counts);
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
