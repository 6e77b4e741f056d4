//! A self-signed certificate for the servers of a comparison.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A certificate and its private key, as PEM files.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Creates a certificate for 127.0.0.1 in `folder` with openssl. Servers that drop their privileges can read the key.
pub(crate) fn create(folder: &Path) -> io::Result<Certificate> {
    let files = Certificate { certificate: folder.join("cert.pem"), key: folder.join("key.pem") };
    let output = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
        .args(["-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .arg("-out")
        .arg(&files.certificate)
        .arg("-keyout")
        .arg(&files.key)
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other("openssl failed"));
    }
    fs::set_permissions(&files.key, fs::Permissions::from_mode(0o644))?;
    Ok(files)
}
