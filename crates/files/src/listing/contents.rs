//! All entries of a directory in compact form, and the selection of a page from them.

use std::ops::Range;

use super::order::{Order, Sort, natural};
use super::query::Query;
use super::{Entry, PAGE, Page, Totals};

/// The entries of a directory. After [`Contents::sort`] directories come first, and both parts are sorted by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Contents {
    /// The names, one after the other.
    names: Vec<u8>,
    records: Vec<Record>,
    /// The directory has more entries.
    pub(crate) truncated: bool,
}

/// An entry whose name is in [`Contents::names`].
#[derive(Debug, Clone, Copy)]
struct Record {
    start: u32,
    length: u16,
    directory: bool,
    size: u64,
    modified: i64,
}

/// There is no page with the requested number.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoSuchPage {
    /// The number of pages, at least 1.
    pub(super) pages: usize,
}

impl Contents {
    /// Appends an entry.
    pub(crate) fn push(&mut self, name: &[u8], directory: bool, size: u64, modified: i64) {
        // No name of a file is longer than 255 bytes, and no key of an object than 1024. The caller bounds the sum of all.
        let Ok(length) = u16::try_from(name.len()) else { return };
        let Ok(start) = u32::try_from(self.names.len()) else { return };
        self.names.extend_from_slice(name);
        self.records.push(Record { start, length, directory, size, modified });
    }

    /// Sorts the entries and releases memory that they do not need.
    pub(crate) fn sort(&mut self) {
        let names = &*self.names;
        self.records.sort_unstable_by(|one, other| {
            let directories_first = other.directory.cmp(&one.directory);
            directories_first.then_with(|| natural(one.name(names), other.name(names)))
        });
        self.names.shrink_to_fit();
        self.records.shrink_to_fit();
    }

    /// Creates the same without names that begin with a dot.
    pub(super) fn without_hidden(&self) -> Self {
        let is_shown = |record: &&Record| !record.name(&self.names).starts_with(b".");
        let records = self.records.iter().filter(is_shown).copied().collect();
        Self { names: self.names.clone(), records, truncated: self.truncated }
    }

    /// Returns the bytes of memory that the entries occupy.
    pub(crate) fn bytes(&self) -> usize {
        self.names.len() + self.records.len() * size_of::<Record>()
    }

    /// Returns the names in their order.
    #[cfg(test)]
    pub(super) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.records.iter().map(|record| record.name(&self.names))
    }

    /// Returns the page that `query` requests.
    ///
    /// # Errors
    /// [`NoSuchPage`] if its number is not that of a page.
    pub(super) fn page(&self, query: &Query) -> Result<Page, NoSuchPage> {
        let mut selected = self.filtered(query);
        let pages = selected.len().div_ceil(PAGE).max(1);
        let number = query.page.filter(|number| (1..=pages).contains(number));
        let Some(number) = number else { return Err(NoSuchPage { pages }) };
        let listed = self.totals(&selected);
        let start = (number - 1) * PAGE;
        let range = start..selected.len().min(start + PAGE);
        self.move_to(range.clone(), &mut selected, query);
        Ok(Page {
            entries: selected[range].iter().map(|&at| self.entry(at)).collect(),
            number,
            pages,
            listed,
            names: self.records.len(),
            truncated: self.truncated,
        })
    }

    /// Returns all entries in one page.
    pub(super) fn whole(&self) -> Page {
        let all: Vec<u32> = (0_u32..).zip(&self.records).map(|(at, _)| at).collect();
        Page {
            entries: all.iter().map(|&at| self.entry(at)).collect(),
            number: 1,
            pages: 1,
            listed: self.totals(&all),
            names: self.records.len(),
            truncated: self.truncated,
        }
    }

    /// Returns the indices of the records whose names match the filter.
    fn filtered(&self, query: &Query) -> Vec<u32> {
        // There are fewer records than bytes, whose number fits.
        let all = (0_u32..).zip(&self.records);
        match query.matcher() {
            None => all.map(|(at, _)| at).collect(),
            Some(matcher) => all
                .filter(|(_, record)| matcher.matches(record.name(&self.names)))
                .map(|(at, _)| at)
                .collect(),
        }
    }

    fn totals(&self, selected: &[u32]) -> Totals {
        let mut totals = Totals::default();
        for &at in selected {
            let Record { directory, size, .. } = self.records[at as usize];
            if directory {
                totals.directories += 1;
            } else {
                totals.files += 1;
                totals.size = totals.size.saturating_add(size);
            }
        }
        totals
    }

    /// Moves those records to `range` that belong there in the order of `query`. This takes linear time, unlike sorting all.
    fn move_to(&self, range: Range<usize>, selected: &mut [u32], query: &Query) {
        let key = |at: &u32| {
            let record = &self.records[*at as usize];
            let value = match query.sort {
                Sort::Name => 0,
                Sort::Size => i128::from(record.size),
                Sort::Modified => record.modified.into(),
            };
            // Equal values are in the order of the names, which is that of the indices.
            (value, *at)
        };
        let compare = |one: &u32, other: &u32| {
            let is_directory = |at: &u32| self.records[*at as usize].directory;
            is_directory(other).cmp(&is_directory(one)).then_with(|| match query.order {
                Order::Ascending => key(one).cmp(&key(other)),
                Order::Descending => key(other).cmp(&key(one)),
            })
        };
        if range.is_empty() {
            return;
        }
        selected.select_nth_unstable_by(range.start, compare);
        let (rest, length) = (&mut selected[range.start..], range.len());
        rest.select_nth_unstable_by(length - 1, compare);
        rest[..length].sort_unstable_by(compare);
    }

    fn entry(&self, at: u32) -> Entry {
        let record = &self.records[at as usize];
        let Record { directory, size, modified, .. } = *record;
        Entry { name: record.name(&self.names).to_vec(), directory, size, modified }
    }
}

impl Record {
    fn name<'a>(&self, names: &'a [u8]) -> &'a [u8] {
        let start = self.start as usize;
        &names[start..start + usize::from(self.length)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(entries: &[(&str, bool, u64)]) -> Contents {
        let mut contents = Contents::default();
        for &(name, directory, size) in entries {
            contents.push(name.as_bytes(), directory, size, 1_000 - size as i64);
        }
        contents.sort();
        contents
    }

    fn page(contents: &Contents, query: &str) -> Result<Page, NoSuchPage> {
        contents.page(&Query::parse(Some(query.as_bytes())))
    }

    fn names(page: &Page) -> Vec<String> {
        let name = |entry: &Entry| String::from_utf8(entry.name.clone()).unwrap();
        page.entries.iter().map(name).collect()
    }

    #[test]
    fn directories_come_first_in_every_order() {
        let contents = contents(&[
            ("b", false, 1),
            ("A", false, 2),
            ("z", true, 0),
            ("y", true, 0),
            ("file-10", false, 3),
            ("file-9", false, 3),
        ]);
        for (query, expected) in [
            ("", "y z A b file-9 file-10"),
            ("order=desc", "z y file-10 file-9 b A"),
            ("sort=size", "y z b A file-9 file-10"),
            ("sort=size&order=desc", "z y file-10 file-9 A b"),
            ("sort=modified", "y z file-9 file-10 A b"),
            ("filter=FILE", "file-9 file-10"),
            ("filter=z", "z"),
            ("filter=none", ""),
        ] {
            let page = page(&contents, query).unwrap();
            assert_eq!(names(&page).join(" "), expected, "{query}");
            assert_eq!((page.number, page.pages, page.names), (1, 1, 6));
        }
        let listed = page(&contents, "filter=file").unwrap().listed;
        assert_eq!(listed, Totals { directories: 0, files: 2, size: 6 });
    }

    #[test]
    fn the_pages_of_every_order_have_each_name_once() {
        let entries: Vec<_> = (0..2 * PAGE as u64 + 1)
            .map(|number| (format!("n{}", number * 7919 % 10_007), number % 5 == 0, number % 3))
            .collect();
        let entries: Vec<_> =
            entries.iter().map(|(name, directory, size)| (&**name, *directory, *size)).collect();
        let contents = contents(&entries);
        for query in ["", "order=desc", "sort=size", "sort=size&order=desc", "sort=modified"] {
            let pages: Vec<_> = (1..=3)
                .map(|number| page(&contents, &format!("{query}&page={number}")).unwrap())
                .collect();
            assert_eq!(pages.iter().map(|page| page.entries.len()).max(), Some(PAGE));
            let all: Vec<_> = pages.iter().flat_map(|page| page.entries.clone()).collect();
            let sort = Query::parse(Some(query.as_bytes())).sort;
            let key = |entry: &Entry| match sort {
                Sort::Name => 0,
                Sort::Size => i128::from(entry.size),
                Sort::Modified => entry.modified.into(),
            };
            let is_sorted = all.windows(2).all(|pair| {
                let [one, other] = pair else { unreachable!() };
                let by_name = natural(&one.name, &other.name);
                let order = key(one).cmp(&key(other)).then(by_name);
                let order = if query.contains("desc") { order.reverse() } else { order };
                other.directory.cmp(&one.directory).then(order).is_lt()
            });
            assert!(is_sorted && all.len() == entries.len(), "{query}");
        }
    }

    #[test]
    fn a_page_that_does_not_exist_is_an_error() {
        let empty = Contents::default();
        assert!(page(&empty, "").unwrap().entries.is_empty());
        for query in ["page=0", "page=2", "page=x", "page=", "page=-1", "page=99999999999999999999"]
        {
            assert_eq!(page(&empty, query).unwrap_err(), NoSuchPage { pages: 1 }, "{query}");
        }
    }
}
