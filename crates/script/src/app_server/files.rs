//! The application servers, which are part of the server's program.

use dunlin_config::ScriptKind;

/// The files of an application server: its program and what that loads, with their names next to the sockets.
pub(in super::super) struct ProgramFiles {
    pub(in super::super) program: File,
    pub(in super::super) libraries: &'static [File],
}

/// A file's name and content.
type File = (&'static str, &'static [u8]);

const WSGI: File = (
    "wsgi-host.py",
    include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripting/wsgi/host.py")),
);

/// The part of the WSGI server that is not in Python, made from `scripting/wsgi/fast.c`.
const WSGI_FAST: File =
    ("dunlin_wsgi.abi3.so", include_bytes!(concat!(env!("OUT_DIR"), "/wsgi-fast.so")));

const ASGI: File = (
    "asgi-host.py",
    include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripting/asgi/host.py")),
);

const PSGI: File = (
    "psgi-host.pl",
    include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripting/psgi/host.pl")),
);

/// The code that the servers of Python applications and the run-time environment share.
pub(in super::super) const LOADING: File = (
    "dunlin_loading.py",
    include_bytes!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../scripting/python/dunlin_loading.py"
    )),
);

/// Returns the files of the application server for `kind`.
pub(in super::super) fn files(kind: ScriptKind) -> ProgramFiles {
    match kind {
        ScriptKind::Asgi => ProgramFiles { program: ASGI, libraries: &[LOADING] },
        ScriptKind::Psgi => ProgramFiles { program: PSGI, libraries: &[] },
        _ => ProgramFiles { program: WSGI, libraries: &[LOADING, WSGI_FAST] },
    }
}
