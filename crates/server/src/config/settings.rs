//! The settings of a path, with every default filled in.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use dunlin_http::semantics::{Coding, is_field_value, is_token};

use super::file::{Codings, EtagKind, RecordFormat, Route, RouteCache, Symlinks};
use super::pattern::Pattern;
use super::template::Template;
use crate::handler::records;

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
    pub set_fields: Vec<(String, String)>,
    pub remove_fields: Vec<String>,
    pub cache_control: Option<String>,
    pub expires: Option<Duration>,
    pub charset: String,
    pub types: HashMap<String, String>,
    pub nosniff: bool,
    pub compress: Vec<Coding>,
    pub compress_size: u64,
    pub precompressed: Vec<Coding>,
    pub cache: CacheRules,
    pub sendfile: bool,
    pub etag: EtagKind,
    pub records: Option<Records>,
    pub symlinks: Symlinks,
    pub hidden: bool,
    pub error_pages: HashMap<u16, String>,
    pub access_log: bool,
    pub body_size: u64,
    pub ranges: usize,
}

/// One step of a `try` list.
#[derive(Debug)]
pub enum TryStep {
    /// A path to look for.
    Path(Template),
    /// The end of the search: this status.
    Status(u16),
}

/// Where to send the client.
#[derive(Debug)]
pub struct Redirect {
    /// The Location.
    pub to: Template,
    /// The status.
    pub status: u16,
    pattern: Pattern,
}

impl Redirect {
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
    /// Checks `route`, in which everything that holds has been gathered, and fills in defaults.
    pub(super) fn new(
        route: &Route,
        root: PathBuf,
        cache_file: u64,
        pattern: &Pattern,
    ) -> Result<Self, String> {
        let all = || Codings(vec![Coding::Zstd, Coding::Brotli, Coding::Gzip]);
        let steps = route.r#try.as_deref().unwrap_or_default();
        Ok(Self {
            root,
            index: index(route)?,
            try_files: steps.iter().map(|step| try_step(step)).collect::<Result<_, _>>()?,
            listing: route.listing.unwrap_or(false),
            redirect: redirect(route, pattern)?,
            respond: respond(route)?,
            set_fields: set_fields(route)?,
            remove_fields: remove_fields(route)?,
            cache_control: value("cache_control", route.cache_control.as_ref())?,
            expires: route.expires.map(|span| span.0),
            charset: value("charset", route.charset.as_ref())?.unwrap_or_else(|| "utf-8".into()),
            types: types(route)?,
            nosniff: route.nosniff.unwrap_or(true),
            compress: route.compress.clone().unwrap_or_else(all).0,
            compress_size: route.compress_size.map_or(8 << 20, |size| size.0),
            precompressed: route.precompressed.clone().unwrap_or_else(all).0,
            cache: match &route.cache {
                Some(RouteCache::Switch(enabled)) => {
                    CacheRules { enabled: *enabled, file: cache_file }
                }
                Some(RouteCache::Table(table)) => CacheRules { enabled: true, file: table.file.0 },
                None => CacheRules { enabled: true, file: cache_file },
            },
            sendfile: route.sendfile.unwrap_or(false),
            etag: route.etag.unwrap_or(EtagKind::Stat),
            records: records_rules(route)?,
            symlinks: route.symlinks.unwrap_or(Symlinks::Beneath),
            hidden: route.hidden.unwrap_or(false),
            error_pages: error_pages(route)?,
            access_log: route.access_log.unwrap_or(true),
            body_size: route.body_size.map_or(1 << 20, |size| size.0),
            ranges: route.ranges.unwrap_or(16),
        })
    }
}

impl Settings {
    /// Nothing but the defaults.
    pub(super) fn fallback(root: PathBuf) -> Self {
        Self {
            root,
            index: vec!["index.html".into()],
            try_files: Vec::new(),
            listing: false,
            redirect: None,
            respond: None,
            set_fields: Vec::new(),
            remove_fields: Vec::new(),
            cache_control: None,
            expires: None,
            charset: "utf-8".into(),
            types: HashMap::new(),
            nosniff: true,
            compress: Vec::new(),
            compress_size: 0,
            precompressed: Vec::new(),
            cache: CacheRules { enabled: false, file: 0 },
            sendfile: false,
            etag: EtagKind::Stat,
            records: None,
            symlinks: Symlinks::Deny,
            hidden: false,
            error_pages: HashMap::new(),
            access_log: true,
            body_size: 0,
            ranges: 0,
        }
    }
}

fn index(route: &Route) -> Result<Vec<String>, String> {
    let names = route.index.clone().unwrap_or_else(|| vec!["index.html".into()]);
    match names.iter().find(|name| name.is_empty() || name.contains('/') || name.contains('\0')) {
        Some(name) => Err(format!("index: {name:?} is not a file name")),
        None => Ok(names),
    }
}

fn try_step(step: &str) -> Result<TryStep, String> {
    if let Some(status) = step.strip_prefix('=') {
        let status = status.parse().ok().filter(|status| (400..600).contains(status));
        return status
            .map(TryStep::Status)
            .ok_or_else(|| format!("try: {step:?} is not an error status such as \"=404\""));
    }
    if !step.starts_with("{path}") && !step.starts_with('/') {
        return Err(format!("try: {step:?} begins neither with {{path}} nor with `/`"));
    }
    Template::parse(step, &["path"]).map(TryStep::Path).map_err(|error| format!("try: {error}"))
}

fn redirect(route: &Route, pattern: &Pattern) -> Result<Option<Redirect>, String> {
    let Some(table) = &route.redirect else { return Ok(None) };
    let status = table.status.unwrap_or(302);
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return Err(format!("redirect: {status} is not one of 301, 302, 303, 307, 308"));
    }
    let to = Template::parse(&table.to, &["path", "query", "host", "rest"])
        .map_err(|error| format!("redirect: {error}"))?;
    Ok(Some(Redirect { to, status, pattern: pattern.clone() }))
}

fn respond(route: &Route) -> Result<Option<Respond>, String> {
    let Some(table) = &route.respond else { return Ok(None) };
    let status = table.status.unwrap_or(200);
    if !(200..600).contains(&status) {
        return Err(format!("respond: {status} is not a status between 200 and 599"));
    }
    let content_type = value("respond", table.content_type.as_ref())?;
    Ok(Some(Respond {
        status,
        body: table.body.clone().unwrap_or_default().into(),
        content_type: content_type.unwrap_or_else(|| "text/plain; charset=utf-8".into()),
    }))
}

fn value(key: &str, value: Option<&String>) -> Result<Option<String>, String> {
    match value {
        Some(text) if !is_field_value(text.as_bytes()) => {
            Err(format!("{key}: {text:?} holds a control character"))
        }
        value => Ok(value.cloned()),
    }
}

/// Fields that say how the message is framed or sent: the server's own business.
const COMPUTED: [&str; 9] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "date",
    "keep-alive",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

fn field_name(key: &str, name: &str) -> Result<(), String> {
    if !is_token(name.as_bytes()) {
        return Err(format!("{key}: {name:?} is not a field name"));
    }
    if COMPUTED.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(format!("{key}: {name} is the server's to set"));
    }
    Ok(())
}

fn set_fields(route: &Route) -> Result<Vec<(String, String)>, String> {
    let fields = route.set_fields.clone().unwrap_or_default();
    for (name, text) in &fields {
        field_name("set_fields", name)?;
        value("set_fields", Some(text))?;
    }
    Ok(fields.into_iter().collect())
}

fn remove_fields(route: &Route) -> Result<Vec<String>, String> {
    let names = route.remove_fields.clone().unwrap_or_default();
    names.iter().try_for_each(|name| field_name("remove_fields", name))?;
    Ok(names)
}

fn types(route: &Route) -> Result<HashMap<String, String>, String> {
    let mut types = HashMap::new();
    for (extension, media_type) in route.types.iter().flatten() {
        let extension = extension.trim_start_matches('.').to_ascii_lowercase();
        let well_formed = media_type.split_once('/').is_some_and(|(kind, rest)| {
            is_token(kind.as_bytes()) && !rest.is_empty() && is_field_value(rest.as_bytes())
        });
        if !well_formed {
            return Err(format!(
                "types: {media_type:?} is not a media type such as \"text/plain\""
            ));
        }
        types.insert(extension, media_type.clone());
    }
    Ok(types)
}

fn records_rules(route: &Route) -> Result<Option<Records>, String> {
    let Some(rules) = &route.records else { return Ok(None) };
    let table = &rules.0;
    let format = match (table.format, table.control) {
        (RecordFormat::Variable, None) => records::RecordFormat::Variable,
        (RecordFormat::Variable, Some(_)) => {
            return Err("records: `control` belongs to `vfc` records".into());
        }
        (RecordFormat::Vfc, control) => {
            records::RecordFormat::Vfc { control: control.unwrap_or(2) }
        }
    };
    Ok(Some(Records { format, write: table.write.unwrap_or(false) }))
}

fn error_pages(route: &Route) -> Result<HashMap<u16, String>, String> {
    let pages: &BTreeMap<_, _> = &route.error_pages.clone().unwrap_or_default();
    let mut checked = HashMap::new();
    for (status, page) in pages {
        let status = status.parse().ok().filter(|status| (400..600).contains(status));
        let status = status.ok_or("error_pages: the keys are statuses from 400 to 599")?;
        if !page.starts_with('/') {
            return Err(format!("error_pages: {page:?} is not a path that begins with `/`"));
        }
        checked.insert(status, page.clone());
    }
    Ok(checked)
}
