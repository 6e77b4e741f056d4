//! Reading a configuration together with the verification of the files that it names.

use std::path::Path;

use dunlin_config::{Config, Overrides, Problem};

use super::verify::verify;

/// Reads and verifies the file at `path` for a server that reloads its configuration. Logs warnings.
///
/// # Errors
/// All problems that were found, each with its position.
pub fn reload(path: &Path, overrides: &Overrides) -> Result<Config, Vec<Problem>> {
    let config = Config::load(path, overrides)?;
    let findings = verify(&config, None);
    if !findings.errors.is_empty() {
        return Err(findings.errors);
    }
    for warning in findings.warnings {
        tracing::warn!("{warning}");
    }
    Ok(config)
}

/// Returns the configuration that serves `directory` without a file, and verifies the directory.
///
/// # Errors
/// The directory cannot be served, or an option of the command line is invalid.
pub fn load_directory(directory: &Path, overrides: &Overrides) -> Result<Config, Vec<Problem>> {
    let config = Config::for_directory(directory, overrides)?;
    let findings = verify(&config, None);
    if findings.errors.is_empty() { Ok(config) } else { Err(findings.errors) }
}
