//! Purging of stored responses by the admin socket.

use dunlin_exchange::Response;
use dunlin_response_cache::memory::Purge;
use tokio::sync::oneshot;

use crate::handler::status::parameter;
use crate::route::reply::Reply;
use crate::worker::SharedState;

/// Purges what the query names: `path=/a`, `path=/a/*` or `tag=T`, and for one site `site=NAME`. Responds when nothing of it is left
/// on disk, either.
pub(in crate::handler) fn purge(shared: &SharedState, query: Option<&[u8]>) -> Reply {
    let text = |status, text: String| {
        Response::with_text(status, "text/plain; charset=utf-8", format!("{text}\n"))
    };
    let (count, removed) = match purged(shared, query) {
        Ok(purged) => purged,
        Err(reason) => return text(409, reason).into(),
    };
    Reply::Future(Box::pin(async move {
        if let Some(removed) = removed {
            // It fails if there was nothing to remove.
            let _ = removed.await;
        }
        text(
            200,
            if count == 1 { "1 URL purged".to_owned() } else { format!("{count} URLs purged") },
        )
    }))
}

/// The number of URLs, and what resolves when they are removed from the disk.
type Purged = (usize, Option<oneshot::Receiver<()>>);

fn purged(shared: &SharedState, query: Option<&[u8]>) -> Result<Purged, String> {
    let (path, tag) = (parameter(query, b"path"), parameter(query, b"tag"));
    let purge = match (&*path, &*tag) {
        ("/*", "") => Purge::Everything,
        (path, "") if path.starts_with('/') => Purge::Path {
            path: path.strip_suffix('*').unwrap_or(path).as_bytes().into(),
            is_prefix: path.ends_with('*'),
        },
        ("", tag) if !tag.is_empty() => Purge::Tag(tag.as_bytes().into()),
        _ => return Err("purge: name a path that begins with `/`, or a tag".to_owned()),
    };
    let name = parameter(query, b"site");
    let site = match &*name {
        "" => None,
        name => {
            let site = shared.sites.iter().find(|site| site.name == name);
            Some(site.ok_or_else(|| format!("purge: there is no site {name:?}"))?.serial)
        }
    };
    let cache = shared.responses.as_ref();
    let cache = cache.ok_or("purge: no route has `cache = { responses = true }`")?;
    let (count, removed) = cache.purge(site, &purge);
    tracing::info!("purged by the admin socket: {count} URLs ({path}{tag})");
    Ok((count, removed))
}
