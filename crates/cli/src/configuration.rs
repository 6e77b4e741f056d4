//! The search for the configuration, and with it the server.

use std::path::{Path, PathBuf};

use dunlin_config::{Config, Overrides};

/// Returns the configuration of a command that names none: the first of the default files that exists.
pub(crate) fn default_file() -> Option<PathBuf> {
    ["dunlin.toml", "/etc/dunlin/dunlin.toml"]
        .iter()
        .map(Path::new)
        .find(|file| file.exists())
        .map(Path::to_owned)
}

/// Returns the admin socket in the configuration `file`, or in the default file.
///
/// # Errors
/// There is no configuration, it is invalid, or it names no admin socket.
pub(crate) fn admin_socket(file: Option<&Path>) -> Result<PathBuf, String> {
    let missing = || {
        let what = "there is no ./dunlin.toml and no /etc/dunlin/dunlin.toml; name a configuration with --config, \
                    or the server's socket with --admin";
        what.to_owned()
    };
    let file = file.map(Path::to_owned).or_else(default_file).ok_or_else(missing)?;
    let text =
        std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let config = Config::parse(&text, &file, &Overrides::default()).map_err(|problems| {
        let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
        lines.join("\n")
    })?;
    config.server.admin.ok_or_else(|| {
        let what =
            "has no admin socket; write admin = \"PATH\" into [server], or name one with --admin";
        format!("{} {what}", file.display())
    })
}
