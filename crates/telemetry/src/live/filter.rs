//! Filter expressions of the live view, such as `status>=500 && path~"/api" && ms>100`.
//!
//! ```text
//! either = both { "||" both }
//! both   = one { "&&" one }
//! one    = "!" one | "(" either ")" | name operator value
//! ```
//! Operators of numbers are `== != < <= > >=`; of texts `==`, `!=`, `~` (contains) and `!~`.

use std::fmt;

use super::LiveEvent;

/// Selects the requests that a subscriber receives.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    root: Node,
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    /// Matches every request.
    All,
    Both(Box<Node>, Box<Node>),
    Either(Box<Node>, Box<Node>),
    Not(Box<Node>),
    Number(Number, Order, f64),
    Text(Text, Like, String),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Number {
    Status,
    Millis,
    Bytes,
    Connection,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Text {
    Address,
    Method,
    Path,
    Host,
    Site,
    Route,
    Protocol,
    Cache,
    User,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Like {
    Equal,
    Unequal,
    Contains,
    Lacks,
}

/// Why an expression is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterError {
    /// Byte offset in the expression.
    pub at: usize,
    what: String,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at character {} of the filter)", self.what, self.at + 1)
    }
}

impl std::error::Error for FilterError {}

const NAMES: &str = "status, ms, bytes, connection, address, method, path, host, site, route, protocol, \
                     cache, user";
/// Maximum nesting: the parser is recursive.
const DEEPEST: usize = 32;

impl Filter {
    /// Parses an expression. The empty expression matches every request.
    ///
    /// # Errors
    /// The problem and its position.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        parser.skip_space();
        if parser.rest().is_empty() {
            return Ok(Self { root: Node::All });
        }
        let root = parser.either()?;
        if !parser.rest().is_empty() {
            return Err(parser.error("expected `&&`, `||` or the end"));
        }
        Ok(Self { root })
    }

    pub(crate) fn wants(&self, event: &LiveEvent<'_>) -> bool {
        self.root.holds(event)
    }
}

impl Node {
    fn holds(&self, event: &LiveEvent<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Both(one, other) => one.holds(event) && other.holds(event),
            Self::Either(one, other) => one.holds(event) || other.holds(event),
            Self::Not(node) => !node.holds(event),
            Self::Number(number, order, wanted) => order.holds(number.of(event), *wanted),
            Self::Text(text, like, wanted) => text.holds(*like, wanted.as_bytes(), event),
        }
    }
}

impl Number {
    fn of(self, event: &LiveEvent<'_>) -> f64 {
        let record = event.record;
        match self {
            Self::Status => f64::from(record.status),
            Self::Millis => record.duration_ns as f64 / 1e6,
            Self::Bytes => record.body_bytes as f64,
            Self::Connection => record.connection as f64,
        }
    }
}

impl Order {
    #[expect(clippy::float_cmp, reason = "whole numbers are compared as they were written")]
    fn holds(self, value: f64, wanted: f64) -> bool {
        match self {
            Self::Equal => value == wanted,
            Self::Unequal => value != wanted,
            Self::Less => value < wanted,
            Self::LessOrEqual => value <= wanted,
            Self::More => value > wanted,
            Self::MoreOrEqual => value >= wanted,
        }
    }
}

impl Text {
    fn holds(self, like: Like, wanted: &[u8], event: &LiveEvent<'_>) -> bool {
        let record = event.record;
        let address;
        let text: &[u8] = match self {
            Self::Address => {
                address = record.peer.to_string();
                address.as_bytes()
            }
            Self::Method => record.method,
            Self::Path => record.path(),
            Self::Host => record.host.unwrap_or_default(),
            Self::Site => record.site.as_bytes(),
            Self::Route => event.route.as_bytes(),
            Self::Protocol => record.version.as_bytes(),
            Self::Cache => record.cache.as_bytes(),
            Self::User => record.user.unwrap_or_default(),
        };
        match like {
            Like::Equal => text == wanted,
            Like::Unequal => text != wanted,
            Like::Contains => memchr::memmem::find(text, wanted).is_some(),
            Like::Lacks => memchr::memmem::find(text, wanted).is_none(),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn either(&mut self) -> Result<Node, FilterError> {
        let mut node = self.both()?;
        while self.take("||") {
            node = Node::Either(Box::new(node), Box::new(self.both()?));
        }
        Ok(node)
    }

    fn both(&mut self) -> Result<Node, FilterError> {
        let mut node = self.one()?;
        while self.take("&&") {
            node = Node::Both(Box::new(node), Box::new(self.one()?));
        }
        Ok(node)
    }

    fn one(&mut self) -> Result<Node, FilterError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.error("the expression is nested too deeply"));
        }
        let node = if self.take("!") {
            Node::Not(Box::new(self.one()?))
        } else if self.take("(") {
            let node = self.either()?;
            if !self.take(")") {
                return Err(self.error("expected a closing parenthesis"));
            }
            node
        } else {
            self.comparison()?
        };
        self.depth -= 1;
        Ok(node)
    }

    fn comparison(&mut self) -> Result<Node, FilterError> {
        let start = self.at;
        let name = self.word(|c| c.is_ascii_alphabetic() || c == '_');
        let number = |number| Ok(number);
        let number = match name {
            "status" => number(Number::Status),
            "ms" => number(Number::Millis),
            "bytes" => number(Number::Bytes),
            "connection" => number(Number::Connection),
            "address" => Err(Text::Address),
            "method" => Err(Text::Method),
            "path" => Err(Text::Path),
            "host" => Err(Text::Host),
            "site" => Err(Text::Site),
            "route" => Err(Text::Route),
            "protocol" => Err(Text::Protocol),
            "cache" => Err(Text::Cache),
            "user" => Err(Text::User),
            _ => {
                self.at = start;
                return Err(self.error(&format!("{name:?} is not one of {NAMES}")));
            }
        };
        match number {
            Ok(number) => {
                let order = self.order()?;
                let start = self.at;
                let value = self.word(|c| c.is_ascii_digit() || c == '.');
                let value = value.parse().map_err(|_| {
                    self.at = start;
                    self.error("expected a number")
                })?;
                Ok(Node::Number(number, order, value))
            }
            Err(text) => {
                let like = self.like()?;
                Ok(Node::Text(text, like, self.value()?))
            }
        }
    }

    fn order(&mut self) -> Result<Order, FilterError> {
        let orders = [
            ("==", Order::Equal),
            ("!=", Order::Unequal),
            ("<=", Order::LessOrEqual),
            (">=", Order::MoreOrEqual),
            ("<", Order::Less),
            (">", Order::More),
            ("=", Order::Equal),
        ];
        let found = orders.into_iter().find(|(sign, _)| self.take(sign));
        found.map(|(_, order)| order).ok_or_else(|| self.error("expected one of == != < <= > >="))
    }

    fn like(&mut self) -> Result<Like, FilterError> {
        let likes = [
            ("==", Like::Equal),
            ("!=", Like::Unequal),
            ("!~", Like::Lacks),
            ("~", Like::Contains),
            ("=", Like::Equal),
        ];
        let found = likes.into_iter().find(|(sign, _)| self.take(sign));
        found.map(|(_, like)| like).ok_or_else(|| self.error("expected one of == != ~ !~"))
    }

    /// Parses a text between double quotes, or a word.
    fn value(&mut self) -> Result<String, FilterError> {
        let Some(quoted) = self.rest().strip_prefix('"') else {
            let word = self.word(|c| !c.is_whitespace() && !"&|()\"".contains(c));
            let missing = "expected a text";
            return if word.is_empty() { Err(self.error(missing)) } else { Ok(word.to_owned()) };
        };
        let Some(end) = quoted.find('"') else {
            return Err(self.error("the text that starts here has no closing quote"));
        };
        let value = quoted[..end].to_owned();
        self.at += end + 2;
        self.skip_space();
        Ok(value)
    }

    fn word(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        self.at += end;
        self.skip_space();
        &rest[..end]
    }

    fn take(&mut self, sign: &str) -> bool {
        // No condition starts with `!=` or `!~`, so `!` here is the negation.
        let found = self.rest().starts_with(sign);
        if found {
            self.at += sign.len();
            self.skip_space();
        }
        found
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn error(&self, what: &str) -> FilterError {
        FilterError { at: self.at, what: what.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AccessRecord;
    use crate::access_record::tests::sample;

    fn wants(filter: &str, record: &AccessRecord<'_>) -> bool {
        let event = LiveEvent::of(record, "/api/*");
        Filter::parse(filter).unwrap_or_else(|error| panic!("{filter}: {error}")).wants(&event)
    }

    #[test]
    fn operators_have_their_usual_precedence() {
        let record =
            AccessRecord { status: 503, duration_ns: 150_000_000, target: b"/api/x?q", ..sample() };
        for (filter, wanted) in [
            ("", true),
            ("  ", true),
            ("status>=500 && path~\"/api\" && ms>100", true),
            ("status >= 500 && path ~ /web", false),
            ("status<500||ms>100", true),
            ("status<500||ms>100&&bytes<1", false),
            ("(status<500||ms>100)&&!bytes<1", true),
            ("!(status=503)", false),
            ("method!=GET", false),
            ("method==GET && route==/api/* && site==main && cache==hit", true),
            ("address==192.0.2.7", true),
            ("address~192.0.3", false),
            ("path!~api", false),
            ("host==\"www.example.com\" && protocol==HTTP/1.1 && connection==42", true),
            ("user==\"\"", true),
        ] {
            assert_eq!(wants(filter, &record), wanted, "{filter}");
        }
    }

    #[test]
    fn errors_name_the_position() {
        for (filter, at) in [
            ("staus>1", 0),
            ("status", 6),
            ("status>", 7),
            ("status>x", 7),
            ("path~", 5),
            ("path~\"a", 5),
            ("path>1", 4),
            ("(status>1", 9),
            ("status>1 path~a", 9),
            ("status>1 &&", 11),
        ] {
            assert_eq!(Filter::parse(filter).unwrap_err().at, at, "{filter}");
        }
        assert!(Filter::parse(&"(".repeat(100_000)).is_err());
        assert!(Filter::parse(&"!".repeat(100_000)).is_err());
    }
}
