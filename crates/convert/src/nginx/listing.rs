//! `autoindex_format` and what else shapes listings.

use super::scope::Scope;
use super::server::Builder;
use crate::keys::Keys;
use crate::value::Value;

impl<'t> Builder<'_, 't> {
    /// The format of listings, for programs that read them.
    pub(super) fn listing_format(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        let format = match scope.word("autoindex_format") {
            Some("json") => "nginx-json",
            Some("jsonp") => "nginx-jsonp",
            Some("xml") => "nginx-xml",
            _ => "nginx",
        };
        if let Some(directive) = scope.get("autoindex_format") {
            self.context.report.carried(directive);
        }
        keys.set("listing_format", Value::text(format));
        for (name, default, what) in [
            ("autoindex_exact_size", "on", "sizes are in bytes"),
            ("autoindex_localtime", "off", "times are in UTC"),
        ] {
            let Some(directive) = scope.get(name) else { continue };
            match directive.word(0) == default {
                true => self.context.report.carried(directive),
                false => self.context.report.differs(directive, what),
            }
        }
    }
}
