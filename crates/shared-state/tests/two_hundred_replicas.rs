//! Two hundred servers on paper, with the real code of limits and caches: what they allow together, how often the store of shared state
//! and the origin of the content are needed. The chapter "Growing beyond one machine" quotes the lines that it prints.

use dunlin_admission::store::{Classed, Cost, Store};
use dunlin_limits::fleet::{Fleet, STEP, rules};

const REPLICAS: usize = 200;
/// Objects of the site.
const OBJECTS: usize = 200_000;
/// Objects that the cache of one replica holds: 2 % of all.
const HELD: usize = OBJECTS / 50;
/// Requests of all replicas in one run; the first half fills the caches.
const REQUESTS: usize = 8_000_000;
/// Exponent of the popularity of objects: the n-th is requested in proportion to 1 / n^0.9.
const EXPONENT: f64 = 0.9;
/// Size of an object in bytes. All are equal.
const SIZE: usize = 32 * 1024;

/// An object of the site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Object(usize);

impl Classed for Object {}

/// Numbers that look random: xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn below(&mut self, end: usize) -> usize {
        (self.fraction() * end as f64) as usize
    }
}

/// Returns the sums of the popularity of the first objects.
fn popularity() -> Vec<f64> {
    let mut sum = 0.0;
    let weight = |number: usize| (number as f64 + 1.0).powf(-EXPONENT);
    (0..OBJECTS)
        .map(|number| {
            sum += weight(number);
            sum
        })
        .collect()
}

fn hash(object: Object) -> u64 {
    Random(object.0 as u64 + 1).next()
}

/// Sends requests to the caches of all replicas; `replica` chooses the one for an object. Returns the share of requests that a
/// cache responds to.
fn share_of_hits(replica: impl Fn(&mut Random, Object) -> usize) -> f64 {
    let bounds = Cost { bytes: HELD * SIZE, entries: HELD, descriptors: HELD };
    let mut caches: Vec<Store<Object, ()>> = (0..REPLICAS).map(|_| Store::new(bounds)).collect();
    let (sums, mut random) = (popularity(), Random(1));
    let all = sums.last().copied().unwrap_or_default();
    let mut hits = 0;
    for number in 0..REQUESTS {
        let wanted = random.fraction() * all;
        let object = Object(sums.partition_point(|sum| *sum < wanted));
        let cache = &mut caches[replica(&mut random, object)];
        let hash = hash(object);
        cache.count(hash);
        if cache.get(hash, &object).is_some() {
            hits += usize::from(number >= REQUESTS / 2);
        } else {
            cache.insert((hash, object), (), Cost { bytes: SIZE, entries: 1, descriptors: 0 });
        }
    }
    hits as f64 / (REQUESTS / 2) as f64
}

/// The requests per second of each server at a time in seconds.
type Shape<'a> = &'a dyn Fn(usize, f64) -> f64;

/// Returns the requests that are allowed in 30 seconds with a limit of 1,000/s, in relation to what one server would allow,
/// and the reports to the store per second.
fn limited(shape: Shape<'_>) -> (f64, f64) {
    const SECONDS: usize = 30;
    let mut fleet = Fleet::new(REPLICAS, &rules(1000, 1000), 17);
    let mut allowed = 0;
    let steps = SECONDS * (1.0 / STEP.as_secs_f64()) as usize;
    for step in 0..steps {
        for server in 0..REPLICAS {
            let count = fleet.arrivals(shape(server, step as f64 * STEP.as_secs_f64()));
            allowed += fleet.requests(server, "192.0.2.1", count);
        }
        fleet.step();
    }
    let of_one = (1000 * SECONDS + 1000) as f64;
    (allowed as f64 / of_one, fleet.exchanges as f64 / SECONDS as f64)
}

/// Returns the lines that the chapter quotes.
fn lines() -> Vec<String> {
    let mut lines = Vec::new();
    let uniform = |_: usize, _: f64| 25.0;
    let one_hot = |server: usize, _: f64| if server == 0 { 5000.0 } else { 0.0 };
    let moving = |server: usize, time: f64| match time as usize % REPLICAS == server {
        true => 5000.0,
        false => 0.0,
    };
    let bursts = |_: usize, time: f64| if time.fract() < 0.2 { 100.0 } else { 6.25 };
    let shapes: [(&str, Shape<'_>); 4] = [
        ("evenly at all replicas", &uniform),
        ("at one replica", &one_hot),
        ("at another replica every second", &moving),
        ("in bursts at all replicas", &bursts),
    ];
    for (name, shape) in shapes {
        let (ratio, reports) = limited(shape);
        assert!((0.95..=1.05).contains(&ratio), "{name}: {ratio}");
        lines.push(format!("| {name} | {:.0} % | {} |", ratio * 100.0, rounded(reports)));
    }
    let any = share_of_hits(|random, _| random.below(REPLICAS));
    let of_two =
        share_of_hits(|random, object| (hash(object) as usize + random.below(2)) % REPLICAS);
    let of_one = share_of_hits(|_, object| hash(object) as usize % REPLICAS);
    let ways = [
        ("any replica", any),
        ("one of two replicas, by URL", of_two),
        ("one replica, by URL", of_one),
    ];
    for (name, hits) in ways {
        lines.push(format!("| {name} | {:.0} % | {:.0} |", hits * 100.0, (1.0 - hits) * 1000.0));
    }
    lines
}

/// With two digits.
fn rounded(number: f64) -> String {
    if number < 10.0 {
        return format!("{number:.0}");
    }
    let unit = 10_f64.powf(number.log10().floor() - 1.0);
    format!("{:.0}", (number / unit).round() * unit)
}

#[test]
fn the_chapter_quotes_what_the_code_does() {
    let chapter = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/figures.md");
    let chapter = std::fs::read_to_string(chapter).unwrap_or_default();
    let lines = lines();
    lines.iter().for_each(|line| println!("{line}"));
    let missing: Vec<_> = lines.iter().filter(|line| !chapter.contains(*line)).collect();
    assert!(missing.is_empty(), "the chapter does not have these lines: {missing:#?}");
}
