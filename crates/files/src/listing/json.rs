//! The listing as JSON.

use serde_json::json;

use super::{Page, Totals};

/// Returns a page of the listing of the decoded `path` as JSON.
pub(super) fn json(page: &Page, path: &[u8]) -> String {
    let entries: Vec<_> = page
        .entries
        .iter()
        .map(|entry| {
            json!({
                "name": String::from_utf8_lossy(&entry.name),
                "type": if entry.directory { "directory" } else { "file" },
                "size": entry.size,
                "modified": entry.timestamp(),
                "href": entry.href(), // always valid, even if the name is not UTF-8
            })
        })
        .collect();
    let Totals { directories, files, size } = page.listed;
    json!({
        "path": String::from_utf8_lossy(path),
        "entries": entries,
        // Programs that know nothing of pages see from this that there are other names.
        "truncated": page.pages > 1 || page.truncated,
        "page": page.number,
        "pages": page.pages,
        "count": page.listed.names(),
        "directories": directories,
        "files": files,
        "size": size,
        "limit_reached": page.truncated,
    })
    .to_string()
}
