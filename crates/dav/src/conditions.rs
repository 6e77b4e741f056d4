//! The field `If` (RFC 4918 §10.4): lists of conditions, of which one list must hold.

use dunlin_http::semantics::EntityTag;

use super::Malformed;

/// The value of the field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conditions {
    lists: Vec<List>,
}

/// Conditions that hold together.
#[derive(Debug, Clone, PartialEq, Eq)]
struct List {
    /// The URL of the resource; that of the request if there is none.
    resource: Option<Box<[u8]>>,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    is_negated: bool,
    state: State,
}

/// A state of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It has a lock with this token.
    Token(Box<str>),
    /// It has this entity tag.
    Tag(EntityTag),
}

/// The maximum number of conditions.
const MAX: usize = 100;

impl Conditions {
    /// Reads the value of the field.
    ///
    /// # Errors
    /// If it is malformed, mixes lists with and without a resource, or has too many conditions.
    pub fn parse(value: &[u8]) -> Result<Self, Malformed> {
        let mut parser = Parser { rest: value.trim_ascii(), count: 0 };
        let mut lists = Vec::new();
        let mut resource: Option<Box<[u8]>> = None;
        let is_tagged = parser.rest.starts_with(b"<");
        while !parser.rest.is_empty() {
            if parser.rest.starts_with(b"<") {
                if !is_tagged {
                    return Err(Malformed);
                }
                resource = Some(parser.bracketed(b'<', b'>')?.into());
            }
            lists.push(List { resource: resource.clone(), conditions: parser.list()? });
        }
        if lists.is_empty() { Err(Malformed) } else { Ok(Self { lists }) }
    }

    /// Returns `true` if all conditions of a list hold. `has` gets the URL of another resource than that of the request.
    pub fn hold(&self, mut has: impl FnMut(Option<&[u8]>, &State) -> bool) -> bool {
        self.lists.iter().any(|list| {
            let resource = list.resource.as_deref();
            let mut conditions = list.conditions.iter();
            conditions.all(|condition| has(resource, &condition.state) != condition.is_negated)
        })
    }

    /// Returns the tokens of locks that the client has submitted: those that are not negated.
    pub fn tokens(&self) -> impl Iterator<Item = &str> {
        let conditions = self.lists.iter().flat_map(|list| &list.conditions);
        conditions.filter_map(|condition| match &condition.state {
            State::Token(token) if !condition.is_negated => Some(&**token),
            _ => None,
        })
    }
}

struct Parser<'v> {
    rest: &'v [u8],
    count: usize,
}

impl<'v> Parser<'v> {
    fn list(&mut self) -> Result<Vec<Condition>, Malformed> {
        self.rest = self.rest.strip_prefix(b"(").ok_or(Malformed)?.trim_ascii_start();
        let mut conditions = Vec::new();
        loop {
            if let Some(rest) = self.rest.strip_prefix(b")") {
                self.rest = rest.trim_ascii_start();
                return if conditions.is_empty() { Err(Malformed) } else { Ok(conditions) };
            }
            self.count += 1;
            if self.count > MAX {
                return Err(Malformed);
            }
            conditions.push(self.condition()?);
        }
    }

    fn condition(&mut self) -> Result<Condition, Malformed> {
        let is_negated = self.rest.get(..3).is_some_and(|word| word.eq_ignore_ascii_case(b"not"));
        if is_negated {
            self.rest = self.rest[3..].trim_ascii_start();
        }
        let state = match self.rest.first() {
            Some(b'<') => {
                let token = std::str::from_utf8(self.bracketed(b'<', b'>')?);
                State::Token(token.map_err(|_| Malformed)?.into())
            }
            Some(b'[') => {
                let tag = self.bracketed(b'[', b']')?;
                State::Tag(EntityTag::parse(tag).ok_or(Malformed)?)
            }
            _ => return Err(Malformed),
        };
        Ok(Condition { is_negated, state })
    }

    /// Takes what stands between two brackets, and the spaces behind them.
    fn bracketed(&mut self, open: u8, close: u8) -> Result<&'v [u8], Malformed> {
        let rest = self.rest.strip_prefix(&[open]).ok_or(Malformed)?;
        let end = rest.iter().position(|&byte| byte == close).ok_or(Malformed)?;
        self.rest = rest[end + 1..].trim_ascii_start();
        if end == 0 { Err(Malformed) } else { Ok(&rest[..end]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether the conditions hold for a resource with the lock `a` and the tag `"t"`, and another, `/o`, without.
    fn holds(value: &str) -> Option<bool> {
        let conditions = Conditions::parse(value.as_bytes()).ok()?;
        Some(conditions.hold(|resource, state| {
            let is_other = resource.is_some_and(|url| url == b"/o");
            !is_other
                && match state {
                    State::Token(token) => &**token == "a",
                    State::Tag(tag) => tag.weak_eq(&EntityTag::strong("t")),
                }
        }))
    }

    #[test]
    fn one_list_must_hold_completely() {
        for (value, expected) in [
            ("(<a>)", Some(true)),
            ("(<b>)", Some(false)),
            ("(<b>)(<a>)", Some(true)),
            ("(<a> [\"t\"])", Some(true)),
            ("(<a> [W/\"t\"])", Some(true)),
            ("(<a> [\"u\"])", Some(false)),
            ("(Not <b>)", Some(true)),
            ("(not <a>) (Not<DAV:no-lock>)", Some(true)),
            ("(Not <a> <a>)", Some(false)),
            ("</o> (<a>)", Some(false)),
            ("</o> (Not <a>)", Some(true)),
            ("</o> (<a>) (<b>) </p> (<a>)", Some(true)),
            ("", None),
            ("()", None),
            ("(<a>", None),
            ("(<>)", None),
            ("(a)", None),
            ("<a>", None),
            ("(<a>) </o> (<a>)", None),
            ("([t])", None),
            ("(Not)", None),
        ] {
            assert_eq!(holds(value), expected, "{value}");
        }
        assert_eq!(holds(&format!("({})", "<a>".repeat(MAX))), Some(true));
        assert_eq!(holds(&format!("({})", "<a>".repeat(MAX + 1))), None);
    }

    #[test]
    fn tokens_are_those_that_are_submitted() {
        let value = b"</x> (<a> Not <b> [\"t\"]) </y> (<c>)";
        let conditions = Conditions::parse(value).expect("conditions");
        assert_eq!(conditions.tokens().collect::<Vec<_>>(), ["a", "c"]);
    }
}
