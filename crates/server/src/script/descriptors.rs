//! Retrying what fails for lack of file descriptors, after the cache has closed its own.

use std::io;
use std::time::Duration;

use tokio::time::sleep;

use super::failure::Failure;
use crate::script::context::Context;
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
    for pause in PAUSES {
        match open().await {
            Err(error) if lacks_descriptors(&error) => {
                ctx.release_descriptors();
                sleep(pause).await;
            }
            result => return result,
        }
    }
    open().await
}

/// The same for functions that fail with [`Failure::NoDescriptor`].
pub(super) async fn retry_failed<T>(
    ctx: &Context,
    open: impl AsyncFn() -> Result<T, Failure>,
) -> Result<T, Failure> {
    for pause in PAUSES {
        match open().await {
            Err(Failure::NoDescriptor) => {
                ctx.release_descriptors();
                sleep(pause).await;
            }
            result => return result,
        }
    }
    open().await
}
