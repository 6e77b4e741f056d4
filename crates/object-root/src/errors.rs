//! The meaning of the client's errors, without secrets.

use std::error::Error;

use dunlin_files::objects::store::StoreError;
use http::StatusCode;
use object_store::client::{HttpError, HttpErrorKind};

use crate::reply::{ErrorStatus, Violation};

/// Returns what an error of the client means.
pub(crate) fn classify(error: &object_store::Error) -> StoreError {
    use object_store::Error as Of;
    match error {
        Of::NotFound { .. } | Of::InvalidPath { .. } => StoreError::Missing,
        Of::Precondition { .. } => StoreError::Changed,
        Of::NotSupported { .. } | Of::NotImplemented { .. } => StoreError::Unsupported,
        error => {
            if let Some(status) = find::<ErrorStatus>(error) {
                return by_status(status);
            }
            if let Some(violation) = find::<Violation>(error) {
                return StoreError::Invalid(violation.to_string());
            }
            match find::<HttpError>(error) {
                Some(_) => StoreError::Failed(innermost(error)),
                // The head of a response is not as it should be.
                None => StoreError::Invalid(innermost(error)),
            }
        }
    }
}

/// Returns what an error of the client means, as text without secrets.
pub fn describe(error: &object_store::Error) -> String {
    match classify(error) {
        StoreError::Missing => "the object is missing".into(),
        StoreError::Denied => "access is denied".into(),
        StoreError::Changed => "the object has changed".into(),
        StoreError::Unsupported => "the store lacks this operation".into(),
        StoreError::Invalid(text) | StoreError::Failed(text) => text,
    }
}

/// Returns `true` if the service has closed the connection without a response, as it does with idle ones.
pub(crate) fn is_closed(error: &object_store::Error) -> bool {
    find::<HttpError>(error).is_some_and(|error| {
        matches!(error.kind(), HttpErrorKind::Request | HttpErrorKind::Interrupted)
    })
}

fn by_status(error: &ErrorStatus) -> StoreError {
    match (error.status, error.code.as_deref()) {
        (StatusCode::GONE, _) => StoreError::Missing,
        // Other codes concern the credentials, and with them every object.
        (StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED, None | Some("AccessDenied")) => {
            StoreError::Denied
        }
        (StatusCode::RANGE_NOT_SATISFIABLE, _) => StoreError::Changed,
        _ => StoreError::Failed(error.to_string()),
    }
}

fn find<'e, T: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// Returns the text of the innermost error, which has no URL.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let text = last.to_string();
    // The number of the error does not help an administrator.
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
