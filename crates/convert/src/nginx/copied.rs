//! `auth_request_set`: fields of the response of the endpoint that upstreams, scripts and clients get.

use super::scope::Scope;
use super::server::Builder;
use crate::value::Value;

impl<'t> Builder<'_, 't> {
    /// Returns the field of the endpoint's response that a text consists of.
    pub(super) fn copied(&self, scope: &Scope<'t>, text: &str) -> Option<String> {
        scope.word("auth_request").filter(|target| *target != "off")?;
        let variable = text.strip_prefix('$')?.trim_matches(|c| matches!(c, '{' | '}'));
        let set = scope
            .all(&["auth_request_set"])
            .into_iter()
            .find(|set| set.word(0).trim_start_matches('$') == variable)?;
        let field = set.word(1).strip_prefix("$upstream_http_")?;
        field
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            .then(|| super::condition::field_name(field))
    }

    /// Returns `true` if a field of that name, as upstreams or clients get it, is one of the endpoint's response.
    pub(super) fn is_copied(&self, scope: &Scope<'t>, name: &str, text: &str) -> bool {
        self.copied(scope, text).is_some_and(|field| field.eq_ignore_ascii_case(name))
    }

    /// Returns the field that names the user: the one that upstreams or scripts get under another name.
    pub(super) fn user_field(&self, scope: &Scope<'t>) -> Option<String> {
        let passes = ["proxy_set_header", "grpc_set_header"];
        let mut renamed = passes.iter().flat_map(|name| scope.all(&[name])).filter_map(|set| {
            let field = self.copied(scope, set.word(1))?;
            (!field.eq_ignore_ascii_case(set.word(0))).then_some(field)
        });
        let user = renamed.next();
        let params = ["fastcgi_param", "uwsgi_param", "scgi_param"];
        let mut params = params.iter().flat_map(|name| scope.all(&[name]));
        user.or_else(|| {
            let param = params.find(|param| param.word(0) == "REMOTE_USER")?;
            self.copied(scope, param.word(1))
        })
    }

    /// Sets the fields of the endpoint's response that are copied.
    pub(super) fn copied_fields(&mut self, scope: &Scope<'t>, auth: &mut Value) {
        let request =
            ["proxy_set_header", "grpc_set_header", "fastcgi_param", "uwsgi_param", "scgi_param"];
        let user = self.user_field(scope);
        let list = |names: &[&str]| {
            let mut fields: Vec<String> = Vec::new();
            for directive in names.iter().flat_map(|name| scope.all(&[name])) {
                let name = directive.word(0).trim_start_matches("HTTP_").replace('_', "-");
                let is_new = !fields.iter().any(|field| field.eq_ignore_ascii_case(&name));
                if is_new && self.is_copied(scope, &name, directive.word(1)) {
                    fields.push(super::condition::field_name(
                        &name.replace('-', "_").to_ascii_lowercase(),
                    ));
                }
            }
            fields
        };
        let copied =
            [("copy_to_request", list(&request)), ("copy_to_response", list(&["add_header"]))];
        if let Some(user) = user {
            auth.set("user_field", Value::text(user));
        }
        for (key, fields) in copied {
            if !fields.is_empty() {
                auth.set(key, Value::list(fields));
            }
        }
        for set in scope.all(&["auth_request_set"]) {
            let variable = set.word(0).to_owned();
            match self.copied(scope, &variable) {
                Some(_) => self.context.report.carried(set),
                None => self
                    .context
                    .report
                    .lost(set, format!("{}: only fields of the response are copied", set.word(1))),
            }
        }
    }
}
