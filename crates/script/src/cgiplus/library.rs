//! The files of CGIplus and of the run-time environment, which are part of the server's program: client libraries for
//! interpreted languages, which workers find without any setting, and the programs of the run-time environment.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The libraries by the names under which programs load them.
pub(in super::super) const LIBRARIES: [(&str, &str); 3] = [
    (
        "cgiplus.py",
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripting/cgiplus/cgiplus.py")),
    ),
    (
        "CGIplus.pm",
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripting/cgiplus/CGIplus.pm")),
    ),
    (
        "Cgiplus.php",
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripting/cgiplus/Cgiplus.php")),
    ),
];

/// The program of the run-time environment for Python.
pub(in super::super) const PYTHON: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripting/rte/host.py"));
/// The program of the run-time environment for Perl.
pub(in super::super) const PERL: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripting/rte/host.pl"));

/// The folder of the libraries, beside the sockets of workers.
pub(in super::super) const FOLDER: &str = "cgiplus";

/// Variables by which Python and Perl find modules.
const SEARCHED: [&str; 2] = ["PYTHONPATH", "PERL5LIB"];
/// The variable by which a PHP program finds its library; PHP has no search path in its environment.
const NAMED: &str = "CGIPLUS_LIB";

/// Appends `folder` to the search paths of the interpreters.
pub(in super::super) fn add_to(environment: &mut Vec<(OsString, OsString)>, folder: &Path) {
    for name in SEARCHED {
        match environment.iter_mut().find(|(known, _)| known == name) {
            Some((_, value)) if !value.is_empty() => {
                value.push(":");
                value.push(folder);
            }
            Some((_, value)) => value.push(folder),
            None => environment.push((name.into(), folder.into())),
        }
    }
    if !environment.iter().any(|(known, _)| known == OsStr::new(NAMED)) {
        environment.push((NAMED.into(), folder.into()));
    }
}
