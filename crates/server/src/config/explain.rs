//! Why a URL is served as it is.

use std::fmt::Write;
use std::path::Path;

use dunlin_http::semantics::{Method, host, path, target};

use super::Config;
use super::file::Route;

/// Tells which site and which routes hold for `url`, and what each setting comes from.
///
/// # Errors
/// When `url` is neither a path nor an http URL.
pub fn explain(config: &Config, file: &Path, url: &str) -> Result<String, String> {
    let malformed = || format!("{url:?} is neither a path nor an http URL");
    let (authority, raw_path) = match target::parse(Method::Get, url.as_bytes()) {
        Ok(target::Target::Origin { path, .. }) => (&b""[..], path),
        Ok(target::Target::Absolute { authority, path, .. }) => (authority, path),
        _ => return Err(malformed()),
    };
    let host = host::parse(authority).ok_or_else(malformed)?.name;
    let host_text = String::from_utf8_lossy(host);
    let mut text = String::new();
    let Some(site) = config.sites.find(host) else {
        return Ok(format!(
            "no site is for the host {host_text:?}, and none for every other: 421\n"
        ));
    };
    let by = if site.hosts.is_empty() { "it is for every other host" } else { "by its host" };
    let _ = writeln!(text, "site      {} ({by})", site.name);
    let mut decoded = Vec::new();
    if let Err(error) = path::decode(raw_path, &mut decoded) {
        let status = if error == path::PathError::EncodedSlash { 404 } else { 400 };
        let _ = writeln!(text, "path      refused with {status}: {error:?}");
        return Ok(text);
    }
    let _ = writeln!(text, "path      {}", String::from_utf8_lossy(&decoded));

    let mut gathered = Route::default();
    let mut origins: Vec<(&'static str, String)> = Vec::new();
    for route in &site.routes {
        let pattern = route.route.path.get_ref();
        let place = format!("{}:{}", file.display(), route.line);
        if !route.pattern.matches(&decoded) {
            let _ = writeln!(text, "route     {pattern} ({place}) does not match");
            continue;
        }
        let _ = writeln!(text, "route     {pattern} ({place}) matches");
        gathered.overlay(&route.route, |key| {
            let key = key.trim_start_matches("r#");
            origins.retain(|(other, _)| *other != key);
            origins.push((key, format!("{pattern} ({place})")));
        });
    }
    let settings = site.route(&decoded);
    for (key, origin) in &origins {
        let _ = writeln!(text, "setting   {key} from {origin}");
    }
    let _ = writeln!(text, "in force  {settings:#?}");
    if let Some(redirect) = &settings.redirect {
        let _ = writeln!(text, "answer    {} to another place", redirect.status);
    } else if let Some(respond) = &settings.respond {
        let _ = writeln!(text, "answer    {} with a fixed text", respond.status);
    } else {
        let relative = String::from_utf8_lossy(&decoded);
        let place = settings.root.join(relative.trim_start_matches('/'));
        let _ = writeln!(text, "answer    the file {}", place.display());
    }
    Ok(text)
}
