//! Configurations of other servers as configurations of Dunlin.
//!
//! [`nginx`](fn@nginx) reads the file and all that it includes, and gives each directive a verdict ([`Report`]): it is carried over, not
//! needed here, or lost. Nothing is left out without a line. The result is TOML as a person writes it.
//!
//! # Example
//! ```
//! use std::path::Path;
//!
//! # let folder = std::env::temp_dir().join(format!("dunlin-convert-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! let file = folder.join("nginx.conf");
//! std::fs::write(&file, "events {} http { server { listen 8080; root /srv/www; } }")?;
//! let converted = dunlin_convert::nginx(&file, None).map_err(|error| error.to_string())?;
//! assert_eq!(converted.report.losses().count(), 0);
//! assert!(converted.toml.contains("root = \"/srv/www\""));
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod apache;
mod caddy;
mod compact;
mod directive;
mod expression;
mod groups;
mod includes;
mod keys;
mod map;
mod model;
mod nginx;
mod pcre;
mod regions;
mod repair;
mod report;
mod sources;
#[cfg(test)]
mod testing;
mod units;
mod value;
mod write;

use std::path::{Path, PathBuf};

use dunlin_config::{Config, Overrides, Problem};

pub use directive::{Place, SourceError};
pub use report::{Finding, Report, Verdict};

/// The result of a conversion.
#[derive(Debug)]
pub struct Conversion {
    /// The configuration.
    pub toml: String,
    /// The configuration before it was shortened: each key has a line of its own.
    long: Option<String>,
    /// The verdict on each directive.
    pub report: Report,
    /// The files that were read.
    pub files: Vec<PathBuf>,
    /// There is no site in them: the other server serves nothing either.
    pub is_empty: bool,
    /// Users with the hashes of their passwords, which a file that the configuration names has to have.
    pub users: Vec<(String, String)>,
}

impl Conversion {
    /// Returns the configuration as the server reads it. `path` stands for it in messages.
    ///
    /// # Errors
    /// All problems that were found.
    pub fn config(&self, path: &Path, overrides: &Overrides) -> Result<Config, Vec<Problem>> {
        Config::parse(&self.toml, path, overrides)
    }

    /// Changes the configuration so that one of these problems, which were found in it, is gone: what has it gets an error, as a
    /// line of the report states. `main` is the file that was converted. Returns `false` if none of them can be avoided.
    pub fn avoid(&mut self, problems: &[Problem], main: &Path) -> bool {
        if let Some(long) = self.long.take() {
            // The same problems are found again, in lines of their keys.
            self.toml = long;
            return true;
        }
        let changed = repair::changed(&self.toml, problems, main, &mut self.report);
        changed.map(|text| self.toml = text).is_some()
    }
}

/// Converts the nginx configuration in `file`. `prefix` is the directory to which relative paths are relative, as with `nginx -p`.
///
/// # Errors
/// A file cannot be read, or is not in the syntax of nginx.
pub fn nginx(file: &Path, prefix: Option<&Path>) -> Result<Conversion, SourceError> {
    nginx::convert(file, prefix)
}

/// Converts the Apache configuration in `file`: the main file, a file of virtual hosts, or a `.htaccess` file, whose document root is
/// `root`, or else its directory.
///
/// # Errors
/// A file cannot be read, or is not in the syntax of Apache.
pub fn apache(file: &Path, root: Option<&Path>) -> Result<Conversion, SourceError> {
    apache::convert(file, root)
}

/// Converts the Caddyfile `file`. `users` is the file that the configuration names for users of `basic_auth`; without it, what needs a
/// password is rejected.
///
/// # Errors
/// A file cannot be read, or is no Caddyfile.
pub fn caddy(file: &Path, users: Option<&Path>) -> Result<Conversion, SourceError> {
    caddy::convert(file, users)
}
