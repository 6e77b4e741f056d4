//! The settings of a path, with every default filled in.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dunlin_http::semantics::{ContentCoding, is_field_value, is_token};

use super::access_log::AccessLog;
use super::alias::Alias;
use super::check_rules::CheckRules;
use super::coding::CodingRules;
use super::dav::Dav;
use super::dictionary::PageDictionary;
use super::error_page::ErrorPage;
use super::fields::{self, FieldToSet};
use super::file::{
    self, BodyHandling, Codings, EtagKind, ListingFormat, Route, RouteCache, RouteCacheTable,
    Symlinks,
};
use super::handler::Handler;
use super::map::Maps;
use super::merge::{DefinedBy, Patterns};
use super::object_root::ObjectRoot;
use super::pattern::Pattern;
use super::report::{Report, field_value};
use super::sources::Sources;
use super::spanned::Spanned;
use super::transforms::Transforms;
use super::tries::TryStep;

/// The settings of a path: the merged settings of all routes that match it.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each is described at the key of that name in `file::Route`")]
pub struct Settings {
    /// The handler.
    pub handler: Handler,
    /// The directory of the files, and of scripts that are recognized by their extensions.
    pub root: PathBuf,
    /// The place of the root in URLs; `None` if it is at `/`.
    pub alias: Option<Alias>,
    /// The root, if it is in object storage; `root` is its URL then.
    pub objects: Option<Arc<ObjectRoot>>,
    pub index: Vec<String>,
    pub try_files: Vec<TryStep>,
    pub listing: bool,
    pub listing_format: ListingFormat,
    pub server_timing: bool,
    pub early_hints: Vec<String>,
    pub internal: bool,
    /// Settings for files that scripts and upstreams name by `X-Sendfile`, for each directory.
    pub sendfile_roots: Vec<Arc<Settings>>,
    pub set_fields: Vec<FieldToSet>,
    pub remove_fields: Vec<String>,
    /// Changes of the bodies of responses; `None` if they are sent as they are.
    pub transforms: Option<Arc<Transforms>>,
    pub cache_control: Option<String>,
    /// The route that has the handler has `cache_control` or `expires`, too.
    pub has_own_caching: bool,
    pub expires: Option<Duration>,
    pub charset: String,
    pub types: HashMap<String, String>,
    pub nosniff: bool,
    pub compress: Vec<ContentCoding>,
    pub compress_events: bool,
    pub coding: CodingRules,
    pub compress_size: u64,
    pub precompressed: Vec<ContentCoding>,
    /// The name of the site, if versions of its files are kept as dictionaries.
    pub dictionary: Option<Arc<str>>,
    /// The dictionary for pages; see [`PageDictionary::hindrance`].
    pub page_dictionary: Option<Arc<PageDictionary>>,
    pub cache: CacheRules,
    pub sendfile: bool,
    pub etag: EtagKind,
    /// WebDAV, if the handler is files.
    pub dav: Option<Arc<Dav>>,
    pub records: Option<Records>,
    pub symlinks: Symlinks,
    pub hidden: bool,
    pub error_pages: HashMap<u16, ErrorPage>,
    pub access_log: RouteLog,
    pub check_rules: CheckRules,
    pub body_size: u64,
    /// When scripts get the request body.
    pub body: BodyHandling,
    pub ranges: usize,
    /// The scripts of the site, whose sources are not sent; `None` if there are none or the route sends sources.
    pub sources: Option<Arc<Sources>>,
    pub serve_source: bool,
    /// Another route may respond to a request that this route handles first.
    pub reroutes: bool,
    /// The routes from which the tables of the settings come.
    pub origins: DefinedBy,
    /// The pattern of the most specific route; empty if no route matches.
    pub pattern: String,
}

/// The access log of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteLog {
    /// None.
    Off,
    /// That of the server.
    Server,
    /// Another one.
    Own(Arc<AccessLog>),
}

impl fmt::Display for RouteLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("false"),
            Self::Server => f.write_str("true"),
            Self::Own(log) => write!(f, "{}", log.path.display()),
        }
    }
}

/// The cache of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheRules {
    /// Cache files.
    pub enabled: bool,
    /// Maximum size of a file whose content is cached.
    pub file: u64,
    /// The rules by which responses of proxies and scripts are cached; `None` if they are not.
    pub responses: Option<ResponseCacheRules>,
}

/// The rules by which responses are cached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponseCacheRules {
    /// Maximum size of a body in bytes.
    pub response_size: u64,
    /// Responses without an explicit lifetime have a heuristic one.
    pub is_heuristic: bool,
    /// Cache responses with `Set-Cookie`.
    pub set_cookie: bool,
    /// Lifetimes of responses without an explicit one, in seconds, by status; `None` is any other status.
    pub lifetimes: Vec<(Option<u16>, u64)>,
}

impl ResponseCacheRules {
    /// Returns the lifetime of a response that has no explicit one, in seconds.
    pub fn lifetime(&self, status: u16) -> Option<u64> {
        let of =
            |wanted| self.lifetimes.iter().find(|(of, _)| *of == wanted).map(|(_, time)| *time);
        of(Some(status)).or_else(|| of(None))
    }
}

/// Format of the records of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordFormat {
    /// Each record is text alone.
    Variable,
    /// Each record begins with `control` bytes that are not text.
    Vfc {
        /// Control bytes per record; 2 in RMS unless the file has another number.
        control: u16,
    },
}

impl RecordFormat {
    /// Returns the number of control bytes in each record.
    pub fn control(self) -> usize {
        match self {
            Self::Variable => 0,
            Self::Vfc { control } => usize::from(control),
        }
    }
}

/// The conversion of record files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Records {
    /// Format of the records.
    pub format: RecordFormat,
    /// Write the converted form beside the source.
    pub write: bool,
}

impl Settings {
    /// Returns the value of `Cache-Control` that the route states, by `cache_control` or else by `expires`.
    pub fn stated_lifetime(&self) -> Option<Cow<'_, str>> {
        let of_time = || self.expires.map(|time| format!("max-age={}", time.as_secs()).into());
        self.cache_control.as_deref().map(Cow::from).or_else(of_time)
    }

    /// Makes the settings of the merged route and fills in defaults. Errors are reported, and the faulty settings
    /// omitted.
    pub(super) fn new(
        route: &Route,
        root: PathBuf,
        cache_file: u64,
        patterns: Patterns<'_>,
        report: Report<'_>,
    ) -> Self {
        Reader { route, report }.settings(root, cache_file, patterns)
    }

    /// Names the route and its site, for the log. Where no route matches, the settings are those of the site.
    pub fn place(&self, site: &str) -> String {
        match &*self.pattern {
            "" => format!("site {site}"),
            pattern => format!("route {pattern:?} of site {site}"),
        }
    }

    /// Returns `true` if files are searched for before the proxy of the route responds.
    pub fn tries_files(&self) -> bool {
        self.try_files.last() == Some(&TryStep::Proxy)
    }

    /// Returns `true` if the last step of the `try` list is a path.
    pub fn ends_with_path(&self) -> bool {
        matches!(self.try_files.last(), Some(TryStep::Path(_)))
    }

    /// Returns `true` if files of the route may be dictionaries: they are the same for everyone, and sent as they are.
    pub(super) fn are_files_public(&self) -> bool {
        let has_files = match &self.handler {
            Handler::Files | Handler::Script(_) => true,
            _ => self.tries_files(),
        };
        has_files
            && self.cache.enabled
            && self.check_rules.are_open()
            && self.transforms.is_none()
            && self.records.is_none()
            && self.dav.is_none()
    }

    /// Prevents the sources of the site's scripts from being sent, unless the route sends sources.
    pub(super) fn guard(&mut self, sources: &Option<Arc<Sources>>) {
        if self.serve_source {
            return;
        }
        self.sources.clone_from(sources);
        for root in self.sendfile_roots.iter_mut().filter_map(Arc::get_mut) {
            root.sources.clone_from(sources);
            root.pattern.clone_from(&self.pattern);
        }
    }
}

/// Reads the lifetimes of responses by status.
fn lifetimes(table: &RouteCacheTable, report: Report<'_>) -> Vec<(Option<u16>, u64)> {
    let mut lifetimes = Vec::new();
    for (name, time) in table.lifetime.iter().flat_map(|table| &table.value) {
        let status = match name.as_str() {
            "any" => Some(None),
            name => name.parse().ok().filter(|status| (200..600).contains(status)).map(Some),
        };
        match status {
            Some(Some(status @ (206 | 304 | 426))) => {
                report(&name.span, format!("cache: responses with status {status} are not stored"));
            }
            Some(status) => lifetimes.push((status, time.0.as_secs())),
            None => {
                let what =
                    format!("cache: {:?} is not a status such as \"200\", or \"any\"", name.value);
                report(&name.span, what);
            }
        }
    }
    lifetimes
}

struct Reader<'a> {
    route: &'a Route,
    report: Report<'a>,
}

impl Reader<'_> {
    fn settings(mut self, root: PathBuf, cache_file: u64, patterns: Patterns<'_>) -> Settings {
        let route = self.route;
        let alias = self.alias(patterns.root, &root);
        // The file of a path without `*` is found by its name.
        let is_file = alias.as_ref().is_some_and(Alias::is_file);
        let root = if is_file { root.parent().map(Path::to_owned).unwrap_or(root) } else { root };
        let handler = Handler::read(route, patterns, self.report);
        let check_rules = CheckRules::read(route, &handler, patterns.maps, self.report);
        let all = || Codings(vec![ContentCoding::Zstd, ContentCoding::Brotli, ContentCoding::Gzip]);
        let codings =
            |key: &Option<Spanned<Codings>>| key.as_deref().cloned().unwrap_or_else(all).0;
        Settings {
            alias,
            root,
            objects: None,
            index: self.index(),
            try_files: self.try_files(patterns.tries, &handler),
            listing: route.listing.as_deref().copied().unwrap_or(false),
            listing_format: route.listing_format.as_deref().copied().unwrap_or_default(),
            sources: None,
            serve_source: route.serve_source.as_deref().copied().unwrap_or(false),
            reroutes: route.r#try.is_some() || route.index.is_some() || route.rewrite.is_some(),
            origins: patterns.origins(),
            pattern: String::new(),
            server_timing: route.server_timing.as_deref().copied().unwrap_or(false),
            early_hints: self.early_hints(),
            internal: route.internal.as_deref().copied().unwrap_or(false),
            sendfile_roots: self.sendfile_roots(),
            set_fields: fields::set_fields(route, self.report),
            remove_fields: fields::remove_fields(route, self.report),
            transforms: Transforms::read(route, &handler, self.report),
            cache_control: field_value("cache_control", route.cache_control.as_ref(), self.report),
            has_own_caching: patterns.caching == patterns.handler,
            expires: route.expires.as_deref().map(|span| span.0),
            charset: field_value("charset", route.charset.as_ref(), self.report)
                .unwrap_or_else(|| "utf-8".into()),
            types: self.types(),
            nosniff: route.nosniff.as_deref().copied().unwrap_or(true),
            compress: codings(&route.compress),
            compress_events: route.compress_events.as_deref().copied().unwrap_or(false),
            coding: CodingRules::read(route, self.report),
            compress_size: route.compress_size.as_deref().map_or(8 << 20, |size| size.0),
            precompressed: codings(&route.precompressed),
            dictionary: None,
            page_dictionary: PageDictionary::read(route, self.report),
            cache: self.cache(cache_file),
            sendfile: route.sendfile.as_deref().copied().unwrap_or(false),
            etag: route.etag.as_deref().copied().unwrap_or(EtagKind::Stat),
            dav: Dav::read(route, &handler, self.report),
            records: self.records(),
            symlinks: self.symlinks(),
            hidden: route.hidden.as_deref().copied().unwrap_or(false),
            error_pages: ErrorPage::read(route, patterns.maps, self.report),
            check_rules,
            handler,
            access_log: self.access_log(),
            body_size: route.body_size.as_deref().map_or(1 << 20, |size| size.0),
            body: route.body.as_deref().copied().unwrap_or_default(),
            ranges: route.ranges.as_deref().copied().unwrap_or(16),
        }
    }

    /// Returns the symlinks that are followed: none where clients change the files, so that a path leads to what it names.
    fn symlinks(&self) -> Symlinks {
        match &self.route.dav {
            Some(dav) if dav.is_on() => Symlinks::Deny,
            _ => self.route.symlinks.as_deref().copied().unwrap_or(Symlinks::Beneath),
        }
    }

    fn access_log(&self) -> RouteLog {
        match self.route.access_log.as_deref() {
            None | Some(file::RouteLogValue::Switch(true)) => RouteLog::Server,
            Some(file::RouteLogValue::Switch(false)) => RouteLog::Off,
            Some(file::RouteLogValue::Own(table)) => match &table.checked {
                Some(log) => RouteLog::Own(Arc::clone(log)),
                None => RouteLog::Off,
            },
        }
    }

    /// Returns the place of the root in URLs.
    fn alias(&mut self, pattern: &Pattern, root: &Path) -> Option<Alias> {
        let alias = self.route.alias.as_ref()?;
        let file = root.file_name().filter(|_| pattern.is_literal());
        let made = Alias::new(pattern, file.map(OsStrExt::as_bytes));
        if made.is_none() {
            let what =
                "alias: it needs a path that ends with `/*`, or one without `*` for one file";
            (self.report)(&alias.span, what.into());
        }
        made
    }

    fn cache(&mut self, cache_file: u64) -> CacheRules {
        let enabled = CacheRules { enabled: true, file: cache_file, responses: None };
        let Some(Spanned { value, span }) = &self.route.cache else { return enabled };
        let table = match value {
            RouteCache::Switch(enabled) => {
                return CacheRules { enabled: *enabled, file: cache_file, responses: None };
            }
            RouteCache::Table(table) => table,
        };
        let are_cached = table.responses == Some(true);
        let keys = [
            ("response_size", table.response_size.is_some()),
            ("heuristic", table.heuristic.is_some()),
            ("set_cookie", table.set_cookie.is_some()),
            ("lifetime", table.lifetime.is_some()),
        ];
        if let Some((key, _)) = keys.into_iter().find(|&(_, is_set)| is_set && !are_cached) {
            (self.report)(span, format!("cache: `{key}` needs `responses = true`"));
        }
        let lifetimes = lifetimes(table, self.report);
        let responses = are_cached.then(|| ResponseCacheRules {
            lifetimes,
            response_size: table.response_size.map_or(1 << 20, |size| size.0),
            is_heuristic: table.heuristic.unwrap_or(true),
            set_cookie: table.set_cookie.unwrap_or(false),
        });
        CacheRules { file: table.file.map_or(cache_file, |size| size.0), responses, ..enabled }
    }

    fn index(&mut self) -> Vec<String> {
        let Some(names) = &self.route.index else {
            let script = self.route.script.as_ref().and_then(|script| script.index());
            return script.into_iter().chain(["index.html".into()]).collect();
        };
        for name in &names.value {
            let special = matches!(name.as_str(), "" | "." | "..");
            if special || name.contains('/') || name.contains('\0') {
                (self.report)(&name.span, format!("index: {:?} is not a file name", name.value));
            }
        }
        names.iter().map(|name| name.value.clone()).collect()
    }

    fn try_files(&mut self, pattern: &Pattern, handler: &Handler) -> Vec<TryStep> {
        let steps = self.route.r#try.as_ref().map_or(&[][..], |steps| &steps.value);
        let mut read = Vec::with_capacity(steps.len());
        for (at, step) in steps.iter().enumerate() {
            match TryStep::parse(step, pattern) {
                Ok(TryStep::Status(_) | TryStep::Proxy) if at + 1 < steps.len() => {
                    let what = format!("try: nothing is looked for after {:?}", step.value);
                    (self.report)(&step.span, what);
                }
                // The route has replaced the proxy of the more general route that has the list.
                Ok(TryStep::Proxy) if handler.proxy().is_none() => read.push(TryStep::Status(404)),
                Ok(step) => read.push(step),
                Err(what) => (self.report)(&step.span, format!("try: {what}")),
            }
        }
        read
    }

    fn early_hints(&mut self) -> Vec<String> {
        let links = self.route.early_hints.as_ref().map_or(&[][..], |links| &links.value);
        for link in links {
            if !link.starts_with('<') || !link.contains('>') || !is_field_value(link.as_bytes()) {
                let what = format!(
                    "early_hints: {:?} is not a link such as \"</style.css>; rel=preload; as=style\"",
                    link.value
                );
                (self.report)(&link.span, what);
            }
        }
        links.iter().map(|link| link.value.clone()).collect()
    }

    /// Files are served with the route's settings, but not from the cache, whose keys are paths of URLs.
    fn sendfile_roots(&self) -> Vec<Arc<Settings>> {
        let script = self.route.script.as_ref().map(|script| &script.sendfile_root);
        let roots = script.or(self.route.proxy.as_ref().map(|proxy| &proxy.sendfile_root));
        let Some(roots) = roots.and_then(Option::as_deref) else { return Vec::new() };
        let mut route = Route {
            alias: None,
            r#try: None,
            index: Some(Spanned::detached(Vec::new())),
            listing: None,
            listing_format: None,
            set_fields: None,
            remove_fields: None,
            hidden: Some(Spanned::detached(true)),
            cache: Some(Spanned::detached(RouteCache::Switch(false))),
            ..self.route.clone()
        };
        route.clear_handler();
        let settings = |root: &Spanned<String>| {
            let root = PathBuf::from(&root.value);
            let maps = Maps::default();
            let patterns = Patterns::everything(&maps);
            Arc::new(Settings::new(&route, root, 0, patterns, &mut |_, _| {}))
        };
        roots.0.iter().map(settings).collect()
    }

    fn types(&mut self) -> HashMap<String, String> {
        let mut types = HashMap::new();
        for (extension, media_type) in self.route.types.iter().flat_map(|types| &types.value) {
            if !is_media_type(media_type) {
                let what = format!(
                    "types: {:?} is not a media type such as \"text/plain\"",
                    media_type.value
                );
                (self.report)(&media_type.span, what);
            }
            let name = extension.trim_start_matches('.').to_ascii_lowercase();
            if name.is_empty() || name.contains('/') {
                let what = format!("types: {:?} is not an extension", extension.value);
                (self.report)(&extension.span, what);
            }
            types.insert(name, media_type.value.clone());
        }
        types
    }

    fn records(&mut self) -> Option<Records> {
        let table = &self.route.records.as_ref()?.0;
        let format = match (table.format, &table.control) {
            (file::RecordFormatName::Variable, control) => {
                if let Some(control) = control {
                    let what = "records: `control` belongs to `vfc` records";
                    (self.report)(&control.span, what.into());
                }
                RecordFormat::Variable
            }
            (file::RecordFormatName::Vfc, control) => {
                RecordFormat::Vfc { control: control.as_deref().copied().unwrap_or(2) }
            }
        };
        Some(Records { format, write: table.write.unwrap_or(false) })
    }
}

/// Checks the syntax of RFC 9110 §8.3.1, without parameters.
fn is_media_type(text: &str) -> bool {
    let (essence, parameters) = text.split_once(';').unwrap_or((text, ""));
    essence
        .trim_end()
        .split_once('/')
        .is_some_and(|(kind, subtype)| is_token(kind.as_bytes()) && is_token(subtype.as_bytes()))
        && is_field_value(parameters.trim().as_bytes())
}
