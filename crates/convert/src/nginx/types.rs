//! Media types of files, charsets and compression.

use super::scope::{PLACES_OF_FILES, Scope};
use super::server::Builder;
use crate::keys::Keys;
use crate::value::Value;

/// How the media types of the server are different from those that come with nginx.
const OTHER_TYPES: &str = "files have the media types of the IANA: `js` text/javascript, `ico` image/vnd.microsoft.icon, `xml` application/xml, and so with rarer ones";

impl<'t> Builder<'_, 't> {
    pub(super) fn types(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        let mut types: Vec<(String, Value)> = Vec::new();
        for directive in scope.all(&["types"]) {
            let is_stock =
                directive.place.file.file_name().is_some_and(|name| name == "mime.types");
            if is_stock {
                self.context.report.differs(directive, OTHER_TYPES);
                continue;
            }
            self.context.report.carried(directive);
            for entry in directive.children().iter().filter(|entry| entry.name != "include") {
                types.extend(
                    entry.words.iter().map(|word| (word.clone(), Value::text(&entry.name))),
                );
            }
        }
        if !types.is_empty() {
            keys.set("types", Value::Table(types));
        }
        self.without_types(scope);
        if let Some(directive) = scope.get("default_type") {
            match directive.word(0) {
                "application/octet-stream" => self
                    .context
                    .report
                    .not_needed(directive, "unknown files are sent so by default"),
                kind if scope.all(&["types"]).iter().any(|types| types.children().is_empty()) => {
                    let what = format!("files are sent by their extension, not as {kind}");
                    self.context.report.lost(directive, what);
                }
                kind => {
                    let what = format!(
                        "files with unknown extensions are sent as application/octet-stream, not as {kind}"
                    );
                    self.context.report.differs(directive, what);
                }
            }
        }
        if let Some(directive) = scope.get("charset_types") {
            let what = "text has the charset, whatever its type; XML and JSON have none (RFC 7303, RFC 8259)";
            self.context.report.differs(directive, what);
        }
        if let Some(directive) = scope.get("charset") {
            match directive.word(0) {
                // It is the default with `nginx_statuses`.
                "off" => self.context.report.carried(directive),
                charset => {
                    let what = "text of every type has it, whatever its extension is";
                    self.context.report.differs(directive, what);
                    keys.set("charset", Value::text(charset));
                }
            }
        }
    }

    /// Reports that sources of scripts are not sent by other locations either.
    pub(super) fn without_sources(&mut self, scope: &Scope<'t>) {
        if !self.has_scripts {
            return;
        }
        let places = ["try_files", "root", "alias", "index"];
        let Some(place) = scope.first(&places) else { return };
        let what = "the source of a script is never sent: a path with the extension of scripts leads to the next one of the list, or to 404";
        self.context.report.differs(place, what);
    }

    /// Reports that text is compressed also where no `gzip` is in force.
    fn without_gzip(&mut self, scope: &Scope<'t>) {
        let Some(place) = scope.first(&PLACES_OF_FILES) else { return };
        let what = "text is compressed for clients that accept it, and its `Vary` names `Accept-Encoding`; `compress = false` ends that";
        self.context.report.differs(place, what);
    }

    /// Reports media types that are not those of the defaults of nginx, where a configuration states none.
    fn without_types(&mut self, scope: &Scope<'t>) {
        let Some(place) = scope.first(&PLACES_OF_FILES) else { return };
        if scope.all(&["types"]).is_empty() {
            let what = "no `types` apply: files have the media types of their extensions, not all but HTML and a few images `default_type`";
            return self.context.report.differs(place, what);
        }
        if scope.get("default_type").is_none() {
            let what = "no `default_type` applies: files with unknown extensions are sent as application/octet-stream, not as text/plain";
            self.context.report.differs(place, what);
        }
    }

    pub(super) fn compression(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        if scope.get("gzip").is_none() {
            self.without_gzip(scope);
        }
        if let Some(directive) = scope.get("gzip") {
            match directive.word(0) {
                "on" => self
                    .context
                    .report
                    .not_needed(directive, "text files are compressed by default"),
                _ => {
                    self.context.report.carried(directive);
                    keys.set("compress", Value::Switch(false));
                }
            }
        }
        for name in ["gzip_types", "brotli", "brotli_types", "zstd", "zstd_types", "gzip_proxied"] {
            if let Some(directive) = scope.get(name) {
                self.context.report.not_needed(
                    directive,
                    "text files are compressed by default, in the coding that the client prefers",
                );
            }
        }
        for name in ["gzip_static", "brotli_static", "zstd_static"] {
            if let Some(directive) = scope.get(name) {
                match directive.word(0) {
                    "off" => self.context.report.differs(directive, "compressed files beside others are sent; `precompressed = false` ends that"),
                    _ => self.context.report.not_needed(directive, "compressed files beside others are sent by default"),
                }
            }
        }
    }
}
