//! The response with a page of a directory listing.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use dunlin_http::semantics::EntityTag;
use dunlin_http::semantics::conditional::{PreconditionOutcome, Validators};
use dunlin_http::semantics::negotiate::prefers_json;
use dunlin_http::{FieldLines, FieldName, OwnedRequest};
use smallvec::SmallVec;

use super::cache::{Kept, ListingCache, ListingKey, MAX_BYTES};
use super::contents::{Contents, NoSuchPage};
use super::json::json;
use super::page::{self, View, html};
use super::query::Query;
use super::read::{Bounds, DirectoryReader, Links};
use super::{Entry, PAGE, Page, navigation, nginx};
use crate::digest::sha256;
use crate::file_response::FileResponse;
use crate::select::precondition;
use crate::{render, validators};
use dunlin_config::field_edits::{apply_conditional, apply_unconditional};
use dunlin_config::{EtagKind, ListingFormat, Settings};
use dunlin_fs::content::Piece;
use dunlin_fs::file_system::FileSystem;
use dunlin_fs::metadata::FileMetadata;
use dunlin_fs::protected::Protected;
use dunlin_net::clock;

/// The part that is read of a directory that is not kept.
const SMALL: Bounds = Bounds { names: PAGE, bytes: MAX_BYTES };

/// The part that is read of any directory. The last entry may exceed the bytes.
const LARGE: Bounds = Bounds { names: 1_000_000, bytes: MAX_BYTES - 1024 };

/// A request for the listing of a directory.
#[derive(Debug)]
pub struct ListingRequest {
    /// The request, with GET or HEAD.
    pub request: OwnedRequest,
    /// The settings of its route.
    pub settings: Arc<Settings>,
    /// The decoded path of the directory, with a final slash.
    pub path: Box<[u8]>,
    /// The query.
    pub query: Option<Box<[u8]>>,
    /// The directory.
    pub directory: Listable,
    /// Files that are not listed.
    pub protected: Arc<Protected>,
    /// The contents of large directories.
    pub cache: Arc<ListingCache>,
    /// The time of the request, before `directory` was opened or later.
    pub arrived: Instant,
}

/// A directory that is listed.
#[derive(Debug)]
pub enum Listable {
    /// A directory that is read for the request.
    Directory(File),
    /// A directory that was read.
    Read(ReadDirectory),
}

/// A directory that was read.
#[derive(Debug)]
pub struct ReadDirectory {
    pub(crate) contents: Arc<Contents>,
}

/// The result of a request for a listing.
#[derive(Debug)]
pub enum Listed {
    /// The page. The caller omits the body for HEAD.
    Response(FileResponse),
    /// An error with this status, these additional fields and this text.
    Error(u16, FieldLines, Option<String>),
    /// The directory is large and its contents are not known: the caller repeats the request with
    /// [`ListingRequest::list_large`].
    Large(Box<ListingRequest>),
}

impl ListingRequest {
    /// Lists a small directory, or one whose contents are known, as JSON for clients that prefer it, otherwise as HTML.
    /// Blocks; for the pool for listings.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn list(self: Box<Self>) -> io::Result<Listed> {
        let directory = match &self.directory {
            Listable::Directory(directory) => directory,
            Listable::Read(read) => {
                let contents = self.visible(&read.contents);
                return self.respond(&contents, false);
            }
        };
        if let Some(contents) = self.known(directory)? {
            return self.respond(&contents, true);
        }
        let contents = self.reader(directory)?.read(SMALL)?;
        if contents.truncated {
            return Ok(Listed::Large(self));
        }
        self.respond(&contents, false)
    }

    /// Lists a directory of any size. Blocks; for the pool for large listings.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn list_large(self: Box<Self>) -> io::Result<Listed> {
        let Listable::Directory(opened) = &self.directory else { return self.list() };
        // An earlier job of the pool may have read the directory.
        if let Some(contents) = self.known(opened)? {
            return self.respond(&contents, true);
        }
        let started = clock::now();
        let seen = clock::since_1970();
        let directory = FileMetadata::of(opened)?;
        let is_settled = self.settings.cache.enabled
            && FileSystem::of(opened).keeps_change_times
            && validators::is_change_settled(&directory, seen);
        let contents = Arc::new(self.reader(opened)?.read(LARGE)?);
        let kept = Arc::clone(&contents);
        self.cache.insert(Kept { key: self.key(), directory, is_settled, started, contents: kept });
        self.respond(&contents, false)
    }

    /// Returns the contents of the directory if they were read before and may be used.
    fn known(&self, directory: &File) -> io::Result<Option<Arc<Contents>>> {
        let directory = FileMetadata::of(directory)?;
        Ok(self.cache.get(&self.key(), &directory, self.arrived))
    }

    fn key(&self) -> ListingKey {
        let Settings { root, hidden, symlinks, .. } = &*self.settings;
        ListingKey {
            root: root.clone(),
            path: self.settings.file_path(&self.path).unwrap_or_default().into(),
            hidden: *hidden,
            symlinks: *symlinks,
        }
    }

    fn reader<'a>(&'a self, directory: &'a File) -> io::Result<DirectoryReader<'a>> {
        let links = Links::of(&self.settings, &self.path)?;
        let (hidden, protected) = (self.settings.hidden, &self.protected);
        Ok(DirectoryReader { directory, hidden, links, protected })
    }

    /// Returns the entries that requests of the route can have.
    fn visible<'c>(&self, contents: &'c Contents) -> Cow<'c, Contents> {
        match self.settings.hidden {
            true => Cow::Borrowed(contents),
            false => Cow::Owned(contents.without_hidden()),
        }
    }

    /// Responds with the requested page. If the contents were `read_before`, the metadata of its names is read again.
    fn respond(&self, contents: &Contents, read_before: bool) -> io::Result<Listed> {
        let query = Query::parse(self.query.as_deref());
        let found = match self.settings.listing_format {
            ListingFormat::Auto => contents.page(&query),
            _ => Ok(contents.whole()),
        };
        let mut page = match found {
            Ok(page) => page,
            Err(NoSuchPage { pages }) => {
                let text = match pages {
                    1 => "This listing has one page.".to_owned(),
                    pages => format!("This listing has the pages 1 to {pages}."),
                };
                return Ok(Listed::Error(404, FieldLines::new(), Some(text)));
            }
        };
        if let (true, Listable::Directory(directory)) = (read_before, &self.directory) {
            let reader = self.reader(directory)?;
            let entries = page.entries.iter().filter_map(|entry| reader.entry(&entry.name));
            page.entries = entries.collect();
        }
        Ok(self.conditional(&page, &query))
    }

    /// Returns the response with the page, or the result of the request's conditions.
    fn conditional(&self, page: &Page, query: &Query) -> Listed {
        let mut response = self.complete(page, query);
        let request = self.request.as_request();
        let etag = response.body.front().and_then(|body| self.entity_tag(body));
        if let Some(etag) = &etag {
            response.fields.push("ETag", etag.to_string());
        }
        apply_unconditional(&self.settings, &mut response.fields);
        let current = Validators { etag: etag.as_ref(), last_modified: None };
        match precondition(&request, Some(&current)) {
            PreconditionOutcome::Proceed => {
                apply_conditional(&self.settings, response.status, &mut response.fields);
                Listed::Response(response)
            }
            PreconditionOutcome::NotModified => {
                let fields = render::without_content(&response.fields);
                let fields = render::with_edits(&self.settings, 304, fields);
                Listed::Response(FileResponse::new(304, fields))
            }
            PreconditionOutcome::PreconditionFailed => {
                let mut fields = FieldLines::new();
                if let Some(etag) = etag {
                    fields.push("ETag", etag.to_string());
                }
                Listed::Error(412, fields, None)
            }
        }
    }

    /// Returns a hash of the page: no time of the directory covers the files in it.
    fn entity_tag(&self, body: &Piece) -> Option<EntityTag> {
        match body {
            Piece::Memory(text) if self.settings.etag != EtagKind::Off => {
                Some(EntityTag::strong(validators::hex(&sha256(text)[..16])))
            }
            _ => None,
        }
    }

    /// Returns the 200 with the page.
    fn complete(&self, page: &Page, query: &Query) -> FileResponse {
        let request = self.request.as_request();
        let accept: SmallVec<[&[u8]; 2]> = request.values(FieldName::Accept).collect();
        let mut response = FileResponse::new(200, FieldLines::new());
        let is_negotiated = self.settings.listing_format == ListingFormat::Auto;
        let text = if !is_negotiated {
            let format = self.settings.listing_format;
            let kind = nginx::media_type(format, &self.settings.charset);
            response.fields.push("Content-Type", kind);
            // Programs that read these formats know nothing of names that begin with a dot.
            let is_shown = |entry: &&Entry| !entry.name.starts_with(b".");
            let entries: Vec<Entry> = page.entries.iter().filter(is_shown).cloned().collect();
            nginx::text(format, &entries, &self.path, self.query.as_deref())
        } else if prefers_json(&accept) {
            response.fields.push("Content-Type", "application/json");
            json(page, &self.path)
        } else {
            response.fields.push("Content-Type", "text/html; charset=utf-8");
            response.fields.push("Content-Security-Policy", &*page::CSP);
            let host = request.field(FieldName::Host).unwrap_or_default();
            html(page, View { path: &self.path, host, query })
        };
        response.push(Piece::Memory(text.into()));
        if is_negotiated {
            response.fields.push("Vary", "Accept");
        }
        response.fields.push("Cache-Control", "no-cache");
        if let Some(links) = navigation::field(page, query).filter(|_| is_negotiated) {
            response.fields.push("Link", links);
        }
        if self.settings.nosniff {
            response.fields.push("X-Content-Type-Options", "nosniff");
        }
        response
    }
}
