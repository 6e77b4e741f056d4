//! Components in a build that has none.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dunlin_client::Client;
use dunlin_config::Config;
use dunlin_exchange::Incoming;
use dunlin_script::call::Call;
use dunlin_script::failure::Failure;
use dunlin_script::outcome::Outcome;

use super::ABSENT;
use dunlin_process::start_program::Starter;
use dunlin_status::Component;

/// No components.
pub(crate) struct Components;

/// No components of a worker.
pub(crate) struct WorkerComponents;

pub(crate) fn new(_: Option<PathBuf>, _: Option<Starter>) -> Arc<Components> {
    Arc::new(Components)
}

impl Components {
    pub(crate) fn prepare(&self, config: &Config) -> Result<(), String> {
        if config.has_components() { Err(ABSENT.into()) } else { Ok(()) }
    }

    pub(crate) fn retain(&self, _: &Config) {}
}

impl WorkerComponents {
    pub(crate) fn new(_: &Arc<Components>, _: &Client) -> Self {
        Self
    }
}

pub(crate) fn describe(_: &Components) -> Vec<Component> {
    Vec::new()
}

pub(crate) async fn respond(
    _: &WorkerComponents,
    _: &Call<'_>,
    _: Box<Incoming>,
    _: &mut Arc<str>,
) -> Result<Outcome, Failure> {
    Err(Failure::Broken(ABSENT.into()))
}

pub(crate) fn compile(_: &Path, _: &Path) -> Result<bool, String> {
    Err(ABSENT.into())
}

pub(crate) fn check(_: &[u8]) -> Result<(), String> {
    Err(ABSENT.into())
}

#[cfg(test)]
mod tests {
    use dunlin_config::Overrides;

    use super::*;

    fn config(script: &str) -> Config {
        let text = format!(
            "[[listen]]\naddress = \"127.0.0.1:8080\"\n[[site]]\nroot = \"/\"\n\
             [[site.route]]\npath = \"/app/*\"\nscript = {{ {script} }}\n"
        );
        let file = Path::new("/etc/dunlin.toml");
        Config::parse(&text, file, &Overrides::default()).expect("a valid configuration")
    }

    #[test]
    fn a_configuration_with_components_is_rejected() {
        let components = new(None, None);
        let rejected = components.prepare(&config("kind = \"component\", file = \"/a.wasm\""));
        assert_eq!(rejected, Err(ABSENT.to_owned()));
        assert_eq!(components.prepare(&config("kind = \"cgi\", directory = \"/bin\"")), Ok(()));
    }

    #[test]
    fn the_compiler_reports_that_there_is_none() {
        assert_eq!(compile(Path::new("/state"), Path::new("/a.wasm")), Err(ABSENT.to_owned()));
        assert_eq!(check(b"\0asm"), Err(ABSENT.to_owned()));
    }
}
