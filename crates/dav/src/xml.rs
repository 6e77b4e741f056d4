//! XML: reads a body as a tree, and writes elements.

use std::fmt::Write;

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::{QName, ResolveResult};
use quick_xml::reader::NsReader;

use super::Malformed;

/// The namespace of WebDAV.
pub const DAV: &str = "DAV:";
/// The namespace of `xml:lang`.
const XML: &str = "http://www.w3.org/XML/1998/namespace";
/// The maximum depth of elements.
const MAX_DEPTH: usize = 32;
/// The maximum number of elements and attributes.
const MAX_NODES: usize = 4096;

/// The name of an element or an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// The namespace; empty if there is none.
    pub namespace: Box<str>,
    /// The name in it.
    pub local: Box<str>,
}

/// An element with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// The name.
    pub name: Name,
    /// The attributes, without declarations of namespaces.
    pub attributes: Vec<(Name, String)>,
    /// The content.
    pub children: Vec<Node>,
}

/// A part of the content of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// An element.
    Element(Element),
    /// Text, without references.
    Text(String),
}

impl Name {
    /// Returns a name of WebDAV.
    pub fn dav(local: &str) -> Self {
        Self { namespace: DAV.into(), local: local.into() }
    }

    /// Returns `true` if it is this name of WebDAV.
    pub fn is_dav(&self, local: &str) -> bool {
        &*self.namespace == DAV && &*self.local == local
    }

    /// Appends an element of that name without content. Elements of WebDAV have the prefix `D`.
    pub fn write_empty(&self, out: &mut String) {
        // Writing to a string does not fail.
        let _ = match (&*self.namespace, &*self.local) {
            (DAV, local) => write!(out, "<D:{local}/>"),
            ("", local) => write!(out, "<{local}/>"),
            (namespace, local) => {
                let namespace = escaped(namespace);
                write!(out, "<{local} xmlns=\"{namespace}\"/>")
            }
        };
    }
}

impl Element {
    /// Returns the elements that it contains.
    pub fn elements(&self) -> impl Iterator<Item = &Self> {
        self.children.iter().filter_map(|child| match child {
            Node::Element(element) => Some(element),
            Node::Text(_) => None,
        })
    }

    /// Returns the first element of WebDAV of that name that it contains.
    pub fn child(&self, local: &str) -> Option<&Self> {
        self.elements().find(|child| child.name.is_dav(local))
    }

    /// Returns the value of `xml:lang`.
    pub fn language(&self) -> Option<&str> {
        let is_it = |name: &Name| &*name.namespace == XML && &*name.local == "lang";
        self.attributes.iter().find(|(name, _)| is_it(name)).map(|(_, value)| &**value)
    }

    /// Sets `xml:lang`, unless it has a value.
    pub fn inherit_language(&mut self, language: Option<&str>) {
        if let (None, Some(language)) = (self.language(), language) {
            let name = Name { namespace: XML.into(), local: "lang".into() };
            self.attributes.push((name, language.to_owned()));
        }
    }

    /// Appends the element where no default namespace is declared.
    pub fn write(&self, out: &mut String) {
        self.write_in("", out);
    }

    /// Appends what the element contains where no default namespace is declared.
    pub fn write_content(&self, out: &mut String) {
        self.children.iter().for_each(|child| child.write_in("", out));
    }

    fn write_in(&self, default: &str, out: &mut String) {
        let Name { namespace, local } = &self.name;
        out.push('<');
        out.push_str(local);
        if **namespace != *default {
            let _ = write!(out, " xmlns=\"{}\"", escaped(namespace));
        }
        for (at, (Name { namespace, local }, value)) in self.attributes.iter().enumerate() {
            let value = escaped(value);
            let _ = match &**namespace {
                "" => write!(out, " {local}=\"{value}\""),
                XML => write!(out, " xml:{local}=\"{value}\""),
                namespace => {
                    let namespace = escaped(namespace);
                    write!(out, " xmlns:n{at}=\"{namespace}\" n{at}:{local}=\"{value}\"")
                }
            };
        }
        if self.children.is_empty() {
            return out.push_str("/>");
        }
        out.push('>');
        self.children.iter().for_each(|child| child.write_in(namespace, out));
        let _ = write!(out, "</{local}>");
    }
}

impl Node {
    fn write_in(&self, default: &str, out: &mut String) {
        match self {
            Self::Element(element) => element.write_in(default, out),
            Self::Text(text) => out.push_str(&escaped(text)),
        }
    }
}

/// Returns text as it stands in content and in attributes.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // They would be normalized.
            '\r' => out.push_str("&#13;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            char => out.push(char),
        }
    }
    out
}

/// Reads a document.
///
/// # Errors
/// If it is not well-formed, has a document type, or is deeper or larger than the limits.
pub fn read(text: &[u8]) -> Result<Element, Malformed> {
    let text = std::str::from_utf8(text).map_err(|_| Malformed)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    Tree { reader: NsReader::from_str(text), open: Vec::new(), root: None, nodes: 0 }.read()
}

struct Tree<'t> {
    reader: NsReader<&'t [u8]>,
    /// The elements whose end was not read, the innermost last.
    open: Vec<Element>,
    root: Option<Element>,
    nodes: usize,
}

impl Tree<'_> {
    fn read(mut self) -> Result<Element, Malformed> {
        loop {
            match self.reader.read_event().map_err(|_| Malformed)? {
                Event::Start(start) => self.begin(&start)?,
                Event::Empty(start) => {
                    self.begin(&start)?;
                    self.end()?;
                }
                Event::End(_) => self.end()?,
                Event::Text(text) => self.text(&text.xml10_content().map_err(|_| Malformed)?)?,
                Event::CData(text) => {
                    let text = text.xml10_content().map_err(|_| Malformed)?;
                    if self.open.is_empty() {
                        return Err(Malformed);
                    }
                    self.text(&text)?;
                }
                Event::GeneralRef(reference) => {
                    let char = match reference.resolve_char_ref().map_err(|_| Malformed)? {
                        Some(char) => char,
                        None => predefined(&reference.decode().map_err(|_| Malformed)?)?,
                    };
                    if self.open.is_empty() {
                        return Err(Malformed);
                    }
                    self.text(char.encode_utf8(&mut [0; 4]))?;
                }
                Event::DocType(_) => return Err(Malformed),
                Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
                Event::Eof if self.open.is_empty() => return self.root.ok_or(Malformed),
                Event::Eof => return Err(Malformed),
            }
        }
    }

    fn begin(&mut self, start: &BytesStart<'_>) -> Result<(), Malformed> {
        self.count()?;
        if self.open.len() >= MAX_DEPTH || self.open.is_empty() && self.root.is_some() {
            return Err(Malformed);
        }
        let name = self.name(start.name(), true)?;
        let mut attributes = Vec::new();
        for attribute in start.attributes() {
            let attribute = attribute.map_err(|_| Malformed)?;
            let value =
                attribute.normalized_value(XmlVersion::Explicit1_0).map_err(|_| Malformed)?;
            if !value.chars().all(is_char) {
                return Err(Malformed);
            }
            if let Some(declared) = attribute.key.as_namespace_binding() {
                // A prefix without a namespace (Namespaces in XML 1.0, §5).
                let is_default = matches!(declared, quick_xml::name::PrefixDeclaration::Default);
                if value.is_empty() && !is_default {
                    return Err(Malformed);
                }
                continue;
            }
            self.count()?;
            attributes.push((self.name(attribute.key, false)?, value.into_owned()));
        }
        self.open.push(Element { name, attributes, children: Vec::new() });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Malformed> {
        let element = self.open.pop().ok_or(Malformed)?;
        match self.open.last_mut() {
            Some(outer) => outer.children.push(Node::Element(element)),
            None => self.root = Some(element),
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), Malformed> {
        if !text.chars().all(is_char) {
            return Err(Malformed);
        }
        match self.open.last_mut() {
            None if text.trim().is_empty() => {}
            None => return Err(Malformed),
            Some(element) => match element.children.last_mut() {
                Some(Node::Text(before)) => before.push_str(text),
                _ => element.children.push(Node::Text(text.to_owned())),
            },
        }
        Ok(())
    }

    fn count(&mut self) -> Result<(), Malformed> {
        self.nodes += 1;
        if self.nodes > MAX_NODES { Err(Malformed) } else { Ok(()) }
    }

    fn name(&self, name: QName<'_>, is_element: bool) -> Result<Name, Malformed> {
        let resolver = self.reader.resolver();
        let (namespace, local) = match is_element {
            true => resolver.resolve_element(name),
            false => resolver.resolve_attribute(name),
        };
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned);
        let namespace = match namespace {
            ResolveResult::Bound(namespace) => {
                let raw = text(namespace.0).map_err(|_| Malformed)?;
                quick_xml::escape::unescape(&raw).map_err(|_| Malformed)?.into_owned()
            }
            ResolveResult::Unbound => String::new(),
            ResolveResult::Unknown(_) => return Err(Malformed),
        };
        let local = text(local.into_inner()).map_err(|_| Malformed)?;
        if !is_name(&local) || !namespace.chars().all(is_char) {
            return Err(Malformed);
        }
        Ok(Name { namespace: namespace.into(), local: local.into() })
    }
}

/// Returns the character of a predefined entity. There are no others.
fn predefined(name: &str) -> Result<char, Malformed> {
    Ok(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "apos" => '\'',
        "quot" => '"',
        _ => return Err(Malformed),
    })
}

/// Returns `true` if XML permits the character.
fn is_char(char: char) -> bool {
    match char {
        '\t' | '\n' | '\r' => true,
        '\u{fffe}' | '\u{ffff}' => false,
        char => char >= ' ',
    }
}

/// Returns `true` if the text is a name without a colon. Of other characters than those of ASCII, all are permitted.
fn is_name(text: &str) -> bool {
    let begins = |char: char| char.is_ascii_alphabetic() || char == '_' || !char.is_ascii();
    let continues = |char: char| begins(char) || char.is_ascii_digit() || matches!(char, '-' | '.');
    text.starts_with(begins) && text.chars().all(continues)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rewritten(text: &str) -> String {
        let mut out = String::new();
        read(text.as_bytes()).expect("a document").write(&mut out);
        out
    }

    #[test]
    fn elements_keep_their_names_wherever_they_are_written() {
        for (text, expected) in [
            ("<a/>", "<a/>"),
            ("<?xml version='1.0'?>\n<a>&amp;&#x41;<![CDATA[<]]></a>\n", "<a>&amp;A&lt;</a>"),
            ("<p:a xmlns:p='n'><p:b/><c/></p:a>", r#"<a xmlns="n"><b/><c xmlns=""/></a>"#),
            (
                "<a xmlns:q='x&amp;y' q:b='1' xml:lang='en' c='\"'/>",
                r#"<a xmlns:n0="x&amp;y" n0:b="1" xml:lang="en" c="&quot;"/>"#,
            ),
        ] {
            assert_eq!(rewritten(text), expected);
            assert_eq!(rewritten(expected), expected);
        }
    }

    #[test]
    fn what_is_not_well_formed_is_an_error() {
        for text in [
            "",
            "text",
            "<a>",
            "<a></b>",
            "<a/><b/>",
            "<p:a/>",
            "<a xmlns:p=''/>",
            "<a>&b;</a>",
            "<a>&#1;</a>",
            "<a>\u{1}</a>",
            "<!DOCTYPE a><a/>",
            "<!DOCTYPE a [<!ENTITY b 'bbbb'>]><a>&b;</a>",
            "<a b='1' b='2'/>",
            "<a&b/>",
            "<1/>",
            "&amp;<a/>",
        ] {
            assert_eq!(read(text.as_bytes()), Err(Malformed), "{text}");
        }
        let deep = |levels: usize| "<a>".repeat(levels) + &"</a>".repeat(levels);
        assert!(read(deep(MAX_DEPTH).as_bytes()).is_ok());
        assert!(read(deep(MAX_DEPTH + 1).as_bytes()).is_err());
        let wide = |number: usize| format!("<a>{}</a>", "<b/>".repeat(number));
        assert!(read(wide(MAX_NODES - 1).as_bytes()).is_ok());
        assert!(read(wide(MAX_NODES).as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&text);
        }

        #[test]
        fn text_is_read_as_it_was_written(text in "[^\u{0}-\u{8}\u{b}\u{c}\u{e}-\u{1f}\u{fffe}\u{ffff}]{1,50}") {
            let name = Name { namespace: "n".into(), local: "a".into() };
            let attributes = vec![(Name { namespace: "".into(), local: "b".into() }, text.clone())];
            let element = Element { name, attributes, children: vec![Node::Text(text)] };
            let mut out = String::new();
            element.write(&mut out);
            prop_assert_eq!(read(out.as_bytes()), Ok(element));
        }
    }
}
