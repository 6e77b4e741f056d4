//! The bodies of PROPFIND, PROPPATCH and LOCK (RFC 4918 §14).

use super::Malformed;
use super::xml::{Element, Name, read};

/// The maximum number of properties that a request names.
const MAX_NAMES: usize = 200;

/// The maximum size of what a client writes about the owner of a lock, which is in memory as long as the lock.
const MAX_OWNER: usize = 4096;

/// The properties that a PROPFIND requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Propfind {
    /// All that clients have set, the usual ones of the server, and these.
    All(Vec<Name>),
    /// The names of all.
    Names,
    /// These.
    Some(Vec<Name>),
}

/// A change of a property by PROPPATCH.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The name of the property.
    pub name: Name,
    /// The new property; `None` if it is removed.
    pub value: Option<Element>,
}

/// The lock that a LOCK requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockRequest {
    /// No other lock is permitted beside it.
    pub is_exclusive: bool,
    /// What the client has written about its owner: an element `owner` as text.
    pub owner: Option<Box<str>>,
}

/// Reads the body of a PROPFIND. An empty one requests all properties.
///
/// # Errors
/// If it is malformed.
pub fn propfind(body: &[u8]) -> Result<Propfind, Malformed> {
    if body.is_empty() {
        return Ok(Propfind::All(Vec::new()));
    }
    let root = named(body, "propfind")?;
    let kinds = ["prop", "propname", "allprop"].map(|kind| root.child(kind));
    match kinds {
        [Some(names), None, None] => Ok(Propfind::Some(self::names(names)?)),
        [None, Some(_), None] => Ok(Propfind::Names),
        [None, None, Some(_)] => {
            let include = root.child("include").map_or(Ok(Vec::new()), names)?;
            Ok(Propfind::All(include))
        }
        _ => Err(Malformed),
    }
}

/// Reads the body of a PROPPATCH: the changes in their order.
///
/// # Errors
/// If it is malformed.
pub fn proppatch(body: &[u8]) -> Result<Vec<Change>, Malformed> {
    let root = named(body, "propertyupdate")?;
    let mut changes = Vec::new();
    for step in root.elements() {
        let is_set = step.name.is_dav("set");
        if !is_set && !step.name.is_dav("remove") {
            continue;
        }
        let properties = step.child("prop").ok_or(Malformed)?;
        let outer = [properties, step, &root];
        let language = outer.iter().find_map(|element| element.language());
        for property in properties.elements() {
            let value = is_set.then(|| {
                let mut property = property.clone();
                property.inherit_language(language);
                property
            });
            changes.push(Change { name: property.name.clone(), value });
        }
    }
    match changes.len() {
        1..=MAX_NAMES => Ok(changes),
        _ => Err(Malformed),
    }
}

/// Reads the body of a LOCK; `None` if it is empty, as that of a refresh is.
///
/// # Errors
/// If it is malformed.
pub fn lock(body: &[u8]) -> Result<Option<LockRequest>, Malformed> {
    if body.is_empty() {
        return Ok(None);
    }
    let root = named(body, "lockinfo")?;
    root.child("locktype").and_then(|kind| kind.child("write")).ok_or(Malformed)?;
    let scope = root.child("lockscope").ok_or(Malformed)?;
    let is_exclusive = match (scope.child("exclusive"), scope.child("shared")) {
        (Some(_), None) => true,
        (None, Some(_)) => false,
        _ => return Err(Malformed),
    };
    let owner = root.child("owner").map(|owner| {
        let mut text = String::from("<D:owner>");
        owner.write_content(&mut text);
        text.push_str("</D:owner>");
        text.into()
    });
    if owner.as_deref().is_some_and(|owner: &str| owner.len() > MAX_OWNER) {
        return Err(Malformed);
    }
    Ok(Some(LockRequest { is_exclusive, owner }))
}

fn named(body: &[u8], local: &str) -> Result<Element, Malformed> {
    Some(read(body)?).filter(|root| root.name.is_dav(local)).ok_or(Malformed)
}

fn names(list: &Element) -> Result<Vec<Name>, Malformed> {
    let names: Vec<Name> = list.elements().map(|element| element.name.clone()).collect();
    if names.len() > MAX_NAMES { Err(Malformed) } else { Ok(names) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(element: &Element) -> String {
        let mut out = String::new();
        element.write(&mut out);
        out
    }

    #[test]
    fn a_propfind_has_one_kind() {
        let of = |inner: &str| {
            propfind(format!("<p:propfind xmlns:p='DAV:'>{inner}</p:propfind>").as_bytes())
        };
        assert_eq!(propfind(b""), Ok(Propfind::All(Vec::new())));
        assert_eq!(of("<p:allprop/>"), Ok(Propfind::All(Vec::new())));
        assert_eq!(
            of("<p:allprop/><p:include><p:getetag/></p:include>"),
            Ok(Propfind::All(vec![Name::dav("getetag")]))
        );
        assert_eq!(of("<p:propname/>"), Ok(Propfind::Names));
        let other = Name { namespace: "".into(), local: "a".into() };
        assert_eq!(
            of("<p:prop><p:getetag/><a/></p:prop>"),
            Ok(Propfind::Some(vec![Name::dav("getetag"), other]))
        );
        for inner in ["", "<p:prop/><p:propname/>", "<a:prop xmlns:a=''/>"] {
            assert_eq!(of(inner), Err(Malformed), "{inner}");
        }
        let many = "<a/>".repeat(MAX_NAMES + 1);
        assert_eq!(of(&format!("<p:prop>{many}</p:prop>")), Err(Malformed));
        assert_eq!(propfind(b"<propfind/>"), Err(Malformed));
    }

    #[test]
    fn changes_keep_their_order_and_language() {
        let body = br#"<propertyupdate xmlns="DAV:" xml:lang="de">
            <set><prop><a xmlns="n"><b/></a></prop></set>
            <remove><prop><a xmlns="n"/></prop></remove>
            <set xml:lang="en"><prop><c xmlns="" xml:lang="fr">x</c></prop></set></propertyupdate>"#;
        let changes = proppatch(body).expect("changes");
        let values: Vec<_> = changes.iter().map(|change| change.value.as_ref().map(text)).collect();
        assert_eq!(
            values,
            [
                Some(r#"<a xmlns="n" xml:lang="de"><b/></a>"#.to_owned()),
                None,
                Some(r#"<c xml:lang="fr">x</c>"#.to_owned())
            ]
        );
        for body in [
            "",
            "<propertyupdate xmlns='DAV:'/>",
            "<propertyupdate xmlns='DAV:'><set/></propertyupdate>",
        ] {
            assert_eq!(proppatch(body.as_bytes()), Err(Malformed), "{body}");
        }
    }

    #[test]
    fn a_lock_has_a_scope() {
        let of = |inner: &str| {
            lock(format!("<D:lockinfo xmlns:D='DAV:'>{inner}</D:lockinfo>").as_bytes())
        };
        assert_eq!(lock(b""), Ok(None));
        let kind = "<D:locktype><D:write/></D:locktype>";
        let shared = format!(
            "<D:lockscope><D:shared/></D:lockscope>{kind}<D:owner>a<D:href>b</D:href></D:owner>"
        );
        let owner = r#"<D:owner>a<href xmlns="DAV:">b</href></D:owner>"#;
        assert_eq!(
            of(&shared),
            Ok(Some(LockRequest { is_exclusive: false, owner: Some(owner.into()) }))
        );
        let exclusive = format!("<D:lockscope><D:exclusive/></D:lockscope>{kind}");
        assert_eq!(of(&exclusive), Ok(Some(LockRequest { is_exclusive: true, owner: None })));
        let large = format!("{exclusive}<D:owner>{}</D:owner>", "x".repeat(MAX_OWNER));
        for inner in [kind, "<D:lockscope><D:shared/></D:lockscope>", &large] {
            assert_eq!(of(inner), Err(Malformed));
        }
    }
}
