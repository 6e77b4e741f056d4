//! Fields that end at a proxy, or that only a proxy may set.

use dunlin_http::{FieldName, Request};

/// Returns `true` if a field concerns a proxy, so that only this server could set it. The name is in lower case. `Proxy`
/// would become HTTP_PROXY in CGI programs, which many of them obey; the others choose the files that an application names.
pub(crate) fn is_for_proxy(name: &[u8]) -> bool {
    match name {
        b"proxy" | b"x-sendfile-type" => true,
        _ => name.starts_with(b"proxy-") || name.starts_with(b"x-accel-"),
    }
}

/// Returns the fields that `Connection` lists, which end here.
pub(crate) fn listed_options<'r>(request: &Request<'r>) -> Vec<&'r [u8]> {
    let values = request.values(FieldName::Connection);
    let options =
        values.flat_map(|value| value.split(|&byte| byte == b',')).map(<[u8]>::trim_ascii);
    options.filter(|option| !option.eq_ignore_ascii_case(b"keep-alive")).collect()
}

/// Returns `true` if `Connection` lists a field of that name, which ends here.
pub(crate) fn is_listed(request: &Request<'_>, name: &[u8]) -> bool {
    let mut options = listed_options(request).into_iter();
    options.any(|option| option.eq_ignore_ascii_case(name))
}
