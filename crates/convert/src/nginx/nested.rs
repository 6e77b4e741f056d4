//! Expressions of locations within the location of a prefix.

use super::assemble::{Drafts, Paths, Place, text_of};
use super::server::Builder;

impl Builder<'_, '_> {
    /// Expressions within a prefix are for the paths of no longer prefix: where there is one, they come after it. So they come after the
    /// expressions of the server, too, which none of them may meet.
    pub(super) fn place_nested(&mut self) {
        let nested = std::mem::take(&mut self.nested);
        // The first one is inserted last, before the others.
        for (expression, prefix, directive) in nested.into_iter().rev() {
            let Drafts { regexes, prefixes, .. } = &mut self.drafts;
            let is_longer = |text: &str| text.starts_with(&prefix) && text != prefix;
            let mut texts = prefixes.iter().map(|place| text_of(&place.draft.paths));
            if !texts.any(|text| is_longer(text) && expression.may_match_beneath(text)) {
                continue;
            }
            let is_own = |place: &Place| matches!(&place.draft.paths, Paths::Regex(own) if *own == expression);
            let may_meet = |place: &Place| matches!(&place.draft.paths, Paths::Regex(other) if other.may_meet(&expression));
            let is_met = regexes.iter().any(|place| !is_own(place) && may_meet(place));
            let at = regexes.iter().position(is_own);
            let outer = prefixes
                .iter_mut()
                .find(|place| text_of(&place.draft.paths) == prefix && !place.is_preferred);
            match (at, outer) {
                (Some(at), Some(outer)) if !is_met => {
                    let Place { draft, before, .. } = regexes.remove(at);
                    outer.before.splice(0..0, before.into_iter().chain([draft]));
                }
                _ => {
                    let what = "it is for paths of longer prefixes, too";
                    self.context.report.differs(directive, what);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{converted, site};

    const NESTED: &str = "location / { proxy_pass http://10.0.0.1; location ~ \\.css$ { proxy_pass http://10.0.0.1; expires 1y; } }\n\
        location /api { proxy_pass http://10.0.0.2; }";
    const NOTE: &str = "location: it is for paths of longer prefixes, too";

    #[test]
    fn a_prefix_that_an_expression_excludes_comes_before_it() {
        let text = site(
            "proxy_pass_header Server; limit_rate 1k;\n\
             location /m/a { proxy_pass http://10.0.0.1; add_header X-A 1; }\n\
             location ~ ^/m/(?!a|b).* { proxy_pass http://10.0.0.2; }\n\
             location / { return 404; }",
        );
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}\n{text}"));
        assert!(at("regex = \"^/m/a\"") < at("regex = \"^/m/(?:a|b)\""), "{text}");
        assert_eq!(text.matches("regex = \"^/m/a\"").count(), 1, "{text}");
    }

    #[test]
    fn an_expression_within_a_prefix_comes_after_longer_ones() {
        let text = site(NESTED);
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}\n{text}"));
        assert!(at("regex = \"^/api\"") < at("regex = '\\.css$'"), "{text}");
        let report = |more: &str| {
            let converted = converted(&format!("server {{ {NESTED}\n{more} }}"));
            converted.report.findings().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        assert!(!report("").contains(NOTE), "{}", report(""));
        // It would have to come before this one, too.
        let met = report("location ~ /x { return 404; }");
        assert!(met.contains(NOTE), "{met}");
    }
}
