//! Variables of scripts whose values follow from the request: `env = { HTTP_X_REAL_IP = "{client}" }`.

use super::super::facts::Facts;
use super::super::file::ScriptKind;
use super::super::map::Maps;
use super::super::report::Report;
use super::super::spanned::Span;
use super::super::template::{Template, names_values};
use super::Script;

/// A variable whose value follows from the request.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestEnv {
    /// The name.
    pub name: String,
    value: Template,
}

impl RequestEnv {
    /// Takes the variables with placeholders out of those of a script that gets its variables with each request.
    pub(super) fn divided(
        mut script: Script,
        maps: &Maps,
        place: &Span,
        report: Report<'_>,
    ) -> Script {
        use ScriptKind::{Cgi, FastCgi, Scgi, Uwsgi};
        if !matches!(script.kind, Cgi | FastCgi | Scgi | Uwsgi) {
            return script;
        }
        let (of_request, fixed): (Vec<_>, Vec<_>) =
            std::mem::take(&mut script.env).into_iter().partition(|(_, value)| names_values(value));
        script.env = fixed;
        for (name, value) in of_request {
            match Template::in_text(&value, &[], maps) {
                Ok(value) => script.request_env.push(Self { name, value }),
                Err(what) => report(place, format!("script: env: {name}: {what}")),
            }
        }
        script
    }

    /// Returns the value for a request.
    pub fn value(&self, facts: &Facts<'_>) -> Vec<u8> {
        let plain = |value: &[u8], text: &mut Vec<u8>| text.extend_from_slice(value);
        self.value.render(Some(facts), plain, |_, _| {})
    }
}
