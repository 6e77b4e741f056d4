//! Reads the files that an earlier process has left, in a thread of its own.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use dunlin_response_cache::record::Now;

use crate::disk::{Disk, add};
use crate::index::Place;

/// The interval in which the lock of the directory is tried.
const TRY: Duration = Duration::from_millis(200);

/// Starts a thread that waits for the lock of the directory and reads its files. The thread ends with the last
/// reference to the disk.
///
/// # Errors
/// If the thread cannot be started.
pub fn start(disk: &Arc<Disk>, now: fn() -> Now) -> io::Result<()> {
    let weak = Arc::downgrade(disk);
    let thread = std::thread::Builder::new().name("cache directory".into());
    let started = thread.spawn(move || run(&weak, now)).map(drop);
    if started.is_err() {
        disk.set_tried();
    }
    started
}

/// Waits for the lock of the directory and reads its files, unless the disk is closed or dropped before.
pub(crate) fn run(disk: &Weak<Disk>, now: fn() -> Now) {
    loop {
        let Some(disk) = disk.upgrade().filter(|disk| !disk.is_closed()) else { return };
        match disk.files.lock() {
            Ok(Some(lock)) => match disk.files.list() {
                Ok(numbers) => {
                    // Whatever is written from now on is newer.
                    disk.open(lock);
                    disk.set_tried();
                    scan(&disk, numbers, now);
                    return;
                }
                Err(error) => disk.log_failure(&error),
            },
            // The process before this one uses it.
            Ok(None) => {}
            Err(error) => disk.log_failure(&error),
        }
        disk.set_tried();
        drop(disk);
        std::thread::sleep(TRY);
    }
}

/// Reads the heads of files into the index.
fn scan(disk: &Disk, mut numbers: Vec<u64>, now: fn() -> Now) {
    // Of two files for the same response the newer one is kept.
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    for number in numbers {
        if disk.is_closed() {
            return;
        }
        match disk.files.read_head(number, now()) {
            Ok(Some((head, length))) => {
                let place = Place::new(number, length, &head.head);
                let outcome = disk.index().insert_read(head.key, place);
                add(&disk.counters.evicted, outcome.evicted as u64);
                disk.remove_files(&outcome.removed);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Ok(None) | Err(_) => {
                add(&disk.counters.damaged, 1);
                disk.remove_files(&[number]);
            }
        }
    }
    disk.index().end_reading();
}
