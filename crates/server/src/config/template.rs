//! Texts with placeholders in braces.

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    Placeholder(&'static str),
}

impl Template {
    /// Reads a text in which `{name}` stands for a value, for each name in `known`.
    ///
    /// # Errors
    /// When a name is not known, or a brace is not closed.
    pub(super) fn parse(text: &str, known: &[&'static str]) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or("a `{` is not closed")?;
            let known = known.iter().find(|known| **known == name).ok_or_else(|| {
                format!("there is no placeholder {{{name}}}; there are: {{{}}}", known.join("}, {"))
            })?;
            parts.push(Part::Text(before.into()));
            parts.push(Part::Placeholder(known));
            rest = after;
        }
        parts.push(Part::Text(rest.into()));
        Ok(Self { parts })
    }

    /// The text with each placeholder's value, as `value` gives it.
    pub fn render(&self, mut value: impl FnMut(&str, &mut Vec<u8>)) -> Vec<u8> {
        let mut text = Vec::new();
        for part in &self.parts {
            match part {
                Part::Text(part) => text.extend_from_slice(part.as_bytes()),
                Part::Placeholder(name) => value(name, &mut text),
            }
        }
        text
    }

    /// The text with `path` for `{path}`.
    pub fn expand(&self, path: &[u8]) -> Vec<u8> {
        self.render(|_, text| text.extend_from_slice(path))
    }
}
