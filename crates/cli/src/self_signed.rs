//! A self-signed certificate for development, created once and reused.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Lifetime after which a new certificate is created.
const LIFE: Duration = Duration::from_secs(300 * 24 * 3600);

/// Returns the files of a certificate for `localhost` and its addresses, and of its key. Creates them if they are missing or
/// old.
///
/// # Errors
/// A file cannot be created.
pub(crate) fn files() -> Result<(PathBuf, PathBuf), String> {
    let folder = folder().ok_or("--tls-self-signed: neither XDG_DATA_HOME nor HOME is set")?;
    let (certificate, key) = (folder.join("localhost.pem"), folder.join("localhost.key"));
    if !key.is_file() || !is_recent(&certificate) {
        make(&folder, &certificate, &key)
            .map_err(|error| format!("--tls-self-signed: {}: {error}", folder.display()))?;
    }
    Ok((certificate, key))
}

fn folder() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = set("XDG_DATA_HOME").or_else(|| Some(set("HOME")?.join(".local/share")))?;
    Some(data.join("dunlin"))
}

fn is_recent(file: &Path) -> bool {
    let modified = fs::metadata(file).and_then(|facts| facts.modified());
    let age = modified.map(|modified| SystemTime::now().duration_since(modified));
    matches!(age, Ok(Ok(age)) if age < LIFE)
}

fn make(folder: &Path, certificate: &Path, key: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let made = rcgen::generate_simple_self_signed(names)?;
    fs::create_dir_all(folder)?;
    // Create the key with its final mode, so that no other user can ever read it.
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(key)?.write_all(made.signing_key.serialize_pem().as_bytes())?;
    fs::write(certificate, made.cert.pem())?;
    Ok(())
}
