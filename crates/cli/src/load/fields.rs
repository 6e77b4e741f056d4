//! Request fields that the generator itself has to know, since they frame the request or the connection.

/// A field: its name and its value.
type Field = (String, String);

/// Returns `true` if there is a field of that name.
pub(super) fn has(fields: &[Field], name: &str) -> bool {
    fields.iter().any(|field| is(field, name))
}

fn is((name, _): &Field, wanted: &str) -> bool {
    name.eq_ignore_ascii_case(wanted)
}

/// Fields that HTTP/2 does not have (RFC 9113 §8.2.2).
const OF_CONNECTIONS: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// Checks the fields of a request with a body of `length` bytes. Returns whether one of them closes the connection after its
/// response, and removes that one.
///
/// # Errors
/// A field contradicts what the generator sends.
pub(super) fn check(fields: &mut Vec<Field>, http2: bool, length: usize) -> Result<bool, String> {
    for (name, value) in fields.iter() {
        let of_connection = OF_CONNECTIONS.iter().any(|other| name.eq_ignore_ascii_case(other));
        let is_te = name.eq_ignore_ascii_case("te") && !value.eq_ignore_ascii_case("trailers");
        if http2 && (of_connection || is_te) {
            return Err(format!("--header {name}: HTTP/2 has no such field (RFC 9113, 8.2.2)"));
        }
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(format!(
                "--header {name}: the body is sent with its length, not in chunks"
            ));
        }
        if name.eq_ignore_ascii_case("content-length") && *value != length.to_string() {
            return Err(format!("--header {name}: {value}, but the body has {length} bytes"));
        }
    }
    for name in ["content-length", "host"] {
        if fields.iter().filter(|field| is(field, name)).count() > 1 {
            return Err(format!("--header {name}: is given more than once"));
        }
    }
    let closes = |(name, value): &Field| {
        let mut options = value.split(',').map(str::trim);
        name.eq_ignore_ascii_case("connection")
            && options.any(|option| option.eq_ignore_ascii_case("close"))
    };
    let found = fields.iter().any(closes);
    fields.retain(|field| !(closes(field) && field.1.eq_ignore_ascii_case("close")));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(all: &[(&str, &str)]) -> Vec<Field> {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn checked(all: &[(&str, &str)], http2: bool, length: usize) -> Result<bool, String> {
        check(&mut fields(all), http2, length)
    }

    #[test]
    fn fields_that_contradict_the_body_are_refused() {
        assert!(checked(&[("Content-Length", "3")], false, 5).is_err());
        assert!(checked(&[("content-length", "3")], true, 5).is_err());
        assert_eq!(checked(&[("Content-Length", "5")], false, 5), Ok(false));
        assert!(checked(&[("Content-Length", "5"), ("content-length", "5")], false, 5).is_err());
        assert!(checked(&[("Transfer-Encoding", "chunked")], false, 5).is_err());
        assert!(checked(&[("Transfer-Encoding", "gzip")], false, 0).is_err());
        assert!(checked(&[("Host", "a"), ("host", "b")], false, 0).is_err());
    }

    #[test]
    fn fields_of_a_connection_are_refused_in_http2() {
        for name in OF_CONNECTIONS {
            assert!(checked(&[(name, "x")], true, 0).is_err(), "{name}");
        }
        assert!(checked(&[("TE", "gzip")], true, 0).is_err());
        assert_eq!(checked(&[("TE", "trailers"), ("Host", "other")], true, 0), Ok(false));
        assert_eq!(checked(&[("TE", "gzip"), ("Keep-Alive", "9")], false, 0), Ok(false));
    }

    #[test]
    fn connection_close_is_an_option_of_the_generator() {
        let mut all = fields(&[("X", "1"), ("connection", "Close"), ("Connection", "TE, close")]);
        assert_eq!(check(&mut all, false, 0), Ok(true));
        assert_eq!(all, fields(&[("X", "1"), ("Connection", "TE, close")]));
        assert_eq!(checked(&[("Connection", "keep-alive")], false, 0), Ok(false));
    }
}
