//! `file_server` and `php_fastcgi`.

use super::builder::{Builder, State};
use super::entry::Entry;
use super::handlers::position;
use crate::regions::{Paths, Region};
use crate::units::shown_time;
use crate::value::Value;

impl<'t> Builder<'_, 't> {
    pub(super) fn file_server(&mut self, entry: &Entry<'t>, region: &Region, state: &mut State) {
        let directive = entry.directive;
        self.context.report.differs(
            directive,
            "names that begin with a dot get 404, symlinks are followed within the root, a directory without an index file gets 403, redirects to directories have status 301, a file with a slash behind its name gets 404, and index.txt is no index file",
        );
        if entry.words.first().is_some_and(|word| word == "browse") {
            state.keys.set("listing", Value::Switch(true));
        }
        for child in directive.children() {
            match child.name.as_str() {
                "root" => {
                    self.context.report.carried(child);
                    state.root = Some(self.context.in_folder(child.word(0)));
                }
                "browse" => {
                    self.context.report.differs(child, "the page has another form");
                    state.keys.set("listing", Value::Switch(true));
                }
                "index" => {
                    self.context.report.carried(child);
                    let names: Vec<String> =
                        child.words.iter().filter(|name| !name.contains('/')).cloned().collect();
                    state.keys.set("index", Value::list(names));
                }
                "precompressed" => self
                    .context
                    .report
                    .not_needed(child, "compressed files beside others are sent by default"),
                "hide" => {
                    let is_hidden = |word: &String| word.starts_with('.') && !word.contains('/');
                    let hidden = child.words.iter().all(is_hidden);
                    match hidden {
                        true => self.context.report.not_needed(child, "names that begin with a dot get 404"),
                        false => self.context.report.lost(child, "names that do not begin with a dot are sent: write a route with `respond = { status = 404 }`"),
                    }
                }
                "pass_thru" => self.context.report.lost(child, "what is no file gets 404"),
                "disable_canonical_uris" => self
                    .context
                    .report
                    .lost(child, "directories are redirected to their names with a slash"),
                _ => self.context.report.lost(child, "it has no counterpart"),
            }
        }
        self.place(region, state);
        state.end = position(entry);
    }

    /// Sets the directory of files, and what is tried there.
    fn place(&mut self, region: &Region, state: &mut State) {
        let folder = self.context.folder.to_string_lossy().into_owned();
        let root = state.root.clone().unwrap_or(folder);
        let is_directory = matches!(&region.paths, Paths::Pattern(_, behind) if behind.is_empty());
        match (&state.strip, is_directory) {
            (Some(_), true) => state.keys.set("alias", Value::text(root)),
            (Some(prefix), false) => match &region.paths {
                Paths::Exact(path) => {
                    let rest = path.strip_prefix(prefix.as_str()).unwrap_or_default();
                    state.keys.set("alias", Value::text(format!("{root}{rest}")));
                }
                _ => state.keys.set("alias", Value::text(root)),
            },
            (None, _) => state.keys.set("root", Value::text(root)),
        }
        if let Some(tries) = state.tries.clone() {
            // Paths are those behind the prefix.
            let tries: Vec<String> = match &state.strip {
                None => tries,
                Some(prefix) => tries
                    .iter()
                    .map(|step| match step.starts_with('/') {
                        true => format!("{prefix}{step}"),
                        false => step.clone(),
                    })
                    .collect(),
            };
            if !tries.iter().any(|step| step.ends_with('/')) {
                // `{path}` stands for files alone.
                state.keys.set("index", Value::List(Vec::new()));
            }
            if tries != ["{path}", "=404"] && tries != ["{path}", "{path}/", "=404"] {
                state.keys.set("try", Value::list(tries));
            }
        }
    }

    pub(super) fn php(&mut self, entry: &Entry<'t>, region: &Region, state: &mut State) {
        let directive = entry.directive;
        self.context.report.differs(
            directive,
            "files that are no scripts are sent, what follows a script in the path is PATH_INFO, and a directory without an index file is passed over",
        );
        let connect: Vec<String> = entry.words.iter().map(|word| fastcgi(word)).collect();
        let mut env = Value::Table(Vec::new());
        let mut script = Value::table([
            ("kind", Value::text("fastcgi")),
            ("connect", Value::one_or_many(connect)),
        ]);
        let mut tries: Option<Vec<String>> = state.tries.clone();
        let mut index = "index.php".to_owned();
        for child in directive.children() {
            match child.name.as_str() {
                "root" => state.root = Some(self.context.in_folder(child.word(0))),
                "env" => match child.word(1).contains('{') {
                    true => {
                        let what =
                            format!("scripts get no {}: it depends on the request", child.word(0));
                        self.context.report.lost(child, what);
                        continue;
                    }
                    false => env.set(child.word(0), Value::text(child.word(1))),
                },
                "index" => child.word(0).clone_into(&mut index),
                "try_files" => {
                    tries = Some(
                        child
                            .words
                            .iter()
                            .map(|word| {
                                if word.starts_with(['/', '{', '=']) {
                                    word.clone()
                                } else {
                                    format!("/{word}")
                                }
                            })
                            .collect(),
                    );
                }
                "dial_timeout" | "read_timeout" | "write_timeout" => {
                    let key = if child.name == "dial_timeout" {
                        "connect_timeout"
                    } else {
                        "idle_timeout"
                    };
                    if let Some(time) = crate::units::time(child.word(0)) {
                        script.set(key, Value::text(shown_time(time)));
                    }
                }
                "split" | "split_path" => {
                    let names: Vec<String> = child
                        .words
                        .iter()
                        .map(|word| word.trim_start_matches('.').to_owned())
                        .collect();
                    if names != ["php"] {
                        script.set("extensions", Value::list(names));
                    }
                }
                "capture_stderr" | "resolve_root_symlink" => {
                    self.context
                        .report
                        .not_needed(child, "messages of scripts are in the error log");
                    continue;
                }
                _ => {
                    self.context.report.lost(child, "it has no counterpart");
                    continue;
                }
            }
            self.context.report.carried(child);
        }
        let folder = self.context.folder.to_string_lossy().into_owned();
        let root = state.root.clone().unwrap_or(folder);
        script.set("root", Value::text(root));
        script.set("authorization", Value::Switch(true));
        for (name, value) in &state.request_fields {
            env.set(
                &format!("HTTP_{}", name.to_ascii_uppercase().replace('-', "_")),
                Value::text(value),
            );
        }
        if !env.entries().is_empty() {
            script.set("env", env);
        }
        state.keys.set("script", script);
        if index == "off" {
            tries.get_or_insert_with(|| vec!["{path}".into(), "=404".into()]);
        } else {
            state.keys.set("index", Value::list([index.clone()]));
            tries.get_or_insert_with(|| {
                vec!["{path}".into(), "{path}/".into(), format!("/{index}")]
            });
        }
        state.tries = tries;
        state.keys.set(
            "body_size",
            state.keys.get("body_size").cloned().unwrap_or(Value::text("unlimited")),
        );
        self.place(region, state);
        state.end = position(entry);
    }
}

/// Returns the address of a worker.
pub(super) fn fastcgi(word: &str) -> String {
    match word.strip_prefix("unix/") {
        Some(path) => format!("unix:{path}"),
        None => {
            let word =
                if word.starts_with(':') { format!("127.0.0.1{word}") } else { word.to_owned() };
            let word = if word.contains(':') { word } else { format!("{word}:9000") };
            word.replacen("localhost:", "127.0.0.1:", 1)
        }
    }
}
