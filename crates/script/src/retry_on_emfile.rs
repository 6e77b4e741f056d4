//! Retrying what fails for lack of file descriptors, after the cache has closed its own.

use std::io;
use std::time::Duration;

use tokio::time::sleep;

use super::failure::Failure;
use crate::context::Context;
use dunlin_net::temp_files::lacks_descriptors;

/// Pauses between attempts, in which other worker threads close their cached files and other requests end.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(25),
    Duration::from_millis(100),
];

/// Calls `open`. When no descriptor is left, has the cache close its own and tries again.
///
/// # Errors
/// Those of `open`.
pub(super) async fn retry<T>(
    ctx: &Context,
    open: impl AsyncFn() -> io::Result<T>,
) -> io::Result<T> {
    retry_if(ctx, open, lacks_descriptors).await
}

/// Returns the same for functions that fail with [`Failure::NoDescriptor`].
pub(super) async fn retry_failed<T>(
    ctx: &Context,
    open: impl AsyncFn() -> Result<T, Failure>,
) -> Result<T, Failure> {
    retry_if(ctx, open, |failure| matches!(failure, Failure::NoDescriptor)).await
}

/// Calls `open` again after each error for which `is_shortage` returns `true`, as often as there are pauses.
async fn retry_if<T, E>(
    ctx: &Context,
    open: impl AsyncFn() -> Result<T, E>,
    is_shortage: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let result = open().await;
    if !result.as_ref().is_err_and(&is_shortage) {
        return result;
    }
    // Boxed to keep the futures of most requests small.
    Box::pin(async {
        for pause in PAUSES {
            ctx.release_descriptors();
            sleep(pause).await;
            let result = open().await;
            if !result.as_ref().is_err_and(&is_shortage) {
                return result;
            }
        }
        result
    })
    .await
}
