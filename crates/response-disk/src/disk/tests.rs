//! Tests of a directory with files that are damaged, replaced and removed.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use bytes::Bytes;
use dunlin_http::{FieldLines, Head, Limits, Method, OwnedRequest, Request, http1};
use dunlin_response_cache::freshness::Received;
use dunlin_response_cache::memory::Purge;
use dunlin_response_cache::presented::Unchanged;
use dunlin_response_cache::storable::{Requested, Rules};
use dunlin_response_cache::stored::StoredHead;
use tempfile::TempDir;

use super::*;
use crate::scan;

const SITE: usize = 1;

fn now() -> Now {
    Now { monotonic: 1_000_000, unix: 784_111_777_000 }
}

fn request(lines: &str) -> OwnedRequest {
    let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let mut head = Head::default();
    let length =
        http1::Http1Connection::default().head(text.as_bytes(), &Limits::default(), &mut head);
    assert_eq!(length.ok().flatten(), Some(text.len()));
    Request::new(text.as_bytes(), &head).to_owned()
}

fn stored(lines: &str, fields: &[(&str, &str)], body: &[u8]) -> Stored {
    let requested = Requested { method: Method::Get, is_authenticated: false, no_store: false };
    let rules = Rules { set_cookie: false, is_heuristic: true, lifetime: None, max_body: 1 << 20 };
    let received = Received { date: None, unix: 784_111_777, at: 1_000_000, delay: 0 };
    let mut all = FieldLines::new();
    all.push("Cache-Control", "max-age=60");
    fields.iter().for_each(|(name, value)| all.push(name, value));
    let request = request(lines);
    let head =
        StoredHead::new(requested, &Unchanged(request.as_request()), (200, &all), received, &rules)
            .unwrap();
    Stored { head, body: Bytes::copy_from_slice(body) }
}

fn key(url: &str) -> Key {
    Key { site: SITE, url: url.as_bytes().into() }
}

/// Returns a disk that has read its directory.
fn opened(directory: &TempDir, bytes: u64) -> Arc<Disk> {
    let disk = Disk::new(directory.path().join("cache"), (bytes, 1000), [SITE, 2]);
    read_all(&disk);
    disk
}

fn read_all(disk: &Arc<Disk>) {
    scan::run(&Arc::downgrade(disk), now);
}

fn body(disk: &Disk, url: &str, lines: &str) -> Option<String> {
    let Found::File { number, bytes } =
        disk.find(&key(url), &Unchanged(request(lines).as_request()))
    else {
        return None;
    };
    let stored = disk.read(&key(url), (number, bytes), now())?;
    Some(String::from_utf8_lossy(&stored.body).into())
}

/// Returns all files of responses.
fn files(directory: &TempDir) -> Vec<PathBuf> {
    let folders = fs::read_dir(directory.path().join("cache")).unwrap();
    let folders = folders.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap());
    files.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn responses_are_found_by_the_next_process() {
    let directory = TempDir::new().unwrap();
    let disk = opened(&directory, 1 << 20);
    let vary = [("Vary", "A")];
    disk.write(&key("u"), &stored("A: 1\r\n", &vary, b"one"), now());
    disk.write(&key("u"), &stored("A: 2\r\n", &vary, b"two"), now());
    disk.write(&key("v"), &stored("", &[], b"v"), now());
    for _ in 0..2 {
        disk.write(&key("u"), &stored("A: 2\r\n", &vary, b"new"), now());
    }
    assert_eq!(files(&directory).len(), 3);
    let before = disk.usage();
    drop(disk);
    let disk = opened(&directory, 1 << 20);
    assert_eq!((disk.usage(), before), ((3 * 4096, 2), (3 * 4096, 2)));
    assert_eq!(body(&disk, "u", "A: 1\r\n").as_deref(), Some("one"));
    assert_eq!(body(&disk, "u", "A: 2\r\n").as_deref(), Some("new"));
    assert_eq!(body(&disk, "v", "").as_deref(), Some("v"));
    let found = disk.find(&key("u"), &Unchanged(request("A: 3\r\n").as_request()));
    assert_eq!(found, Found::OtherVariants);
}

#[test]
fn files_are_for_their_owner_alone() {
    let directory = TempDir::new().unwrap();
    let disk = opened(&directory, 1 << 20);
    disk.write(&key("u"), &stored("", &[], b"u"), now());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let [file] = &files(&directory)[..] else { panic!("one file") };
    assert_eq!(mode(file), 0o600);
    assert_eq!(mode(file.parent().unwrap()), 0o700);
    assert_eq!(mode(&directory.path().join("cache")), 0o700);
}

#[test]
fn damaged_files_are_no_responses_and_are_removed() {
    let damage: [fn(&Path); 6] = [
        |path| fs::write(path, &fs::read(path).unwrap()[..100]).unwrap(),
        |path| fs::write(path, [&fs::read(path).unwrap()[..], b"x"].concat()).unwrap(),
        |path| {
            let mut bytes = fs::read(path).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            fs::write(path, bytes).unwrap();
        },
        |path| fs::write(path, "").unwrap(),
        |path| fs::write(path, "something else").unwrap(),
        |path| {
            fs::remove_file(path).unwrap();
            symlink("/dev/zero", path).unwrap();
        },
    ];
    for (number, damage) in damage.into_iter().enumerate() {
        for restarts in [false, true] {
            let directory = TempDir::new().unwrap();
            let mut disk = opened(&directory, 1 << 20);
            disk.write(&key("u"), &stored("", &[], b"hello"), now());
            damage(&files(&directory)[0]);
            if restarts {
                drop(disk);
                disk = opened(&directory, 1 << 20);
            }
            assert_eq!(body(&disk, "u", ""), None, "{number} {restarts}");
            assert_eq!(disk.usage(), (0, 0), "{number} {restarts}");
            assert!(files(&directory).is_empty(), "{number} {restarts}");
            assert_eq!(disk.counters.damaged.load(Ordering::Relaxed), 1, "{number} {restarts}");
            disk.write(&key("u"), &stored("", &[], b"again"), now());
            assert_eq!(body(&disk, "u", "").as_deref(), Some("again"));
        }
    }
}

#[test]
fn the_file_of_another_response_is_not_used() {
    let directory = TempDir::new().unwrap();
    let disk = opened(&directory, 1 << 20);
    disk.write(&key("u"), &stored("", &[], b"u"), now());
    let [file] = &files(&directory)[..] else { panic!("one file") };
    let copy = fs::read(file).unwrap();
    disk.write(&key("v"), &stored("", &[], b"v"), now());
    let files = files(&directory);
    let other = files.iter().find(|other| *other != file).unwrap();
    fs::write(other, copy).unwrap();
    assert_eq!(body(&disk, "v", ""), None);
    assert_eq!(body(&disk, "u", "").as_deref(), Some("u"));
}

#[test]
fn the_bounds_hold_also_when_they_are_smaller_than_before() {
    let directory = TempDir::new().unwrap();
    let disk = opened(&directory, 100_000);
    let content = vec![b'x'; 9_000];
    let occupied =
        || files(&directory).iter().map(|file| fs::metadata(file).unwrap().size()).sum::<u64>();
    for number in 0..50 {
        let url = format!("u{number}");
        // It is used more often than those before.
        (0..number).for_each(|_| disk.count(&key(&url)));
        disk.write(&key(&url), &stored("", &[], &content), now());
        assert!(occupied() <= 100_000 && disk.usage().0 <= 100_000);
    }
    assert!(occupied() > 60_000);
    let counters = &disk.counters;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    assert!(count(&counters.evicted) > 0);
    assert_eq!(count(&counters.written) + count(&counters.rejected), 50);
    drop(disk);
    let disk = opened(&directory, 30_000);
    assert!((20_000..=30_000).contains(&disk.usage().0) && occupied() <= 30_000);
    let too_large = stored("", &[], &[b'x'; 40_000]);
    disk.write(&key("large"), &too_large, now());
    assert!(body(&disk, "large", "").is_none() && occupied() <= 30_000);
}

#[test]
fn what_is_removed_before_all_files_are_read_does_not_come_back() {
    let directory = TempDir::new().unwrap();
    let disk = opened(&directory, 1 << 20);
    for url in
        ["http://a/1", "http://a/2", "http://a/2\nquery", "http://a/3", "http://a/4", "http://a/5"]
    {
        let tags = [("Cache-Tag", if url.ends_with('3') { "t" } else { "u" })];
        disk.write(&key(url), &stored("", &tags, b"old"), now());
    }
    disk.write(&Key { site: 2, url: b"http://a/4"[..].into() }, &stored("", &[], b"b"), now());
    drop(disk);
    let disk = Disk::new(directory.path().join("cache"), (1 << 20, 1000), [SITE]);
    let path = |path: &str| Purge::Path { path: path.as_bytes().into(), is_prefix: false };
    disk.remove(&Removal::Purge(None, path("/1")));
    disk.remove(&Removal::Url(key("http://a/2")));
    disk.remove(&Removal::Purge(Some(SITE), Purge::Tag(b"t"[..].into())));
    disk.remove(&Removal::Purge(Some(2), path("/4")));
    // A response that could not be written is newer.
    disk.write(&key("http://a/5"), &stored("", &[], b"new"), now());
    read_all(&disk);
    assert_eq!(body(&disk, "http://a/4", "").as_deref(), Some("old"));
    assert_eq!((disk.usage().1, files(&directory).len()), (1, 1));
}

#[test]
fn removal_is_by_url_path_tag_and_site() {
    let filled = |directory: &TempDir| {
        let disk = opened(directory, 1 << 20);
        disk.write(&key("http://a/x"), &stored("", &[("Cache-Tag", "t, u")], b""), now());
        disk.write(&key("http://a/x\nq"), &stored("", &[], b""), now());
        disk.write(&key("http://a/x?q"), &stored("", &[("Surrogate-Key", "v t")], b""), now());
        let other = Key { site: 2, url: b"http://b/x/y"[..].into() };
        disk.write(&other, &stored("", &[("Cache-Tag", "t")], b""), now());
        disk
    };
    let path = |path: &str, is_prefix| Purge::Path { path: path.as_bytes().into(), is_prefix };
    let tag = |tag: &str| Purge::Tag(tag.as_bytes().into());
    for (removal, expected) in [
        (Removal::Url(key("http://a/x")), 2),
        (Removal::Url(key("http://a/y")), 0),
        (Removal::Purge(None, path("/x", false)), 3),
        (Removal::Purge(None, path("/x", true)), 4),
        (Removal::Purge(Some(2), path("/x", true)), 1),
        (Removal::Purge(None, tag("t")), 3),
        (Removal::Purge(Some(SITE), tag("t")), 2),
        (Removal::Purge(None, tag("t,")), 0),
        (Removal::Purge(None, Purge::Everything), 4),
    ] {
        let directory = TempDir::new().unwrap();
        let disk = filled(&directory);
        let (keys, numbers) = disk.remove(&removal);
        assert_eq!((keys.len(), numbers.len()), (expected, expected), "{removal:?}");
        disk.remove_files(&numbers);
        assert_eq!(files(&directory).len(), 4 - expected, "{removal:?}");
    }
    let directory = TempDir::new().unwrap();
    let disk = filled(&directory);
    disk.remove_files(&disk.retain_sites([2]));
    assert_eq!((disk.usage().1, files(&directory).len()), (1, 1));
}

#[test]
fn a_failure_leaves_no_file_and_no_older_response() {
    let directory = TempDir::new().unwrap();
    let disk = opened(&directory, 1 << 20);
    disk.write(&key("u"), &stored("", &[], b"old"), now());
    for folder in 0..=u8::MAX {
        let folder = directory.path().join(format!("cache/{folder:02x}"));
        if !folder.exists() {
            fs::write(folder, "not a directory").unwrap();
        }
    }
    for _ in 0..3 {
        disk.write(&key("u"), &stored("", &[], b"new"), now());
    }
    assert_ne!(body(&disk, "u", "").as_deref(), Some("old"));
    assert!(disk.counters.failed.load(Ordering::Relaxed) > 0);
}

#[test]
fn two_processes_take_turns() {
    let directory = TempDir::new().unwrap();
    let first = opened(&directory, 1 << 20);
    first.write(&key("u"), &stored("", &[], b"u"), now());
    let second = Disk::new(directory.path().join("cache"), (1 << 20, 1000), [SITE]);
    let reader = std::thread::spawn({
        let second = Arc::clone(&second);
        move || read_all(&second)
    });
    second.write(&key("v"), &stored("", &[], b"v"), now());
    assert_eq!(second.usage(), (0, 0));
    assert_eq!(body(&first, "u", "").as_deref(), Some("u"));
    first.close();
    reader.join().unwrap();
    assert_eq!(body(&second, "u", "").as_deref(), Some("u"));
    assert_eq!(body(&first, "u", ""), None);
    first.write(&key("w"), &stored("", &[], b"w"), now());
    assert_eq!(files(&directory).len(), 1);
}

#[test]
fn the_thread_ends_with_the_disk() {
    let directory = TempDir::new().unwrap();
    let first = opened(&directory, 1 << 20);
    let second = Disk::new(directory.path().join("cache"), (1 << 20, 1000), [SITE]);
    let weak = Arc::downgrade(&second);
    let reader = std::thread::spawn(move || scan::run(&weak, now));
    drop(second);
    reader.join().unwrap();
    drop(first);
}
