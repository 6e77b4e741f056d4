//! The settings of a path, with every default filled in.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dunlin_http::semantics::{ContentCoding, is_field_value, is_token, status};

use super::at::{At, Place};
use super::file::{BodyHandling, Codings, EtagKind, RecordFormat, Route, RouteCache, Symlinks};
use super::gates;
use super::pattern::Pattern;
use super::script::{self, Script};
use super::sources::Sources;
use super::template::{Template, refuse_variables};
use super::tries::TryStep;
use crate::checks::Checks;
use crate::handler::records;
use crate::telemetry::metrics::Label;

/// What holds for a path.
#[derive(Debug)]
#[expect(missing_docs, reason = "each is described at the key of that name in `file::Route`")]
pub struct Settings {
    pub root: PathBuf,
    pub index: Vec<String>,
    pub try_files: Vec<TryStep>,
    pub listing: bool,
    pub redirect: Option<Redirect>,
    pub respond: Option<Respond>,
    pub script: Option<Arc<Script>>,
    pub status: Option<Status>,
    pub server_timing: bool,
    pub early_hints: Vec<String>,
    pub internal: bool,
    /// How files are served that a script names by `X-Sendfile`, for each of its directories.
    pub sendfile_roots: Vec<Arc<Settings>>,
    pub set_fields: Vec<(String, String)>,
    pub remove_fields: Vec<String>,
    pub cache_control: Option<String>,
    pub expires: Option<Duration>,
    pub charset: String,
    pub types: HashMap<String, String>,
    pub nosniff: bool,
    pub compress: Vec<ContentCoding>,
    pub compress_size: u64,
    pub precompressed: Vec<ContentCoding>,
    pub cache: CacheRules,
    pub sendfile: bool,
    pub etag: EtagKind,
    pub records: Option<Records>,
    pub symlinks: Symlinks,
    pub hidden: bool,
    pub error_pages: HashMap<u16, String>,
    pub access_log: bool,
    pub checks: Option<Arc<Checks>>,
    pub body_size: u64,
    /// When scripts get the request body.
    pub body: BodyHandling,
    pub ranges: usize,
    /// The programs that routes of the site run, none of which is sent as text; `None` when there are none or
    /// the route sends them.
    pub(crate) sources: Option<Arc<Sources>>,
    pub(crate) serve_source: bool,
    /// The path lacks the slash of the route beneath it, to which the client is redirected.
    pub(crate) to_slash: bool,
    /// Another route may have to respond to a request that this one handles first.
    pub(crate) reroutes: bool,
    /// What its requests are counted by.
    pub(crate) label: Label,
    /// The pattern of the most specific route; empty when there is none.
    pub(crate) pattern: String,
}

/// Where to send the client.
#[derive(Debug)]
pub struct Redirect {
    /// The Location.
    pub to: Template,
    /// The status.
    pub status: u16,
    pattern: Pattern,
    /// A slash stands before `{rest}`.
    after_slash: bool,
}

impl Redirect {
    /// What the route's `*` stands for in `path`. After a slash it has none of its own at its
    /// start: `/old*` to `/{rest}` must not send `/old/a.example` to the host `a.example`.
    pub fn rest<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        let rest = self.pattern.rest(path);
        match rest {
            [b'/', after @ ..] if self.after_slash => after,
            _ => rest,
        }
    }
}

/// The server's status.
#[derive(Debug)]
pub struct Status {
    pattern: Pattern,
}

impl Status {
    /// What the route's `*` stands for in `path`.
    pub fn rest<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        self.pattern.rest(path)
    }
}

/// A fixed answer.
#[derive(Debug)]
pub struct Respond {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: bytes::Bytes,
    /// The media type.
    pub content_type: String,
}

/// The cache on a path.
#[derive(Debug, Clone, Copy)]
pub struct CacheRules {
    /// Whether files are kept.
    pub enabled: bool,
    /// Bytes of the largest file that is held whole.
    pub file: u64,
}

/// How files of records are served.
#[derive(Debug, Clone, Copy)]
pub struct Records {
    /// How records are laid out.
    pub format: records::RecordFormat,
    /// Whether the converted form is written beside the source.
    pub write: bool,
}

impl Settings {
    /// Fills in defaults for what `route`, in which everything that holds has been gathered, does
    /// not say. What is wrong in it is told to `report` and left out.
    pub(super) fn new(
        route: &Route,
        root: PathBuf,
        cache_file: u64,
        patterns: &Patterns<'_>,
        report: Report<'_>,
    ) -> Self {
        Reader { route, report }.settings(root, cache_file, patterns)
    }
}

impl Settings {
    /// Has the programs of the site's routes not sent as text, unless the route sends them.
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

/// The patterns whose `*` some settings use.
pub(super) struct Patterns<'a> {
    pub(super) redirects: &'a Pattern,
    pub(super) scripts: &'a Pattern,
    pub(super) statuses: &'a Pattern,
    pub(super) tries: &'a Pattern,
}

/// Takes what is wrong, and where.
pub(super) type Report<'a> = &'a mut dyn FnMut(&Place, String);

struct Reader<'a> {
    route: &'a Route,
    report: Report<'a>,
}

impl Reader<'_> {
    fn settings(mut self, root: PathBuf, cache_file: u64, patterns: &Patterns<'_>) -> Settings {
        self.contradictions();
        let route = self.route;
        let all = || Codings(vec![ContentCoding::Zstd, ContentCoding::Brotli, ContentCoding::Gzip]);
        let codings = |key: &Option<At<Codings>>| key.as_deref().cloned().unwrap_or_else(all).0;
        Settings {
            root,
            index: self.index(),
            try_files: self.try_files(patterns.tries),
            listing: route.listing.as_deref().copied().unwrap_or(false),
            redirect: self.redirect(patterns.redirects),
            respond: self.respond(),
            script: self.script(patterns.scripts),
            status: self.status(patterns.statuses),
            sources: None,
            serve_source: route.serve_source.as_deref().copied().unwrap_or(false),
            to_slash: false,
            reroutes: route.r#try.is_some() || route.index.is_some(),
            label: Label::NONE,
            pattern: String::new(),
            server_timing: route.server_timing.as_deref().copied().unwrap_or(false),
            early_hints: self.early_hints(),
            internal: route.internal.as_deref().copied().unwrap_or(false),
            sendfile_roots: self.sendfile_roots(),
            set_fields: self.set_fields(),
            remove_fields: self.remove_fields(),
            cache_control: self.text("cache_control", route.cache_control.as_ref()),
            expires: route.expires.as_deref().map(|span| span.0),
            charset: self.text("charset", route.charset.as_ref()).unwrap_or_else(|| "utf-8".into()),
            types: self.types(),
            nosniff: route.nosniff.as_deref().copied().unwrap_or(true),
            compress: codings(&route.compress),
            compress_size: route.compress_size.as_deref().map_or(8 << 20, |size| size.0),
            precompressed: codings(&route.precompressed),
            cache: match route.cache.as_deref() {
                Some(RouteCache::Switch(enabled)) => {
                    CacheRules { enabled: *enabled, file: cache_file }
                }
                Some(RouteCache::Table(table)) => CacheRules { enabled: true, file: table.file.0 },
                None => CacheRules { enabled: true, file: cache_file },
            },
            sendfile: route.sendfile.as_deref().copied().unwrap_or(false),
            etag: route.etag.as_deref().copied().unwrap_or(EtagKind::Stat),
            records: self.records(),
            symlinks: route.symlinks.as_deref().copied().unwrap_or(Symlinks::Beneath),
            hidden: route.hidden.as_deref().copied().unwrap_or(false),
            error_pages: self.error_pages(),
            checks: gates::read(route, self.report),
            access_log: route.access_log.as_deref().copied().unwrap_or(true),
            body_size: route.body_size.as_deref().map_or(1 << 20, |size| size.0),
            body: route.body.as_deref().copied().unwrap_or_default(),
            ranges: route.ranges.as_deref().copied().unwrap_or(16),
        }
    }

    fn contradictions(&mut self) {
        let route = self.route;
        if let (Some(redirect), Some(_)) = (&route.redirect, &route.respond) {
            (self.report)(&redirect.span, "a route has either `redirect` or `respond`".into());
        }
        if let Some(script) = &route.script
            && (route.redirect.is_some() || route.respond.is_some())
        {
            let what = "a route has either `script`, `redirect` or `respond`";
            (self.report)(&script.span, what.into());
        }
        let set = || route.set_fields.iter().flat_map(|fields| fields.keys());
        if let Some(status) = route.status.as_ref().filter(|status| status.value)
            && (route.redirect.is_some() || route.respond.is_some() || route.script.is_some())
        {
            let what = "a route has either `status`, `script`, `redirect` or `respond`";
            (self.report)(&status.span, what.into());
        }
        for (at, name) in set().enumerate() {
            if set().skip(at + 1).any(|other| other.eq_ignore_ascii_case(name)) {
                let what = format!("set_fields: {} stands twice", name.value);
                (self.report)(&name.span, what);
            }
            let removed = route.remove_fields.iter().flat_map(|names| &names.value);
            for other in removed.filter(|other| other.eq_ignore_ascii_case(name)) {
                let what = format!("remove_fields: {} is set by the same route", other.value);
                (self.report)(&other.span, what);
            }
        }
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

    fn try_files(&mut self, pattern: &Pattern) -> Vec<TryStep> {
        let steps = self.route.r#try.as_ref().map_or(&[][..], |steps| &steps.value);
        let mut read = Vec::with_capacity(steps.len());
        for (at, step) in steps.iter().enumerate() {
            match TryStep::parse(step, pattern) {
                Ok(TryStep::Status(_)) if at + 1 < steps.len() => {
                    let what = format!("try: nothing is looked for after {:?}", step.value);
                    (self.report)(&step.span, what);
                }
                Ok(step) => read.push(step),
                Err(what) => (self.report)(&step.span, format!("try: {what}")),
            }
        }
        read
    }

    fn redirect(&mut self, pattern: &Pattern) -> Option<Redirect> {
        let table = self.route.redirect.as_ref()?;
        let status = table.status.as_deref().copied().unwrap_or(302);
        if !matches!(status, 301 | 302 | 303 | 307 | 308) {
            let place = table.status.as_ref().and_then(|status| status.span.clone());
            let what = format!("redirect: {status} is not one of 301, 302, 303, 307, 308");
            (self.report)(&place, what);
        }
        let to = self.text("redirect", Some(&table.to))?;
        if to.is_empty() {
            (self.report)(&table.to.span, "redirect: `to` is empty".into());
        }
        let parsed = Template::parse(&to, &["path", "query", "host", "rest"]);
        match parsed.and_then(|template| check_target(&to).map(|()| template)) {
            Ok(template) => Some(Redirect {
                to: template,
                status,
                pattern: pattern.clone(),
                after_slash: to.contains("/{rest}"),
            }),
            Err(what) => {
                (self.report)(&table.to.span, format!("redirect: {what}"));
                None
            }
        }
    }

    fn respond(&mut self) -> Option<Respond> {
        let table = self.route.respond.as_ref()?;
        let code = table.status.as_deref().copied().unwrap_or(200);
        let place = table.status.as_ref().and_then(|status| status.span.clone());
        if !(200..600).contains(&code) {
            let what = format!("respond: {code} is not a status between 200 and 599");
            (self.report)(&place, what);
        }
        let body = table.body.as_deref().cloned().unwrap_or_default();
        if let (Some(at), Err(what)) = (&table.body, refuse_variables(&body, &[])) {
            (self.report)(&at.span, format!("respond: {what}"));
        }
        if !body.is_empty() && !status::allows_content(code) {
            (self.report)(&place, format!("respond: a {code} has no body"));
        }
        let content_type = self.text("respond", table.content_type.as_ref());
        Some(Respond {
            status: code,
            body: body.into(),
            content_type: content_type.unwrap_or_else(|| "text/plain; charset=utf-8".into()),
        })
    }

    fn script(&mut self, pattern: &Pattern) -> Option<Arc<Script>> {
        let table = self.route.script.as_ref()?;
        Some(Arc::new(script::read(table, pattern, self.report)))
    }

    fn status(&mut self, pattern: &Pattern) -> Option<Status> {
        let status = self.route.status.as_ref().filter(|status| status.value)?;
        if pattern.is_literal() {
            let what = "status: the route's pattern has no `*`; write path = \"/status/*\"";
            (self.report)(&status.span, what.into());
        }
        Some(Status { pattern: pattern.clone() })
    }

    fn early_hints(&mut self) -> Vec<String> {
        let links = self.route.early_hints.as_ref().map_or(&[][..], |links| &links.value);
        for link in links {
            if !link.starts_with('<') || !link.contains('>') || !is_field_value(link.as_bytes()) {
                let what = format!(
                    "early_hints: {:?} is no link such as \"</style.css>; rel=preload; as=style\"",
                    link.value
                );
                (self.report)(&link.span, what);
            }
        }
        links.iter().map(|link| link.value.clone()).collect()
    }

    /// The files are served as the route's own, but never from the cache, which knows files by the
    /// paths of URLs.
    fn sendfile_roots(&self) -> Vec<Arc<Settings>> {
        let script = self.route.script.as_ref();
        let Some(roots) = script.and_then(|script| script.sendfile_root.as_deref()) else {
            return Vec::new();
        };
        let route = Route {
            script: None,
            status: None,
            r#try: None,
            index: Some(At::nowhere(Vec::new())),
            listing: None,
            set_fields: None,
            remove_fields: None,
            hidden: Some(At::nowhere(true)),
            cache: Some(At::nowhere(RouteCache::Switch(false))),
            ..self.route.clone()
        };
        let everything = Pattern::EVERYTHING;
        let patterns = Patterns {
            redirects: &everything,
            scripts: &everything,
            statuses: &everything,
            tries: &everything,
        };
        let settings = |root: &At<String>| {
            let root = PathBuf::from(&root.value);
            Arc::new(Settings::new(&route, root, 0, &patterns, &mut |_, _| {}))
        };
        roots.0.iter().map(settings).collect()
    }

    fn set_fields(&mut self) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        for (name, value) in self.route.set_fields.iter().flat_map(|fields| &fields.value) {
            if let Err(what) = may_set(name) {
                (self.report)(&name.span, format!("set_fields: {what}"));
            }
            if let Err(what) = refuse_variables(value, &[]) {
                (self.report)(&value.span, format!("set_fields: {what}"));
            }
            if let Some(value) = self.text("set_fields", Some(value)) {
                fields.push((name.value.clone(), value));
            }
        }
        fields
    }

    fn remove_fields(&mut self) -> Vec<String> {
        let names = self.route.remove_fields.as_ref().map_or(&[][..], |names| &names.value);
        for name in names {
            if let Err(what) = may_remove(name) {
                (self.report)(&name.span, format!("remove_fields: {what}"));
            }
        }
        names.iter().map(|name| name.value.clone()).collect()
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
            (RecordFormat::Variable, control) => {
                if let Some(control) = control {
                    let what = "records: `control` belongs to `vfc` records";
                    (self.report)(&control.span, what.into());
                }
                records::RecordFormat::Variable
            }
            (RecordFormat::Vfc, control) => {
                records::RecordFormat::Vfc { control: control.as_deref().copied().unwrap_or(2) }
            }
        };
        Some(Records { format, write: table.write.unwrap_or(false) })
    }

    fn error_pages(&mut self) -> HashMap<u16, String> {
        let mut checked = HashMap::new();
        for (key, page) in self.route.error_pages.iter().flat_map(|pages| &pages.value) {
            let status = key.parse().ok().filter(|status| (400..600).contains(status));
            if status.is_none() {
                let what = "error_pages: the keys are statuses from 400 to 599";
                (self.report)(&key.span, what.into());
            }
            if let Err(what) = refuse_variables(page, &[]) {
                (self.report)(&page.span, format!("error_pages: {what}"));
            }
            if !page.starts_with('/') || page.contains('\0') {
                let what =
                    format!("error_pages: {:?} is not a path that begins with `/`", page.value);
                (self.report)(&page.span, what);
            }
            checked.extend(status.map(|status| (status, page.value.clone())));
        }
        checked
    }

    /// A text that may stand in a field's value.
    fn text(&mut self, key: &str, text: Option<&At<String>>) -> Option<String> {
        let text = text?;
        if is_field_value(text.as_bytes()) {
            return Some(text.value.clone());
        }
        (self.report)(&text.span, format!("{key}: {:?} holds a control character", text.value));
        None
    }
}

/// Refuses a `to` by which a client could choose another scheme or host: the text has to say them itself.
fn check_target(to: &str) -> Result<(), String> {
    if to.is_empty() {
        // Reported as what it is.
        return Ok(());
    }
    if to.starts_with('/') || to.starts_with("{path}") {
        // `//host` names a host, and so would `/` and what begins with a slash; `{rest}` never does.
        let authority = to.strip_prefix("//").map(until_path);
        return match authority {
            Some(authority) if authority.contains("{rest}") => Err(REST_IN_HOST.into()),
            _ => Ok(()),
        };
    }
    let scheme = to.split_once(':').map(|(scheme, _)| scheme).filter(|scheme| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(plain)
    });
    let Some(scheme) = scheme else {
        return Err(format!(
            "{to:?} begins neither with `/` nor with a scheme such as \"https://\", so that a client could choose one"
        ));
    };
    if ["javascript", "data", "vbscript"].iter().any(|other| scheme.eq_ignore_ascii_case(other)) {
        return Err(format!("{to:?} is run by browsers and is no place to go"));
    }
    let rest = &to[scheme.len() + 1..];
    match rest.strip_prefix("//").map(until_path) {
        Some(authority) if authority.contains("{rest}") => Err(REST_IN_HOST.into()),
        _ => Ok(()),
    }
}

const REST_IN_HOST: &str =
    "{rest} would be part of the host, which a client could choose; write a `/` before it";

/// What stands before the path of a URL.
fn until_path(text: &str) -> &str {
    let ends = ["/", "?", "#", "{path}", "{query}"].into_iter().filter_map(|end| text.find(end));
    &text[..ends.min().unwrap_or(text.len())]
}

/// Fields that say how the message is framed or what its bytes are: never the configuration's.
const FRAMING: [&str; 12] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "date",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "vary",
];

/// Fields that the server makes and also acts upon, and the setting that changes them. A value
/// of the configuration's own would contradict what the server then does.
const MADE: [(&str, &str); 5] = [
    ("accept-ranges", "ranges"),
    ("etag", "etag"),
    ("expires", "expires"),
    ("last-modified", "remove_fields"),
    ("server", "server_field"),
];

fn may_remove(name: &str) -> Result<(), String> {
    if !is_token(name.as_bytes()) {
        return Err(format!("{name:?} is not a field name"));
    }
    if FRAMING.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(format!("{name} is the server's to send"));
    }
    if name.eq_ignore_ascii_case("server") {
        return Err("Server is left out by `server_field = false`".into());
    }
    Ok(())
}

fn may_set(name: &str) -> Result<(), String> {
    may_remove(name)?;
    match MADE.iter().find(|(made, _)| name.eq_ignore_ascii_case(made)) {
        Some((_, key)) => Err(format!("{name} is the server's to set; see `{key}`")),
        None => Ok(()),
    }
}

/// RFC 9110 §8.3.1; parameters are taken as they are.
fn is_media_type(text: &str) -> bool {
    let (essence, parameters) = text.split_once(';').unwrap_or((text, ""));
    essence
        .trim_end()
        .split_once('/')
        .is_some_and(|(kind, subtype)| is_token(kind.as_bytes()) && is_token(subtype.as_bytes()))
        && is_field_value(parameters.trim().as_bytes())
}
