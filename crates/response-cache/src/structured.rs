//! Dictionaries of structured fields (RFC 8941 §3.2), as far as cache directives need them: the type of each value is
//! recognized, and parameters are skipped.

/// The value of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    Boolean(bool),
    Integer(i64),
    /// Of another type.
    Other,
}

/// Returns the members of a dictionary over all lines of a field; the last one of each key. `None` if it is malformed.
pub(crate) fn dictionary<'a>(lines: &[&'a [u8]]) -> Option<Vec<(&'a [u8], Value)>> {
    let mut members: Vec<(&[u8], Value)> = Vec::new();
    for line in lines {
        let mut parser = Parser { rest: line };
        parser.skip(b" ");
        while !parser.rest.is_empty() {
            let key = parser.key()?;
            let value = match parser.take(b'=') {
                true => parser.item_or_list()?,
                false => Value::Boolean(true),
            };
            parser.parameters()?;
            members.retain(|(other, _)| *other != key);
            members.push((key, value));
            parser.skip(b" \t");
            if parser.rest.is_empty() {
                break;
            }
            if !parser.take(b',') {
                return None;
            }
            parser.skip(b" \t");
            if parser.rest.is_empty() {
                return None;
            }
        }
    }
    Some(members)
}

struct Parser<'a> {
    rest: &'a [u8],
}

impl<'a> Parser<'a> {
    fn skip(&mut self, bytes: &[u8]) {
        self.take_while(|byte| bytes.contains(&byte));
    }

    fn take(&mut self, byte: u8) -> bool {
        let rest = self.rest.strip_prefix(&[byte]);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn take_while(&mut self, is_part: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.rest.iter().position(|&byte| !is_part(byte)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn key(&mut self) -> Option<&'a [u8]> {
        let is_start = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'*';
        self.rest.first().filter(|byte| is_start(byte))?;
        let is_part = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte)
        };
        Some(self.take_while(is_part))
    }

    /// Skips the parameters of an item.
    fn parameters(&mut self) -> Option<()> {
        while self.take(b';') {
            self.skip(b" ");
            self.key()?;
            if self.take(b'=') {
                self.item()?;
            }
        }
        Some(())
    }

    fn item_or_list(&mut self) -> Option<Value> {
        if !self.take(b'(') {
            return self.item();
        }
        loop {
            self.skip(b" ");
            if self.take(b')') {
                return Some(Value::Other);
            }
            self.item()?;
            self.parameters()?;
            if !matches!(self.rest.first(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    fn item(&mut self) -> Option<Value> {
        match self.rest.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string(),
            b'?' => {
                let value = match self.rest.get(1)? {
                    b'0' => false,
                    b'1' => true,
                    _ => return None,
                };
                self.rest = &self.rest[2..];
                Some(Value::Boolean(value))
            }
            b':' => {
                self.take(b':');
                let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
                self.take_while(is_base64);
                self.take(b':').then_some(Value::Other)
            }
            b'*' | b'A'..=b'Z' | b'a'..=b'z' => {
                let is_part =
                    |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte);
                self.take_while(is_part);
                Some(Value::Other)
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Option<Value> {
        let is_negative = self.take(b'-');
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        if digits.is_empty() || digits.len() > 15 {
            return None;
        }
        if self.take(b'.') {
            let fraction = self.take_while(|byte| byte.is_ascii_digit());
            let is_valid = digits.len() <= 12 && matches!(fraction.len(), 1..=3);
            return is_valid.then_some(Value::Other);
        }
        let number = digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
        Some(Value::Integer(if is_negative { -number } else { number }))
    }

    fn string(&mut self) -> Option<Value> {
        self.take(b'"');
        loop {
            self.take_while(|byte| (0x20..0x7f).contains(&byte) && !b"\"\\".contains(&byte));
            if self.take(b'"') {
                return Some(Value::Other);
            }
            let is_escape = self.take(b'\\') && (self.take(b'"') || self.take(b'\\'));
            if !is_escape {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Value::{Boolean, Integer, Other};
    use super::*;

    #[test]
    fn values_of_every_type_are_recognized() {
        let line = b"a, b=?0;c=1, d=-5, e=1.5, f=\"x,\\\"y\", g=:aGk=:, h=tok/en;x;y=\"z\", i=(1 \"b\";q c)";
        let keys = [
            (b"a".as_slice(), Boolean(true)),
            (b"b", Boolean(false)),
            (b"d", Integer(-5)),
            (b"e", Other),
            (b"f", Other),
            (b"g", Other),
            (b"h", Other),
            (b"i", Other),
        ];
        assert_eq!(dictionary(&[line]).as_deref(), Some(&keys[..]));
        let repeated = [(b"b".as_slice(), Boolean(true)), (b"a", Integer(2))];
        assert_eq!(dictionary(&[b"a=1, b", b"a=2"]).as_deref(), Some(&repeated[..]));
        assert_eq!(dictionary(&[]).as_deref(), Some(&[][..]));
    }

    #[test]
    fn malformed_dictionaries_are_rejected() {
        for line in [
            "A",
            "a=",
            "a b",
            "a,",
            "a=1.",
            "a=\"x",
            "a=\"\\x\"",
            "a=(1",
            "a=?2",
            "a=:x",
            "=1",
            "a=&",
        ] {
            assert_eq!(dictionary(&[line.as_bytes()]), None, "{line}");
        }
    }
}
