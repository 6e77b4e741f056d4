//! Directory listings as HTML and as JSON.

mod order;
mod page;
pub mod respond;

use std::ffi::CStr;
use std::fs::File;
use std::io;

use dunlin_http::semantics::date;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2, statat,
};
use serde_json::json;

use order::{Order, Sort};

/// The entries of a directory.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) entries: Vec<Entry>,
    /// There are more entries.
    pub(crate) truncated: bool,
}

/// A directory entry.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) directory: bool,
    pub(crate) size: u64,
    /// Seconds since 1970.
    pub(crate) modified: u64,
}

/// How symlinks are listed: a listing must not reveal targets that requests cannot reach.
#[derive(Debug)]
pub(crate) enum Links<'a> {
    /// Omitted.
    Omit,
    /// Listed as their targets, if these are beneath `root`.
    Beneath {
        /// The root of the route.
        root: OwnedFd,
        /// Path of the directory beneath the root, with a final slash unless it is empty.
        path: &'a [u8],
    },
    /// Listed as their targets.
    Follow,
}

/// Reads the regular files and directories of `directory`, at most `max` names. Omits names that begin with a dot unless
/// `hidden` is set, and names for which `is_omitted` returns true.
///
/// # Errors
/// When the directory cannot be read.
pub(crate) fn read(
    directory: &File,
    hidden: bool,
    links: &Links<'_>,
    max: usize,
    is_omitted: &dyn Fn(&Stat) -> bool,
) -> io::Result<Listing> {
    let mut listing = Listing { entries: Vec::new(), truncated: false };
    let mut names = 0;
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") || !hidden && name.starts_with(b".") {
            continue;
        }
        if names == max {
            listing.truncated = true;
            break;
        }
        names += 1;
        // The name may have been removed, or be a dangling symlink.
        let Some(stat) = links.stat(directory, entry.file_name()) else { continue };
        let directory = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => true,
            FileType::RegularFile if is_omitted(&stat) => continue,
            FileType::RegularFile => false,
            _ => continue,
        };
        listing.entries.push(Entry {
            name: name.to_vec(),
            directory,
            size: if directory { 0 } else { stat.st_size.max(0) as u64 },
            modified: stat.st_mtime.max(0) as u64,
        });
    }
    Ok(listing)
}

impl Links<'_> {
    /// The type of `name`, through a symlink if that is permitted.
    fn stat(&self, directory: &File, name: &CStr) -> Option<Stat> {
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return Some(stat);
        }
        match self {
            Self::Omit => None,
            Self::Follow => statat(directory, name, AtFlags::empty()).ok(),
            Self::Beneath { root, path } => {
                let path = [path, name.to_bytes()].concat();
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
                fstat(openat2(root.as_fd(), path, flags, Mode::empty(), resolve).ok()?).ok()
            }
        }
    }
}

/// The listing as JSON.
pub(crate) fn json(listing: &mut Listing, path: &[u8], sort: Sort, order: Order) -> String {
    order::sort(&mut listing.entries, sort, order);
    let entries: Vec<_> = listing
        .entries
        .iter()
        .map(|entry| {
            json!({
                "name": String::from_utf8_lossy(&entry.name),
                "type": if entry.directory { "directory" } else { "file" },
                "size": entry.size,
                "modified": timestamp(entry.modified),
                "href": page::href(entry), // always valid, even if the name is not UTF-8
            })
        })
        .collect();
    let path = String::from_utf8_lossy(path);
    json!({ "path": path, "entries": entries, "truncated": listing.truncated }).to_string()
}

/// RFC 3339 in UTC.
fn timestamp(unix: u64) -> String {
    let (year, month, day) = date::civil_from_days(unix / 86_400);
    let (hour, minute, second) = (unix / 3600 % 24, unix / 60 % 60, unix % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::page::{CSP, View, html};
    use super::*;

    fn entry(name: &str, directory: bool, size: u64) -> Entry {
        Entry { name: name.into(), directory, size, modified: size }
    }

    fn view(path: &[u8]) -> View<'_> {
        View { path, host: b"<h>", sort: Sort::Name, order: Order::Ascending }
    }

    #[test]
    fn the_page_counts_what_it_lists_and_names_the_host() {
        let entries = vec![entry("a", true, 0), entry("b", false, 1), entry("c", false, 2_999)];
        let page = html(&mut Listing { entries, truncated: false }, view(b"/x/"));
        assert!(page.contains(">1 folder, 2 files, 3.0 KB</p>"), "{page}");
        assert!(page.contains("<title>/x/ \u{2013} &lt;h&gt;</title>"), "{page}");
        assert!(page.contains("<h1><a href=\"../\">&lt;h&gt;/</a><span>x/</span></h1>"), "{page}");
        let mut one = Listing { entries: vec![entry("b", false, 1)], truncated: false };
        let page = html(&mut one, view(b"/"));
        assert!(
            page.contains(">1 file, 1 B</p>") && page.contains("<h1><span>&lt;h&gt;/</span></h1>")
        );
        one.truncated = true;
        assert!(html(&mut one, view(b"/")).contains(">The first 1 name of a larger directory</p>"));
        one = Listing { entries: vec![], truncated: false };
        assert!(html(&mut one, view(b"/")).contains(">Empty directory</p>"));
    }

    #[test]
    fn listings_are_sorted_with_directories_first_and_names_cannot_break_out() {
        let entries = vec![
            entry("b", false, 1),
            entry("A", false, 2),
            entry("z", true, 0),
            entry("<script>\"&", false, 3),
            entry("a:b", false, 4),
        ];
        let mut listing = Listing { entries, truncated: true };
        let text = json(&mut listing, b"/x/", Sort::Size, Order::Descending);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let names: Vec<_> = value["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| e["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["z", "a:b", "<script>\"&", "A", "b"]);
        let page = html(&mut listing, view(b"/x/<y>/"));
        assert!(!page.contains("<script>\"") && !page.contains("<y>"));
        assert!(page.contains("href=\"./a:b\""), "the colon must not be read as a scheme: {page}");
        assert!(page.contains("href=\"./%3Cscript%3E%22&amp;\""));
        assert_eq!(
            Sort::from_query(Some(b"order=desc&sort=size")),
            (Sort::Size, Order::Descending)
        );
    }

    #[test]
    fn symlinks_are_listed_only_where_they_would_be_served() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
        std::fs::create_dir_all(root.join("sub")).unwrap();
        for path in [&outside, &root.join("inside"), &root.join("sub/file")] {
            std::fs::write(path, "x").unwrap();
        }
        symlink("../../outside", root.join("sub/out")).unwrap();
        symlink("../inside", root.join("sub/in")).unwrap();
        symlink("nowhere", root.join("sub/broken")).unwrap();
        let directory = File::open(root.join("sub")).unwrap();
        let names = |links: &Links<'_>| {
            let listing = read(&directory, false, links, 100, &|_| false).unwrap();
            let names = listing.entries.into_iter().map(|e| String::from_utf8(e.name).unwrap());
            let mut names: Vec<_> = names.collect();
            names.sort();
            names
        };
        assert_eq!(names(&Links::Omit), ["file"]);
        let beneath = Links::Beneath { root: File::open(&root).unwrap().into(), path: b"sub/" };
        assert_eq!(names(&beneath), ["file", "in"]);
        assert_eq!(names(&Links::Follow), ["file", "in", "out"]);
        assert!(read(&directory, false, &Links::Omit, 1, &|_| false).unwrap().truncated);
    }

    #[test]
    fn a_name_that_is_not_utf_8_is_linked_exactly() {
        let entries = vec![Entry { name: b"\xff\xe2\x81\xa6".into(), ..entry("", false, 1) }];
        let mut listing = Listing { entries, truncated: false };
        let page = html(&mut listing, view(b"/"));
        assert!(
            page.contains("href=\"./%FF%E2%81%A6\"><svg aria-hidden=\"true\"><use href=\"#f\"/></svg><bdi>\u{fffd}\u{fffd}</bdi></a>"),
            "{page}"
        );
        let text = json(&mut listing, b"/", Sort::Name, Order::Ascending);
        assert!(text.contains("\"href\":\"./%FF%E2%81%A6\""), "{text}");
    }

    #[test]
    fn the_policy_allows_exactly_the_inline_texts() {
        use sha2::{Digest, Sha256};
        let mut listing = Listing { entries: vec![], truncated: false };
        let page = html(&mut listing, view(b"/"));
        for tag in ["style", "script"] {
            let start = page.find(&format!("<{tag}>")).unwrap() + tag.len() + 2;
            let end = page.find(&format!("</{tag}>")).unwrap();
            let digest: [u8; 32] = Sha256::digest(&page[start..end]).into();
            let hash = dunlin_http::semantics::digest::base64(&digest);
            assert!(CSP.contains(&format!("{tag}-src 'sha256-{hash}'")), "{tag}");
        }
    }
}
