//! The keys of the table `script` by kind: what the reader accepts, the schema offers, and the book lists.

use super::super::file::{ScriptKind, ScriptTable};
use super::super::spanned::{Span, Spanned};

use ScriptKind::{Asgi, Cgi, Cgiplus, Component, FastCgi, Psgi, Rte, Scgi, Uwsgi, Warm, Wsgi};

/// A key, and the group of kinds that have it.
pub(crate) struct ScriptKey {
    pub(crate) name: &'static str,
    pub(crate) group: &'static Group,
    place: fn(&ScriptTable) -> Option<&Span>,
}

/// Kinds that have the same keys.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    kinds: &'static [ScriptKind],
    /// The group in messages; empty for the list of its kinds.
    words: &'static str,
    /// The side of the socket for which FastCGI has these keys.
    side: Side,
}

/// The party that starts the workers of a socket.
#[derive(Debug, PartialEq, Eq)]
enum Side {
    Both,
    /// The server does, by `command`.
    Here,
    /// Another program does; they are reached at `connect`.
    Elsewhere,
}

const fn group(kinds: &'static [ScriptKind], words: &'static str, side: Side) -> Group {
    Group { kinds, words, side }
}

/// All kinds, in the order of the book.
pub(crate) const EVERY_KIND: &[ScriptKind] =
    &[Cgi, Warm, FastCgi, Scgi, Uwsgi, Wsgi, Asgi, Psgi, Cgiplus, Rte, Component];

static EVERY: Group = group(EVERY_KIND, "scripts", Side::Both);
static IN_PROCESSES: Group = group(
    &[Cgi, Warm, FastCgi, Scgi, Uwsgi, Wsgi, Asgi, Psgi, Cgiplus, Rte],
    "scripts in processes",
    Side::Both,
);
static OWNED: Group = group(
    &[Cgi, Warm, FastCgi, Wsgi, Asgi, Psgi, Cgiplus, Rte],
    "processes that are started here",
    Side::Here,
);
static BOUNDED: Group = group(
    &[Cgi, Warm, FastCgi, Wsgi, Asgi, Psgi, Cgiplus, Rte, Component],
    "processes that are started here",
    Side::Here,
);
static WORKERS: Group =
    group(&[FastCgi, Wsgi, Asgi, Psgi, Cgiplus, Rte], "workers that are started here", Side::Here);
static CONNECTED: Group = group(&[FastCgi, Scgi, Uwsgi], "workers at `connect`", Side::Elsewhere);
static SOCKETS: Group = group(&[FastCgi, Scgi, Uwsgi], "", Side::Both);
static FAST_CGI: Group = group(&[FastCgi], "", Side::Both);
static FILES: Group = group(&[Cgi, Warm, FastCgi, Scgi, Uwsgi], "", Side::Both);
static BY_EXTENSION: Group = group(
    &[Cgi, Warm, FastCgi, Scgi, Uwsgi, Rte],
    "scripts beneath a `root` or `directory` that workers run",
    Side::Both,
);
static PROGRAMS: Group = group(&[Cgi, Warm, Cgiplus, Component], "", Side::Both);
static WARM: Group = group(&[Warm], "", Side::Both);
static APPLICATIONS: Group = group(&[Wsgi, Asgi, Psgi], "", Side::Both);
static MOUNTED: Group = group(
    &[Cgi, Warm, FastCgi, Scgi, Uwsgi, Wsgi, Asgi, Psgi],
    "applications and single programs",
    Side::Both,
);
static INTERPRETED: Group = group(&[Wsgi, Asgi, Psgi, Rte], "", Side::Both);
static WSGI: Group = group(&[Wsgi], "", Side::Both);
static ASGI: Group = group(&[Asgi], "", Side::Both);
static COMPONENT: Group = group(&[Component], "", Side::Both);

macro_rules! keys {
    ($($group:ident: $($key:ident),+;)+) => {
        /// All keys but `kind`.
        pub(crate) static KEYS: &[ScriptKey] = &[$($(ScriptKey {
            name: stringify!($key),
            group: &$group,
            place: |table| table.$key.as_ref().map(place),
        }),+),+];

        /// Makes the compiler find a key that is in no group.
        #[expect(dead_code, reason = "it is compiled only")]
        fn all_are_in_a_group(table: ScriptTable) {
            let ScriptTable { kind: _, $($($key: _),+),+ } = table;
        }
    };
}

keys! {
    EVERY: directory, sendfile_root, request_id, send_request_id, intercept_errors, show_errors, authorization;
    IN_PROCESSES: processes, queue, queue_timeout, timeout, first_byte_timeout, idle_timeout, env;
    OWNED: user, group, nice;
    BOUNDED: memory, cpu;
    FILES: root;
    BY_EXTENSION: extensions;
    PROGRAMS: file;
    WORKERS: min_processes, retire_idle, requests, max_age, max_resident, backoff;
    SOCKETS: connect;
    CONNECTED: connect_timeout, cool_down, keep_alive;
    FAST_CGI: command;
    APPLICATIONS: application;
    MOUNTED: mount;
    INTERPRETED: interpreter;
    WSGI: threads;
    ASGI: message_size, tunnel_timeout;
    WARM: preload;
    COMPONENT: time, instances, reuse, idle, environment, files, outbound, stderr;
}

impl ScriptKey {
    /// Returns `true` if scripts of this kind have the key.
    pub(crate) fn fits(&self, kind: ScriptKind) -> bool {
        self.group.kinds.contains(&kind)
    }
}

/// Returns a message, and its place, for each key of `table` that does not belong to its kind.
pub(super) fn misplaced(table: &ScriptTable) -> impl Iterator<Item = (&Span, String)> {
    let kind = table.kind.value;
    KEYS.iter().filter_map(move |key| {
        let place = (key.place)(table)?;
        let is_here = kind == FastCgi && table.connect.is_none();
        let fits = key.fits(kind)
            && match key.group.side {
                Side::Here => kind != FastCgi || is_here,
                Side::Elsewhere => !is_here,
                Side::Both => true,
            };
        let is_named =
            key.name != "extensions" || table.directory.is_some() || table.root.is_some();
        if fits && is_named {
            return None;
        }
        let instead = match key.name {
            "env" if kind.is_component() => "; write `environment`",
            _ => "",
        };
        Some((place, format!("script: `{}` belongs to {}{instead}", key.name, key.group.words())))
    })
}

impl Group {
    /// Returns the group in the words of messages.
    fn words(&self) -> String {
        if !self.words.is_empty() {
            return self.words.to_owned();
        }
        let names: Vec<_> =
            self.kinds.iter().map(|kind| format!("\"{}\"", kind.as_str())).collect();
        match names.split_last() {
            Some((last, [])) => format!("kind {last}"),
            Some((last, others)) => format!("kinds {} and {last}", others.join(", ")),
            None => String::new(),
        }
    }
}

fn place<T>(value: &Spanned<T>) -> &Span {
    &value.span
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Config, Overrides};

    /// A value for each type of a key.
    const VALUES: [&str; 11] = [
        "'x'",
        "1",
        "true",
        "'10s'",
        "'64MB'",
        "['x']",
        "'keep'",
        "{}",
        "'make'",
        "'log'",
        "[{ path = '/x', as = '/x' }]",
    ];

    /// Returns the problems of a script of this kind with `key`, which has a value of its type.
    fn problems(kind: ScriptKind, key: &str) -> Vec<String> {
        let base = match kind {
            FastCgi if ["connect_timeout", "cool_down", "keep_alive"].contains(&key) => {
                "connect = ['unix:/x']"
            }
            FastCgi => "command = ['x']",
            Scgi | Uwsgi => "connect = ['unix:/x']",
            Psgi => "application = 'x.psgi'",
            Wsgi | Asgi => "application = 'a:b'",
            Cgi | Warm if key == "mount" => "file = '/x'",
            _ => "directory = '/x'",
        };
        let base = if base.starts_with(key) { "" } else { base };
        for value in VALUES {
            let text = format!(
                "[[listen]]\naddress = ':1'\n[[site]]\nroot = '/srv'\n[[site.route]]\npath = '/a/*'\n[site.route.script]\nkind = '{}'\n{key} = {value}\n{base}\n",
                kind.as_str()
            );
            let problems =
                Config::parse(&text, Path::new("/etc/dunlin.toml"), &Overrides::default());
            let Err(problems) = problems else { return Vec::new() };
            let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
            let is_of_another_type = problems.iter().any(|problem| {
                problem.contains(&format!(" {key}: ")) && !problem.contains("script: ")
                    || problem.contains("is not one of")
            });
            if !is_of_another_type {
                return problems;
            }
        }
        panic!("no value fits `{key}`");
    }

    #[test]
    fn a_key_of_another_kind_is_named_with_the_kinds_that_have_it() {
        for &kind in EVERY_KIND {
            for key in KEYS {
                let message = format!("script: `{}` belongs to {}", key.name, key.group.words());
                let problems = problems(kind, key.name);
                let is_rejected = problems.iter().any(|problem| problem.contains(&message));
                // It also needs a `root` or a `directory`.
                if key.name != "extensions" || !key.fits(kind) {
                    assert_eq!(is_rejected, !key.fits(kind), "{kind:?} {}: {problems:?}", key.name);
                }
            }
        }
    }

    #[test]
    fn the_schema_of_a_kind_has_its_keys_only() {
        let schema = Config::schema();
        let kinds =
            schema["$defs"]["ScriptTable"]["oneOf"].as_array().expect("a schema for each kind");
        assert_eq!(kinds.len(), EVERY_KIND.len());
        for (kind, schema) in EVERY_KIND.iter().zip(kinds) {
            let properties = schema["properties"].as_object().expect("keys");
            assert_eq!(properties["kind"]["const"], kind.as_str());
            for key in KEYS {
                assert_eq!(
                    properties.contains_key(key.name),
                    key.fits(*kind),
                    "{kind:?} {}",
                    key.name
                );
            }
        }
    }
}
