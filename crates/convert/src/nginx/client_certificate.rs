//! The certificate that upstreams get.

use super::parse::Directive;
use super::server::Builder;
use super::variables::has_variable;
use crate::value::Value;

impl<'t> Builder<'_, 't> {
    /// Sets the certificate of this server for upstreams, and its key.
    pub(super) fn client_certificate(&mut self, files: [&'t Directive; 2], proxy: &mut Value) {
        let is_off = files.iter().any(|directive| directive.word(0).is_empty());
        if files.iter().any(|directive| has_variable(directive.word(0))) {
            for directive in files {
                let what = "the file depends on the request: the upstream gets no certificate";
                self.context.report.lost(directive, what);
            }
            return;
        }
        files.iter().for_each(|directive| self.context.report.carried(directive));
        if is_off {
            return;
        }
        let [certificate, key] =
            files.map(|directive| Value::text(self.context.in_folder(directive.word(0))));
        let pair = Value::table([("certificate", certificate), ("key", key)]);
        proxy.set("client_certificate", pair);
    }
}
