//! Fields that are forwarded between the client and the endpoint of forward authentication.

use dunlin_config::{ForwardRules, HOP_BY_HOP};
use dunlin_exchange::{Named, RequestContext, is_instruction};
use dunlin_http::semantics::{is_field_value, is_token};
use dunlin_http::{FieldLines, Request};

/// Response fields that the server sets itself.
const OF_SERVER: [&str; 3] = ["content-length", "date", "server"];

/// Adds the named fields of the client's request. Lines of one field are combined, so that the endpoint and
/// everything behind it read the same value.
pub(super) fn add_passed(lines: &mut FieldLines, request: &Request<'_>, names: &[String]) {
    let connection = request.fields().filter(|(name, _)| name.eq_ignore_ascii_case(b"connection"));
    let options: Vec<&[u8]> = connection.flat_map(|(_, value)| options(value)).collect();
    for name in names {
        let is_it = |other: &[u8]| other.eq_ignore_ascii_case(name.as_bytes());
        if options.iter().any(|option| is_it(option)) {
            continue;
        }
        let values: Vec<_> = request
            .joined_fields()
            .filter(|(other, _)| is_it(other))
            .map(|(_, value)| value)
            .collect();
        // RFC 9110 §5.3.
        if !values.is_empty() {
            lines.push(name, values.join(&b", "[..]));
        }
    }
}

/// Returns the response fields of the endpoint that may be sent to the client; `None` if one is malformed.
pub(super) fn for_client(fields: &FieldLines) -> Option<FieldLines> {
    let connection = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(b"connection"));
    let options: Vec<&[u8]> = connection.flat_map(|(_, value)| options(value)).collect();
    let mut kept = FieldLines::new();
    for (name, value) in fields.iter() {
        if !is_token(name) || !is_field_value(value) {
            return None;
        }
        let is_it = |other: &[u8]| name.eq_ignore_ascii_case(other);
        let is_removed = HOP_BY_HOP.iter().chain(&OF_SERVER).any(|other| is_it(other.as_bytes()));
        if !is_removed && !options.iter().any(|option| is_it(option)) {
            kept.push(std::str::from_utf8(name).ok()?, value);
        }
    }
    Some(kept)
}

/// Copies the fields of a response that allows a request: to what handlers get, and to the response to the client.
pub(super) fn copy(fields: &FieldLines, rules: &ForwardRules, context: &RequestContext) {
    let lines = |name: &str| {
        let is_it = |(other, _): &(&[u8], &[u8])| other.eq_ignore_ascii_case(name.as_bytes());
        fields.iter().filter(is_it).map(|(_, value)| value).collect::<Vec<_>>()
    };
    for name in &rules.copy_to_request {
        let values = lines(name);
        if !values.is_empty() {
            // RFC 9110 §5.3.
            context.set_request_field(name, values.join(&b", "[..]));
        }
    }
    for name in &rules.copy_to_response {
        let values = lines(name);
        if name.eq_ignore_ascii_case("set-cookie") {
            // Each of them is a field of its own (RFC 6265 §3).
            values.iter().for_each(|value| context.add_field_once(name, value));
        } else if !values.is_empty() {
            context.replace_field(name, values.join(&b", "[..]));
        }
    }
}

/// Removes the fields that are instructions for the server from the response of the endpoint to a client.
pub(super) fn remove_instructions(fields: &mut FieldLines) {
    fields.retain(|name, value| !is_instruction(name) && Named::of_field(name, value).is_none());
}

/// Returns the members of a `Connection` field.
fn options(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// Returns the user that the endpoint's response names, if any.
///
/// # Errors
/// The response names more than one user, or one that is not UTF-8.
pub(super) fn user(fields: &FieldLines, name: &str) -> Result<Option<String>, &'static str> {
    let is_it = |other: &[u8]| other.eq_ignore_ascii_case(name.as_bytes());
    let mut values = fields.iter().filter(|(other, _)| is_it(other)).map(|(_, value)| value);
    let first = values.next();
    if values.next().is_some() {
        return Err("its response names the user more than once");
    }
    let text = first.map(|user| std::str::from_utf8(user).map(str::to_owned)).transpose();
    let text = text.map_err(|_| "the user that its response names is not UTF-8")?;
    Ok(text.filter(|user| !user.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hop_by_hop_fields_are_not_sent_to_the_client() {
        let mut fields = FieldLines::new();
        for (name, value) in [
            ("Connection", "X-Hop, close"),
            ("x-hop", "1"),
            ("Upgrade", "h2c"),
            ("Set-Cookie", "a=b"),
            ("Proxy-Authenticate", "Basic"),
            ("Keep-Alive", "5"),
            ("connection", "x-other"),
            ("X-Other", "1"),
            ("Date", "now"),
        ] {
            fields.push(name, value);
        }
        assert_eq!(for_client(&fields).unwrap().as_bytes(), b"Set-Cookie: a=b\r\n");
    }

    #[test]
    fn instructions_for_the_server_are_removed() {
        let mut fields = FieldLines::new();
        for name in
            ["X-Accel-Redirect", "Location", "x-accel-expires", "X-SENDFILE", "X-Accelerate"]
        {
            fields.push(name, "/a");
        }
        remove_instructions(&mut fields);
        assert_eq!(fields.as_bytes(), b"Location: /a\r\nX-Accelerate: /a\r\n");
    }

    #[test]
    fn a_response_that_names_several_users_is_an_error() {
        let named = |lines: &[&str]| {
            let mut fields = FieldLines::new();
            lines.iter().for_each(|value| fields.push("X-User", value));
            user(&fields, "x-user")
        };
        assert_eq!(named(&[]), Ok(None));
        assert_eq!(named(&[""]), Ok(None));
        assert_eq!(named(&["ann"]), Ok(Some("ann".into())));
        assert!(named(&["ann", "root"]).is_err());
        assert!(named(&["ann", "ann"]).is_err());
    }
}
