//! What was found for the paths of recent requests.
//!
//! A search with hundreds of expressions costs more than all else that a request for a small file needs, and most requests are for
//! few paths. Each thread remembers its own: no lock is taken.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use dunlin_http::semantics::path;

/// The number of a list of expressions, which no other list of the process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ListId(u64);

impl ListId {
    pub(super) fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// The result of a search.
struct Known {
    list: ListId,
    path: Vec<u8>,
    first: Option<usize>,
}

/// Paths of a thread. Another path with the same place replaces one.
const PLACES: usize = 256;
/// Longer paths are searched for each time, in bytes.
const MAX_PATH: usize = 256;

thread_local! {
    static KNOWN: RefCell<Vec<Option<Known>>> = const { RefCell::new(Vec::new()) };
}

/// Returns the first expression of a list that matches a path: what is known of it, or the result of `search`.
pub(super) fn first(
    list: ListId,
    path: &[u8],
    search: impl FnOnce(&[u8]) -> Option<usize>,
) -> Option<usize> {
    if path.len() > MAX_PATH {
        return search(path);
    }
    let place = place(list, path);
    KNOWN.with_borrow_mut(|all| {
        if all.is_empty() {
            all.resize_with(PLACES, || None);
        }
        match &mut all[place] {
            Some(known) if known.list == list && known.path == path => known.first,
            Some(known) => {
                known.list = list;
                known.path.clear();
                known.path.extend_from_slice(path);
                known.first = search(path);
                known.first
            }
            empty => {
                let first = search(path);
                *empty = Some(Known { list, path: path.to_vec(), first });
                first
            }
        }
    })
}

/// Returns the place of a path.
fn place(list: ListId, path: &[u8]) -> usize {
    (path::quick_hash(list.0, path) >> 32) as usize % PLACES
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_known_is_what_a_search_finds(
            requests in proptest::collection::vec((0..3_usize, 0..400_usize), 1..2000),
        ) {
            let lists = [ListId::next(), ListId::next(), ListId::next()];
            for (list, number) in requests {
                let path = format!("/{}", "x".repeat(number % 7) + &number.to_string());
                // Each list finds something else.
                let search = |path: &[u8]| (path.len() + list).checked_sub(4);
                let found = first(lists[list], path.as_bytes(), search);
                prop_assert_eq!(found, search(path.as_bytes()));
            }
        }
    }

    #[test]
    fn a_path_is_searched_for_once() {
        let list = ListId::next();
        assert_eq!(first(list, b"/a", |_| Some(3)), Some(3));
        assert_eq!(first(list, b"/a", |_| panic!("it is known")), Some(3));
        assert_eq!(first(ListId::next(), b"/a", |_| None), None);
        let long = [b'x'; MAX_PATH + 1];
        assert_eq!(first(list, &long, |_| Some(1)), Some(1));
        assert_eq!(first(list, &long, |_| Some(2)), Some(2));
    }
}
