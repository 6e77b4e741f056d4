//! Replays of request sequences with the shapes of published traces, and of the bounds.

use super::*;

impl Classed for u64 {}

/// Mixes the bits of a key (splitmix64).
pub(crate) fn hash(key: u64) -> u64 {
    let mut bits = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// A repeatable sequence of numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        hash(self.0)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// From 0 to 1.
    fn share(&mut self) -> f64 {
        self.next() as f64 / u64::MAX as f64
    }
}

/// Popularity by Zipf's law with exponent 1: the sums of the weights of all ranks so far.
fn zipf(keys: u64) -> Vec<f64> {
    let mut sum = 0.0;
    (1..=keys)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect()
}

fn draw(sums: &[f64], random: &mut Random) -> u64 {
    let wanted = random.share() * sums.last().copied().unwrap_or_default();
    sums.partition_point(|&sum| sum < wanted) as u64
}

/// A store that is used as the cache uses it: one of [`SAMPLE`](crate::sampler::SAMPLE) requests is counted.
struct Replay {
    store: Store<u64, u64>,
    random: Random,
    hits: u32,
    requests: u32,
    admitted: u32,
}

impl Replay {
    /// Creates a cache for `entries` files of the same size.
    fn new(entries: usize) -> Self {
        let bounds = Cost { bytes: entries * 8192, entries: 1 << 20, descriptors: 0 };
        let random = Random(7 << 32);
        Self { store: Store::new(bounds), random, hits: 0, requests: 0, admitted: 0 }
    }

    fn request(&mut self, key: u64) {
        self.request_of(key, 8192);
    }

    fn request_of(&mut self, key: u64, bytes: usize) {
        let hash = hash(key);
        self.requests += 1;
        let is_sampled = self.random.below(crate::sampler::SAMPLE.into()) == 0;
        if is_sampled {
            self.store.count(hash);
        }
        if self.store.get(hash, &key).is_some() {
            self.hits += 1;
            return;
        }
        let cost = Cost { bytes, entries: 1, descriptors: 0 };
        if (self.store.has_room() || is_sampled && self.store.would_displace(hash))
            && self.store.insert((hash, key), key, cost) != Inserted::Rejected
        {
            self.admitted += 1;
        }
        assert!(self.store.used().is_within(self.store.bounds()));
    }

    /// Returns the hit rate since the last call.
    fn hit_rate(&mut self) -> f64 {
        let rate = f64::from(self.hits) / f64::from(self.requests);
        (self.hits, self.requests, self.admitted) = (0, 0, 0);
        rate
    }
}

#[test]
fn zipf_is_served_nearly_as_well_as_by_the_most_popular_files() {
    let (sums, mut random) = (zipf(20_000), Random(1));
    for part in [2, 4, 16] {
        let mut replay = Replay::new(20_000 / part);
        (0..400_000).for_each(|_| replay.request(draw(&sums, &mut random)));
        replay.hit_rate();
        (0..200_000).for_each(|_| replay.request(draw(&sums, &mut random)));
        let (rate, best) = (replay.hit_rate(), sums[20_000 / part - 1] / sums[19_999]);
        assert!(rate > best - 0.04, "1/{part}: hit rate {rate:.3}, at best {best:.3}");
    }
}

#[test]
fn an_even_load_leaves_a_small_cache_mostly_as_it_is() {
    for part in [2, 4, 16] {
        let (mut replay, mut random) = (Replay::new(20_000 / part), Random(2));
        (0..400_000).for_each(|_| replay.request(random.below(20_000)));
        replay.hit_rate();
        (0..200_000).for_each(|_| replay.request(random.below(20_000)));
        let misses = f64::from(replay.requests - replay.hits);
        let (admitted, rate) = (f64::from(replay.admitted) / misses, replay.hit_rate());
        assert!(admitted < 0.02, "1/{part}: {admitted:.3} of the misses were admitted");
        assert!((rate - 1.0 / part as f64).abs() < 0.02, "1/{part}: hit rate {rate:.3}");
    }
}

#[test]
fn a_scan_displaces_almost_nothing() {
    let (sums, mut random) = (zipf(20_000), Random(3));
    let mut replay = Replay::new(5_000);
    (0..400_000).for_each(|_| replay.request(draw(&sums, &mut random)));
    replay.hit_rate();
    (0..100_000).for_each(|_| replay.request(draw(&sums, &mut random)));
    let before = replay.hit_rate();
    // A crawler requests each of 100,000 files once, between the requests of others.
    let (mut hits, mut requests) = (0, 0);
    for file in 0..100_000 {
        replay.request(1_000_000 + file);
        let then = replay.hits;
        replay.request(draw(&sums, &mut random));
        (hits, requests) = (hits + replay.hits - then, requests + 1);
    }
    let during = f64::from(hits) / f64::from(requests);
    assert!(during > before - 0.02, "hit rate {during:.3} during a scan, {before:.3} before it");
    replay.hit_rate();
    (0..100_000).for_each(|_| replay.request(draw(&sums, &mut random)));
    let after = replay.hit_rate();
    assert!(after > before - 0.01, "hit rate {after:.3} after a scan, {before:.3} before it");
}

#[test]
fn a_loop_over_more_files_than_fit_is_served_in_part() {
    let mut replay = Replay::new(1_000);
    for round in 0..200 {
        if round == 100 {
            replay.hit_rate();
        }
        (0..2_000).for_each(|file| replay.request(file));
    }
    let rate = replay.hit_rate();
    // The least recently used file would always be the next one of the loop: no hit at all.
    assert!(rate > 0.4, "hit rate {rate:.3}");
}

#[test]
fn a_set_that_changes_is_followed() {
    let (sums, mut random) = (zipf(5_000), Random(4));
    let mut replay = Replay::new(1_000);
    (0..200_000).for_each(|_| replay.request(draw(&sums, &mut random)));
    replay.hit_rate();
    (0..50_000).for_each(|_| replay.request(draw(&sums, &mut random)));
    let before = replay.hit_rate();
    // All files are replaced by others.
    (0..200_000).for_each(|_| replay.request(1_000_000 + draw(&sums, &mut random)));
    replay.hit_rate();
    (0..50_000).for_each(|_| replay.request(1_000_000 + draw(&sums, &mut random)));
    let after = replay.hit_rate();
    assert!(after > before - 0.025, "hit rate {after:.3} after the change, {before:.3} before it");
}

#[test]
fn a_large_file_displaces_small_ones_only_if_it_is_used_more_than_all_of_them() {
    let mut replay = Replay::new(100);
    for _ in 0..100 {
        (0..100).for_each(|file| replay.request(file));
    }
    replay.hit_rate();
    for _ in 0..100 {
        (0..100).for_each(|file| replay.request(file));
        replay.request_of(1_000, 50 * 8192);
    }
    assert_eq!((replay.requests - replay.hits, replay.admitted), (100, 0));
}

#[test]
fn growth_of_an_entry_evicts_others() {
    let bounds = Cost { bytes: 1000, entries: 10, descriptors: 2 };
    let mut store = Store::new(bounds);
    let cost = |bytes, descriptors| Cost { bytes, entries: 1, descriptors };
    for key in 0..4_u64 {
        let inserted = store.insert((hash(key), key), key, cost(250, 0));
        assert_eq!(inserted, Inserted::Stored { replaced: None, evicted: Vec::new() });
    }
    let evicted = store.set_cost((hash(3), &3), cost(500, 1), |_| true);
    assert_eq!((evicted.len(), store.used().bytes, store.used().entries), (1, 1000, 3));
    assert!(store.get(hash(3), &3).is_some());
    let evicted = store.set_cost((hash(3), &3), cost(1001, 1), |_| true);
    assert_eq!((evicted, store.used().bytes), (vec![(3, cost(1001, 1))], 500));
}

#[test]
fn a_known_key_is_replaced_without_comparison() {
    let mut store = Store::new(Cost { bytes: 100, entries: 10, descriptors: 0 });
    let cost = Cost { bytes: 100, entries: 1, descriptors: 0 };
    let insert =
        |store: &mut Store<u64, u64>, key, value| store.insert((hash(key), key), value, cost);
    assert_eq!(insert(&mut store, 1, 10), Inserted::Stored { replaced: None, evicted: vec![] });
    assert_eq!(insert(&mut store, 2, 20), Inserted::Rejected);
    assert_eq!(insert(&mut store, 1, 11), Inserted::Stored { replaced: Some(10), evicted: vec![] });
    store.count(hash(2));
    assert_eq!(insert(&mut store, 2, 20), Inserted::Rejected);
    store.count(hash(2));
    assert_eq!(
        insert(&mut store, 2, 20),
        Inserted::Stored { replaced: None, evicted: vec![(11, cost)] }
    );
    assert_eq!(store.used(), cost);
    assert_eq!(store.remove_if(|&key, _, _| key == 2), [20]);
    assert_eq!(store.used(), Cost::default());
}
