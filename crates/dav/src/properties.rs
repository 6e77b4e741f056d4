//! The properties that clients set (dead properties), and the text in which those of a resource are stored.

use super::requests::Change;
use super::xml::{Element, Name, read};

/// The names of the properties that the server has for each resource, in their order.
pub const LIVE: [&str; 8] = [
    "creationdate",
    "getcontentlength",
    "getcontenttype",
    "getetag",
    "getlastmodified",
    "lockdiscovery",
    "resourcetype",
    "supportedlock",
];

/// Returns `true` if the server has the property, so that clients cannot set it.
pub fn is_live(name: &Name) -> bool {
    &*name.namespace == super::xml::DAV && LIVE.contains(&&*name.local)
}

/// Returns the properties of the stored text. Text that is none has none.
pub fn decode(stored: &[u8]) -> Vec<Element> {
    let Ok(root) = read(stored) else { return Vec::new() };
    root.elements().cloned().collect()
}

/// Returns the text in which properties are stored; `None` if there are none.
pub fn encode(properties: &[Element]) -> Option<String> {
    if properties.is_empty() {
        return None;
    }
    let mut text = String::from("<properties>");
    properties.iter().for_each(|property| property.write(&mut text));
    text.push_str("</properties>");
    Some(text)
}

/// Makes changes in their order. Properties of the server are not among them.
pub fn apply(properties: &mut Vec<Element>, changes: &[Change]) {
    for Change { name, value } in changes {
        match (properties.iter_mut().find(|property| property.name == *name), value) {
            (Some(property), Some(value)) => property.clone_from(value),
            (None, Some(value)) => properties.push(value.clone()),
            (_, None) => properties.retain(|property| property.name != *name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::proppatch;

    #[test]
    fn properties_are_stored_as_they_were_set() {
        let body = br#"<propertyupdate xmlns="DAV:"><set><prop>
            <a xmlns="n">1<b/></a><c xmlns="">2</c><a xmlns="n">3</a><D:d xmlns:D="DAV:">&amp;</D:d>
            </prop></set><remove><prop><c xmlns=""/><e/></prop></remove></propertyupdate>"#;
        let mut properties = Vec::new();
        apply(&mut properties, &proppatch(body).expect("changes"));
        let text = encode(&properties).expect("properties");
        assert_eq!(text, r#"<properties><a xmlns="n">3</a><d xmlns="DAV:">&amp;</d></properties>"#);
        assert_eq!(decode(text.as_bytes()), properties);
        assert_eq!(encode(&[]), None);
        assert_eq!(decode(b"\xff"), []);
    }

    #[test]
    fn clients_cannot_set_what_the_server_has() {
        assert!(is_live(&Name::dav("getetag")));
        assert!(!is_live(&Name::dav("displayname")));
        assert!(!is_live(&Name { namespace: "n".into(), local: "getetag".into() }));
    }
}
