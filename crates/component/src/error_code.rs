//! Error codes of WASI HTTP as text.

use std::fmt::Debug;

use dunlin_client::snake_case;

/// Describes the error that a component responds with: the name of its code as in WIT, and the reason that the component gave.
///
/// Versions 0.2 and 0.3 have types of their own for the same codes; both derive `Debug`.
pub(crate) fn describe(code: &impl Debug) -> String {
    let text = format!("{code:?}");
    let text = text.strip_prefix("ErrorCode::").unwrap_or(&text);
    let (name, payload) = text.split_once(['(', ' ', '{']).unwrap_or((text, ""));
    let text = format!("it responds with the error {}", snake_case(name).replace('_', "-"));
    match payload.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"')) {
        Some((reason, _)) => format!("{text}: {reason}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;

    use super::*;

    #[test]
    fn a_code_is_named_as_in_wit_with_its_reason() {
        for (code, expected) in [
            (ErrorCode::ConnectionTimeout, "connection-timeout"),
            (ErrorCode::InternalError(None), "internal-error"),
            (ErrorCode::InternalError(Some("on purpose".into())), "internal-error: on purpose"),
            (ErrorCode::HttpRequestBodySize(Some(1)), "http-request-body-size"),
        ] {
            assert_eq!(describe(&code), format!("it responds with the error {expected}"));
        }
    }
}
