//! Conditions on files, `if (-f $document_root/maintenance.html)`, as those of a route.

use super::condition::{Condition, negated, terms};
use super::parse::Directive;
use super::server::{Builder, Location};
use super::variables::Constants;
use crate::value::Value;

impl<'t> Builder<'_, 't> {
    /// Returns the condition of an `if` on a file whose name follows from the request; `None` for others.
    pub(super) fn file_condition(
        &mut self,
        directive: &Directive,
        location: &Location<'t>,
        constants: &Constants,
    ) -> Option<Condition> {
        let [sign, name] = terms(&directive.words)[..] else { return None };
        let key = match sign.trim_start_matches('!') {
            "-f" => "file",
            "-d" => "directory",
            "-e" => "exists",
            _ => return None,
        };
        if name.contains("$request_filename") && location.scope.own_directive("alias").is_some() {
            return None;
        }
        let name = name.replace("$request_filename", "$document_root$uri");
        let path = self.context.template(&name, constants, |_| None).ok()?;
        // After a rewrite, the target is another one here.
        (path.starts_with('/') && !path.starts_with("/{") && !path.contains("{target}"))
            .then_some(())?;
        let holds = Condition::When(Value::table([(key, Value::text(path))]));
        if sign.starts_with('!') { negated(holds).ok() } else { Some(holds) }
    }
}

/// Returns `true` if the search for a file does what an `if` is for, with a list of paths in place of a condition.
pub(super) fn is_search(directive: &Directive, exists: bool) -> bool {
    let children = directive.children();
    let count = |name: &str| children.iter().filter(|child| child.name == name).count();
    let others = children.len() - count("break");
    let redirects = |child: &Directive| matches!(child.word(2), "redirect" | "permanent");
    match exists {
        true => children.len() == 1 && count("break") == 1,
        false => {
            let of_rewrite = others == 1 && count("rewrite") == 1;
            count("proxy_pass") == 1
                || of_rewrite && !children.iter().any(redirects)
                || others == 1 && count("return") == 1
        }
    }
}
