//! Random histories of files, versions, evictions and damage: whatever a client has and requests, the decoded bytes of each response are
//! those of the file, and conditions and ranges are those of the representation that was sent.
//!
//! `DUNLIN_HISTORY_STEPS=1000000` runs as many steps, of histories with [`STEPS`] steps and a seed each.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::Cell;
use std::collections::HashMap;
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use dunlin_config::{Config, Overrides};
use dunlin_dictionary::{dcz, fields, sha256};
use dunlin_files::cache::resource::Resource;
use dunlin_files::cache::shared_cache::LookUp;
use dunlin_files::cache::worker_cache::CacheEntry;
use dunlin_files::file_response::FileResponse;
use dunlin_files::resolve::{Resolver, resolve};
use dunlin_files::search::{Found, Wanted};
use dunlin_files::select::{Selected, select, select_identity, select_with_dictionary, whole};
use dunlin_files::shared::Shared;
use dunlin_files::{dictionaries, encoded, select};
use dunlin_fs::content::Piece;
use dunlin_fs::mode::Mode;
use dunlin_http::http1::Http1Connection;
use dunlin_http::{FieldLines, FieldName, Head, Limits, Request};
use dunlin_net::blocking::Pools;
use dunlin_net::clock::{monotonic_millis, since_1970};

/// A generator of random numbers (xorshift).
struct Random(Cell<u64>);

impl Random {
    fn below(&self, bound: usize) -> usize {
        let mut state = self.0.get();
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.0.set(state);
        (state >> 11) as usize % bound
    }

    fn one_in(&self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    fn pick<'a, T>(&self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len().max(1)))
    }
}

/// What was sent with a strong tag: the path, the coded bytes, and the content.
struct Sent {
    path: String,
    coded: Vec<u8>,
    content: Vec<u8>,
}

/// A version that a client has, with the pattern that it was sent with.
struct Known {
    content: Vec<u8>,
    offer: String,
}

struct World {
    random: Random,
    directory: PathBuf,
    shared: Arc<Shared>,
    config: Config,
    /// The content of each file by its path.
    files: HashMap<String, Vec<u8>>,
    /// The paths of the files, in the order in which they were made.
    paths: Vec<String>,
    known: Vec<Known>,
    sent: HashMap<Vec<u8>, Sent>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    differences: usize,
    ranges: usize,
    not_modified: usize,
    offers: usize,
    plain: usize,
}

const TEXT: &str = "[server]\ncache = { directory = 'kept', dictionaries = '120kB' }\n\
    [[listen]]\naddress = '127.0.0.1:0'\ntls = true\n\
    [[site]]\nroot = 'www'\ntls = { certificate = 'own.pem', key = 'own.key' }\n\
    [[site.route]]\npath = '/*'\ncache_control = 'max-age=600'\ncompress = ['zstd']\nprecompressed = false\n";

/// Steps of one history.
const STEPS: usize = 20_000;

#[test]
fn the_decoded_bytes_are_those_of_the_file_in_any_history() {
    let steps = std::env::var("DUNLIN_HISTORY_STEPS").ok().and_then(|steps| steps.parse().ok());
    for seed in 1..=steps.unwrap_or(STEPS).div_ceil(STEPS) as u64 {
        run_history(seed);
    }
}

fn run_history(seed: u64) {
    let directory = tempfile::tempdir_in(memory_directory()).unwrap();
    let mut world = World::new(directory.path(), seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for step in 0..STEPS {
        world.step(step);
    }
    let Counts { differences, ranges, not_modified, offers, plain } = world.counts;
    println!("history {seed}: {STEPS} steps, {:?}", world.counts);
    for count in [differences, ranges, 4 * not_modified, offers, plain] {
        assert!(count > STEPS / 200, "each kind of response occurs");
    }
}

/// Returns a directory in memory, if there is one.
fn memory_directory() -> PathBuf {
    let shared_memory = PathBuf::from("/dev/shm");
    if shared_memory.is_dir() { shared_memory } else { std::env::temp_dir() }
}

impl World {
    fn new(directory: &Path, seed: u64) -> Self {
        fs::create_dir(directory.join("www")).unwrap();
        let config = configuration(directory);
        let mut world = Self {
            random: Random(Cell::new(seed)),
            directory: directory.into(),
            shared: Arc::new(Shared::first(&config, Arc::new(Pools::inline()), None)),
            config,
            files: HashMap::new(),
            paths: Vec::new(),
            known: Vec::new(),
            sent: HashMap::new(),
            counts: Counts::default(),
        };
        for path in ["/app.js", "/app.00aa.js", "/lib-1.0.css", "/index.html"] {
            let content = world.content();
            world.write(path, content);
        }
        world
    }

    fn step(&mut self, step: usize) {
        match self.random.below(100) {
            0 => self.replace(),
            1 => self.rename(step),
            2 if self.random.one_in(4) => self.shared.cache.clear(),
            3 if self.random.one_in(10) => self.restart(),
            4 if self.random.one_in(10) => self.damage(),
            _ => self.request(),
        }
    }

    /// Returns content of common lines, some of which are others.
    fn content(&self) -> Vec<u8> {
        let lines = 20 + self.random.below(120);
        let line = |number: usize| match self.random.one_in(20) {
            true => format!("let changed{} = {};\n", number, self.random.below(1 << 30)),
            false => format!("let line{number} = {};\n", number.wrapping_mul(0x9e37_79b9) >> 3),
        };
        // No two files have the same content.
        let own = format!("let own = {};\n", self.random.below(1 << 50));
        (0..lines).map(line).chain([own]).collect::<String>().into_bytes()
    }

    fn file(&self, path: &str) -> PathBuf {
        self.directory.join("www").join(path.trim_start_matches('/'))
    }

    /// Writes a file, aside or in place.
    fn write(&mut self, path: &str, content: Vec<u8>) {
        let file = self.file(path);
        if self.random.one_in(4) && self.files.contains_key(path) {
            fs::write(&file, &content).unwrap();
        } else {
            let aside = self.directory.join("aside");
            fs::write(&aside, &content).unwrap();
            fs::rename(&aside, &file).unwrap();
        }
        if self.files.insert(path.into(), content).is_none() {
            self.paths.push(path.into());
        }
        self.shared.read_changes();
        self.shared.expire_all();
    }

    fn replace(&mut self) {
        let path = self.random.pick(&self.paths).unwrap().clone();
        let content = self.content();
        self.write(&path, content);
    }

    /// Replaces a file by one of another name.
    fn rename(&mut self, step: usize) {
        let old = self.random.pick(&self.paths).unwrap().clone();
        let new = match old.as_str() {
            path if path.starts_with("/app.") && path.len() > 8 => format!("/app.{step:06x}a1.js"),
            path if path.starts_with("/lib-") => format!("/lib-1.{step}.css"),
            _ => return,
        };
        fs::remove_file(self.file(&old)).unwrap();
        self.files.remove(&old);
        self.paths.retain(|path| *path != old);
        let content = self.content();
        self.write(&new, content);
    }

    fn restart(&mut self) {
        self.config = configuration(&self.directory);
        self.shared = Arc::new(Shared::first(&self.config, Arc::new(Pools::inline()), None));
    }

    /// Cuts or changes a version that is kept.
    fn damage(&self) {
        let directory = self.directory.join("kept/dictionaries");
        let Ok(kept) = fs::read_dir(directory) else { return };
        let kept: Vec<PathBuf> = kept.map(|item| item.unwrap().path()).collect();
        let Some(path) = self.random.pick(&kept) else { return };
        let mut record = fs::read(path).unwrap();
        match self.random.one_in(2) {
            true => record.truncate(self.random.below(record.len())),
            false => {
                let at = self.random.below(record.len());
                record[at] ^= 1 << self.random.below(8);
            }
        }
        fs::write(path, record).unwrap();
    }

    fn request(&mut self) {
        // An index file has a path of its own.
        let path = self.random.pick(&self.paths).unwrap().clone();
        let url = if path == "/index.html" && self.random.one_in(2) { "/" } else { &path };
        let resource = self.resource(url);
        let available = self.available(&path);
        let text = self.head((url, &path), available.as_deref());
        let (mut connection, mut head) = (Http1Connection::default(), Head::default());
        connection.head(text.as_bytes(), &Limits::default(), &mut head).unwrap().unwrap();
        let request = Request::new(text.as_bytes(), &head);
        let selected = self.select(&request, &resource);
        let offer = dictionaries::offer(&request, &resource).map(str::to_owned);
        let available = available.unwrap_or_default();
        self.check(&path, &request, &resource, selected, &available);
        if let Some(offer) = offer {
            self.counts.offers += 1;
            if self.random.one_in(20) {
                let content = self.files[&path].clone();
                self.known.push(Known { content, offer });
                // A client forgets.
                if self.known.len() > 40 {
                    self.known.remove(self.random.below(self.known.len()));
                }
            }
        }
    }

    /// Returns a version that the client names: mostly one of a file of the same type.
    fn available(&self, path: &str) -> Option<Vec<u8>> {
        let is_near = |known: &&Known| known.offer.contains(&path[path.len() - 3..]);
        let near: Vec<&Known> = self.known.iter().filter(is_near).collect();
        match self.random.below(10) {
            0 => None,
            1 => self.random.pick(&self.known).map(|known| known.content.clone()),
            _ => self.random.pick(&near).map(|known| known.content.clone()),
        }
    }

    fn head(&self, (url, path): (&str, &str), available: Option<&[u8]>) -> String {
        let mut head = format!("GET {url} HTTP/1.1\r\nHost: a\r\n");
        let codings = ["dcz, zstd", "zstd, dcz", "dcz", "zstd", "gzip, dcz;q=0", ""];
        head += &format!("Accept-Encoding: {}\r\n", codings[self.random.below(codings.len())]);
        if let Some(content) = available {
            let name = dunlin_http::semantics::digest::base64(&sha256(content));
            head += &format!("Available-Dictionary: :{name}:\r\n");
        }
        let is_near = !self.random.one_in(5);
        let near = self.sent.iter().filter(|(_, sent)| !is_near || sent.path == path);
        let tags: Vec<&Vec<u8>> = near.map(|(tag, _)| tag).collect();
        let tag = self.random.pick(&tags).map(|tag| String::from_utf8_lossy(tag));
        match (self.random.below(6), tag) {
            (0, Some(tag)) => head += &format!("If-None-Match: {tag}\r\n"),
            (1, Some(tag)) => head += &format!("If-Range: {tag}\r\nRange: bytes=3-40\r\n"),
            (2, _) => head += &format!("Range: bytes={}-\r\n", self.random.below(60)),
            _ => {}
        }
        head + "\r\n"
    }

    /// Returns the resource of a path, as the handler for files does.
    fn resource(&self, url: &str) -> Arc<Resource> {
        let shared = &self.shared;
        let site = self.config.sites.only().unwrap();
        let route = site.route(url.as_bytes());
        let wanted = Wanted { site, route: &route, path: url.as_bytes(), query: None };
        let now = monotonic_millis();
        let previous = match shared.cache.look_up(1, url.as_bytes(), true) {
            LookUp::Found(resource) if resource.validity.is_fresh(now) => return resource,
            LookUp::Found(resource) => Some(resource),
            LookUp::Missing { .. } => None,
        };
        let mode = Mode::Blocking;
        let resolver = Resolver { shared, site: 1, previous, keep: true, copy: false, now, mode };
        match resolve(&wanted, &resolver) {
            Ok(Found::File(resource)) => resource,
            _ => panic!("{url} is a file"),
        }
    }

    /// Selects the response, as the handler for files does over TLS.
    fn select(&self, request: &Request<'_>, resource: &Arc<Resource>) -> Selected {
        let now = since_1970().as_secs();
        if let Some(work) = dictionaries::work(&self.shared, resource, request) {
            run(work.run(&self.shared));
        }
        if let Some(form) = dictionaries::form(request, resource) {
            return select_with_dictionary(request, resource, &form, now);
        }
        let entry = CacheEntry::new((1, b"/"), Arc::new(()), Arc::clone(resource), None);
        match select(request, &entry, now) {
            Selected::Unknown(coding) => {
                run(encoded::search(&self.shared, resource, coding));
                match select(request, &entry, now) {
                    Selected::Unknown(_) => select_identity(request, resource, now),
                    selected => selected,
                }
            }
            selected => selected,
        }
    }

    fn check(
        &mut self,
        path: &str,
        request: &Request<'_>,
        resource: &Resource,
        selected: Selected,
        available: &[u8],
    ) {
        let content = self.files[path].clone();
        let response = match selected {
            Selected::Whole(coding) => {
                whole(resource, resource.representation(coding).flatten().unwrap())
            }
            Selected::NotModified(coding) => {
                let form = resource.representation(coding).flatten().unwrap();
                select::not_modified(resource, form)
            }
            Selected::Response(response) => response,
            Selected::Error(416, _) => return,
            other => panic!("{other:?}"),
        };
        let vary = response.fields.get("Vary").unwrap_or_default();
        assert_eq!(vary, b"Accept-Encoding, Available-Dictionary");
        let tag = response.fields.get("ETag").unwrap().to_vec();
        let is_coded = response.fields.get("Content-Encoding") == Some(dcz::NAME.as_bytes());
        let body = bytes(&response);
        match response.status {
            200 => {
                let decoded = decode(&response.fields, &body, available, request);
                assert!(decoded == content, "{path}: {:?}", response.fields);
                self.counts.differences += usize::from(is_coded);
                self.counts.plain += usize::from(!is_coded);
                if is_coded {
                    self.check_pattern(path, available);
                }
                if !tag.starts_with(b"W/") {
                    let sent = Sent { path: path.into(), coded: body, content };
                    let before = self.sent.insert(tag, sent);
                    assert!(before.is_none_or(|before| before.content == self.files[path]));
                    self.forget();
                }
            }
            206 => {
                self.counts.ranges += 1;
                let Some(sent) = self.sent.get(&tag).filter(|sent| sent.path == path) else {
                    return;
                };
                let range = response.fields.get("Content-Range").unwrap();
                let range = String::from_utf8_lossy(range).into_owned();
                let start: usize = range[6..range.find('-').unwrap()].parse().unwrap();
                assert!(range.ends_with(&format!("/{}", sent.coded.len())), "{range}");
                assert!(body == sent.coded[start..start + body.len()] && sent.content == content);
            }
            304 => {
                self.counts.not_modified += 1;
                let given = request.field(FieldName::IfNoneMatch).unwrap();
                assert!(body.is_empty() && (tag == given || tag.starts_with(b"W/")));
                assert!(self.sent[given].content == content, "{path} has changed");
            }
            status => panic!("{status}"),
        }
    }

    /// A browser uses a version for paths of its pattern only.
    fn check_pattern(&self, path: &str, available: &[u8]) {
        let end = &path[path.rfind('.').unwrap()..];
        let of_content = self.known.iter().filter(|known| known.content == available);
        for known in of_content {
            assert!(known.offer.starts_with("match=\"/"), "{}", known.offer);
        }
        assert!(self.known.iter().any(|known| known.content == available
            && (known.offer.contains(end) || known.offer.contains("\"/\""))));
    }

    /// Bounds what is remembered.
    fn forget(&mut self) {
        if self.sent.len() > 200 {
            let tags: Vec<Vec<u8>> = self.sent.keys().cloned().collect();
            self.sent.remove(&tags[self.random.below(tags.len())]);
        }
    }
}

fn configuration(directory: &Path) -> Config {
    Config::parse(TEXT, &directory.join("dunlin.toml"), &Overrides::default())
        .unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// Runs a future that waits for nothing: the pools run their work at once.
fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the work waits"),
    }
}

fn bytes(response: &FileResponse) -> Vec<u8> {
    let mut all = Vec::new();
    for piece in &response.body {
        match piece {
            Piece::Memory(bytes) => all.extend_from_slice(bytes),
            Piece::File(file, range) => {
                let mut part = vec![0; (range.end - range.start) as usize];
                assert_eq!(file.read_now(&mut part, range.start).unwrap(), part.len());
                all.extend(part);
            }
        }
    }
    all
}

/// Returns the content of a response for a client that has the version `available`.
fn decode(response: &FieldLines, body: &[u8], available: &[u8], request: &Request<'_>) -> Vec<u8> {
    let values: Vec<&[u8]> = request.values(FieldName::AcceptEncoding).collect();
    match response.get("Content-Encoding") {
        None => body.to_vec(),
        Some(b"dcz") => {
            assert!(fields::accepts_dcz(&values));
            dcz::decompress(available, body, 1 << 20).unwrap()
        }
        Some(b"zstd") => zstd_decoded(body),
        Some(other) => panic!("{other:?}"),
    }
}

/// Zstandard without a dictionary is that with an empty one, behind the header.
fn zstd_decoded(body: &[u8]) -> Vec<u8> {
    let empty = dcz::compress(b"", &sha256(b""), b"").unwrap();
    let coded = [&empty[..dcz::HEADER], body].concat();
    dcz::decompress(b"", &coded, 1 << 20).unwrap()
}
