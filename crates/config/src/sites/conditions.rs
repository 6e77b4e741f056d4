//! The routes of a site that a path alone does not decide about.

use super::merging::mounts;
use crate::path_regex::RegexList;
use crate::pattern::Pattern;
use crate::route_table::RouteTable;
use crate::site_route::SiteRoute;

/// The routes of a site that a path alone does not decide about.
#[derive(Debug)]
pub(super) struct Conditions {
    /// Indexes of those with patterns by the paths that they match.
    pub(super) by_path: RouteTable<Vec<usize>>,
    /// Those with regular expressions: the index of each.
    pub(super) regexes: Vec<usize>,
    pub(super) list: RegexList,
    /// Settings that the table of a variant has at most.
    pub(super) cells: usize,
}

/// A variant of a site has at most this many settings, unless there are few variants.
const MAX_CELLS: usize = 2_048;
/// All variants of a site have at most this many settings.
pub(super) const MAX_VARIANT_CELLS: usize = 1 << 15;

impl Conditions {
    /// Returns the routes with conditions; `None` if there are none.
    ///
    /// # Errors
    /// There are too many patterns.
    pub(super) fn new(routes: &[SiteRoute]) -> Result<Option<Self>, String> {
        let conditional = || routes.iter().enumerate().filter(|(_, route)| route.is_conditional());
        if conditional().next().is_none() {
            return Ok(None);
        }
        let has_regex = |at: &usize| routes[*at].pattern.regex().is_some();
        let indexes = conditional().map(|(at, _)| at);
        let (regexes, plain): (Vec<usize>, Vec<usize>) = indexes.partition(has_regex);
        let patterns: Vec<&Pattern> = plain.iter().map(|&at| &routes[at].pattern).collect();
        let by_path: RouteTable<Vec<usize>> =
            RouteTable::new(&patterns, |matching| matching.iter().map(|&at| plain[at]).collect())?;
        let cells = cells(routes)?;
        // Of the routes for the values of a map, one applies.
        let is_choice =
            |at: &&usize| routes[**at].when.as_ref().is_some_and(|when| when.is_choice());
        let free = |all: &[usize]| all.iter().filter(|at| !is_choice(at)).count();
        let most = by_path.values().map(|routes| free(routes)).max().unwrap_or(0) + free(&regexes);
        let variants = 1_usize.checked_shl(most as u32).unwrap_or(usize::MAX);
        if cells > MAX_CELLS && cells.saturating_mul(variants) > MAX_VARIANT_CELLS {
            return Err(format!(
                "the patterns have {cells} pairs of a beginning and an end, and up to {most} routes with `when` apply to a path: \
                 write fewer patterns with text on both sides of `*`, or fewer conditions"
            ));
        }
        let list = RegexList::new(regexes.iter().filter_map(|&at| routes[at].pattern.regex()))?;
        Ok(Some(Self { by_path, regexes, list, cells }))
    }
}

/// Returns the number of settings that the table of all routes has.
///
/// # Errors
/// There are too many patterns.
fn cells(routes: &[SiteRoute]) -> Result<usize, String> {
    let all: Vec<&SiteRoute> = routes.iter().collect();
    let mounts = mounts(&all);
    let patterns: Vec<&Pattern> = all.iter().map(|route| &route.pattern).chain(&mounts).collect();
    Ok(RouteTable::new(&patterns, |_| ())?.values().count())
}
