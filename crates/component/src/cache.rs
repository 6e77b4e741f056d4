//! The cache of compiled code: a directory of the server, with a file for each component that was compiled.
//!
//! Compiled code is executed as it is, so the server loads it only from this directory, which belongs to the server's user and
//! which no other user can write to. The name of a file has the digest of the component and of what compiled it, and a second
//! file has the digest of the code.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::engine::{self, Concurrency};

/// The cache in one directory.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    directory: PathBuf,
}

/// The place of the code of one component.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    code: PathBuf,
    digest: PathBuf,
}

/// Name of the directory beneath the server's directory of state.
const DIRECTORY: &str = "components";
/// Permissions of the directory and of its files: those of the owner only.
const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// The permissions that others must not have.
const FOREIGN_WRITE: u32 = 0o022;

impl Cache {
    /// Returns the cache beneath `state`, which is created if it does not exist.
    ///
    /// # Errors
    /// When it cannot be created, or another user could write there.
    pub(crate) fn open(state: &Path) -> Result<Self, String> {
        let directory = state.join(DIRECTORY);
        let explain = |error: io::Error| {
            format!(
                "{}: {error}; `state` names the directory for compiled components",
                directory.display()
            )
        };
        let created = DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(&directory);
        created.map_err(explain)?;
        check_owner(&directory.metadata().map_err(explain)?)
            .map_err(|why| format!("{}: {why}", directory.display()))?;
        Ok(Self { directory })
    }

    /// Returns the places of the code of `component`, the content of a file, by [`Concurrency`].
    ///
    /// # Errors
    /// Why there is no engine that compiles.
    pub(crate) fn entries(&self, component: &[u8]) -> Result<[Entry; 2], String> {
        let component = Sha256::digest(component);
        let entry = |concurrency| -> Result<Entry, String> {
            let mut digest = Sha256::new();
            digest.update(component);
            digest.update(engine::compatibility(engine::compiler(concurrency)?).to_le_bytes());
            let name = hex(&digest.finalize());
            let path = |extension: &str| self.directory.join(format!("{name}.{extension}"));
            Ok(Entry { code: path("cwasm"), digest: path("sha256") })
        };
        Ok([entry(Concurrency::Off)?, entry(Concurrency::On)?])
    }

    /// Writes the code of a component. Another process sees all of it or nothing.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn store(&self, entry: &Entry, code: &[u8]) -> io::Result<()> {
        let owner = self.directory.metadata()?;
        let write = |bytes: &[u8], path: &Path| {
            let mut file = tempfile::Builder::new()
                .permissions(fs::Permissions::from_mode(PRIVATE_FILE))
                .tempfile_in(&self.directory)?;
            file.write_all(bytes)?;
            if rustix::process::geteuid().is_root() {
                // The server may run as another user, which the directory belongs to.
                std::os::unix::fs::fchown(file.as_file(), Some(owner.uid()), Some(owner.gid()))?;
            }
            file.as_file().sync_all()?;
            file.persist(path).map(drop).map_err(|error| error.error)
        };
        write(hex(&Sha256::digest(code)).as_bytes(), &entry.digest)?;
        write(code, &entry.code)
    }
}

impl Entry {
    /// Returns `true` if there is code, which may be damaged.
    pub(crate) fn exists(&self) -> bool {
        self.code.exists()
    }

    /// Loads the code; `None` if it is not there.
    ///
    /// # Errors
    /// When it is damaged, or belongs to another user.
    pub(crate) fn load(&self, engine: &Engine) -> Result<Option<Component>, String> {
        let explain = |why: String| format!("{}: {why}", self.code.display());
        match self.check() {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(why) => return Err(explain(why)),
        }
        deserialize(engine, &self.code).map(Some).map_err(|error| explain(format!("{error:#}")))
    }

    /// Removes the code, so that it is compiled again.
    pub(crate) fn remove(&self) {
        for path in [&self.code, &self.digest] {
            // It may not exist.
            let _ = fs::remove_file(path);
        }
    }

    /// Returns whether the code is there. That it is what was stored is checked by its digest.
    fn check(&self) -> Result<bool, String> {
        let open = |path: &Path| {
            File::options()
                .read(true)
                .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
                .open(path)
        };
        let (code, digest) = match (open(&self.code), open(&self.digest)) {
            (Ok(code), Ok(digest)) => (code, digest),
            (Err(error), _) | (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(false);
            }
            (Err(error), _) | (_, Err(error)) => return Err(error.to_string()),
        };
        let read = |mut file: File| {
            check_owner(&file.metadata().map_err(|error| error.to_string())?)?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
            Ok::<_, String>(bytes)
        };
        let (code, digest) = (read(code)?, read(digest)?);
        match hex(&Sha256::digest(code)).as_bytes() == digest {
            true => Ok(true),
            false => Err("the file is damaged".into()),
        }
    }
}

/// Checks that only the user of this process or root can change a file.
fn check_owner(metadata: &Metadata) -> Result<(), String> {
    let own = rustix::process::geteuid().as_raw();
    // Root compiles for the user of the directory.
    let is_root = own == 0;
    if metadata.uid() != own && metadata.uid() != 0 && !is_root {
        return Err(format!("it belongs to user {} instead of {own}", metadata.uid()));
    }
    if metadata.mode() & FOREIGN_WRITE != 0 {
        return Err("other users can write to it".into());
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Maps compiled code into memory.
#[expect(unsafe_code, reason = "the engine has no other function that maps compiled code")]
fn deserialize(engine: &Engine, path: &Path) -> wasmtime::Result<Component> {
    // SAFETY: The engine executes the file as it is, so it has to be what the same version of the engine has compiled.
    // `path` is in the directory of the cache, whose files only `Cache::store` writes, with names that have the digest of
    // the component and the version and settings of the engine. The caller has checked that the file has the digest that was
    // stored with it, and that only the user of the server, or root, can change it. Files are replaced by renaming and never
    // written again, so the mapping does not change.
    unsafe { Component::deserialize_file(engine, path) }
}
