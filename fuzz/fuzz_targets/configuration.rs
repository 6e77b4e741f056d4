#![no_main]
//! The configuration: no text panics, every error has its location, and an accepted configuration decides on any request.
//!
//! The input is a configuration, a request and further files, separated by NULs. The files are `1.toml`, `2.toml` and so on, beside
//! the configuration, which can include them.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use bytes::Bytes;
use dunlin_config::{Config, Facts, Handler, Overrides, Settings, Site, UpstreamHost, explain_settings};
use dunlin_http::http1::Http1Connection;
use dunlin_http::semantics::target::{self, Target};
use dunlin_http::semantics::host::is_authority;
use dunlin_http::semantics::{is_field_value, path};
use dunlin_http::{FieldName, Head, Limits, Request};
use dunlin_transform::Transform;
use libfuzzer_sys::fuzz_target;

const REQUEST: &str = "GET /a/b.php/c?a=b&c=%41 HTTP/1.1\r\nHost: a.test\r\nCookie: a=b\r\nX: x\r\n\r\n";

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("dunlin-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for included files");
    folder
});

fuzz_target!(|input: &str| {
    let mut parts = input.split('\0');
    let text = parts.next().unwrap_or_default();
    let request = parts.next().filter(|request| !request.is_empty()).unwrap_or(REQUEST);
    let files: Vec<&str> = parts.take(4).collect();
    for (number, content) in files.iter().enumerate() {
        std::fs::write(FOLDER.join(format!("{}.toml", number + 1)), content).expect("a file");
    }
    let file = FOLDER.join("dunlin.toml");
    match Config::parse(text, &file, &Overrides::default()) {
        Ok(config) => respond(&config, &file, request.as_bytes()),
        Err(problems) => {
            assert!(!problems.is_empty());
            assert!(problems.iter().all(|problem| !problem.to_string().contains('\n')));
        }
    }
    for number in 0..files.len() {
        std::fs::remove_file(FOLDER.join(format!("{}.toml", number + 1))).expect("the file");
    }
});

/// Decides on a request as the router does.
fn respond(config: &Config, file: &Path, bytes: &[u8]) {
    let mut head = Head::default();
    // What is not a request has neither a target nor fields.
    let _ = Http1Connection::default().head(bytes, &Limits::default(), &mut head);
    let request = Request::new(bytes, &head);
    let Ok(Target::Origin { path: raw, query }) = target::parse(request.method(), request.target()) else {
        return;
    };
    let mut path = Vec::new();
    if path::decode(raw, &mut path).is_err() {
        return;
    }
    let host = request.field(FieldName::Host).unwrap_or_default();
    let Some(site) = config.sites.find(host) else { return };
    let client = Some([192, 0, 2, 1].into());
    let facts = Facts { request, path: &path, query, client, encrypted: false, hidden: &site.user_fields };
    let chosen = site.for_maps(&facts);
    let mut explanation = String::new();
    explain_settings(config, file, (site, chosen.as_ref().unwrap_or(site)), &facts, true, &mut explanation);
    assert!(!explanation.is_empty());
    serve(site, &facts, host);
    let holds = |at: &usize| site.condition(*at).is_some_and(|when| when.holds(&facts));
    let applying: Vec<usize> = site.conditional_routes(&path).into_iter().filter(holds).collect();
    if !applying.is_empty() {
        serve(&site.under(&applying), &facts, host);
    }
}

/// Makes what depends on the request.
fn serve(site: &Site, facts: &Facts<'_>, host: &[u8]) {
    let settings = site.route(facts.path);
    assert!(site.has_settings(facts.path, &settings));
    for field in &settings.check_rules.fields {
        drop(field.of_request(facts));
    }
    match &settings.handler {
        Handler::Redirect(rule) => {
            let location = rule.location((facts.path, facts.query), host, Some(facts));
            assert!(is_field_value(&location));
        }
        Handler::Rewrite(to) => {
            if let Some(found) = to.expand(facts.path, facts.query, Some(facts)) {
                assert!(found.path.starts_with(b"/"));
                let dots = |segment: &[u8]| matches!(segment, b"." | b"..");
                assert!(!found.path.split(|&byte| byte == b'/').any(dots));
            }
        }
        Handler::Respond(respond) => drop(respond.body(facts)),
        Handler::Proxy(proxy) => {
            for field in &proxy.set_request_fields {
                assert!(is_field_value(&field.value(facts, |_, _| {})));
            }
            if let Some(path) = &proxy.path {
                let target = path.target(facts.path, facts.query, facts);
                assert!(target.starts_with('/') && target.bytes().all(|byte| byte.is_ascii_graphic()), "{target:?}");
            }
            if let UpstreamHost::Named(host) = &proxy.host {
                let host = host.host_value(facts, |_, _| {});
                assert!(host.is_none_or(|host| is_authority(host.as_bytes())));
            }
        }
        _ => {}
    }
    substitute(&settings, facts.request.target());
}

/// Replaces texts of a body, which gives the same however the body is cut.
fn substitute(settings: &Settings, body: &[u8]) {
    let substitutions = settings.transforms.iter().flat_map(|transforms| &transforms.substitutions);
    for substitution in substitutions {
        let changed = |sizes: usize| {
            let (mut stage, mut parts) = (substitution.patterns.start(), Vec::new());
            body.chunks(sizes).for_each(|chunk| stage.push(Bytes::copy_from_slice(chunk), &mut parts));
            stage.end(&mut parts);
            parts.iter().flat_map(|part| part.bytes().to_vec()).collect::<Vec<u8>>()
        };
        assert_eq!(changed(1), changed(body.len().max(1)));
    }
}
