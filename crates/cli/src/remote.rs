//! Where commands find a running server.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use dunlin_server::client::{Answer, Client};

use crate::configuration::admin_socket;

/// Which server a command speaks to.
#[derive(Args)]
pub(crate) struct Admin {
    /// The server's admin socket, or the URL of its status route, such as
    /// http://127.0.0.1:8080/status/; the socket that the configuration names when absent
    #[arg(long, value_name = "SOCKET|URL")]
    admin: Option<String>,
    /// Configuration that names the socket; ./dunlin.toml or /etc/dunlin/dunlin.toml when absent
    #[arg(long, short, value_name = "FILE", conflicts_with = "admin")]
    config: Option<PathBuf>,
}

impl Admin {
    /// A client of it, and where it is.
    pub(crate) fn client(&self) -> Result<(Client, String), ExitCode> {
        let refuse = |error: String| {
            eprintln!("dunlin: {error}");
            ExitCode::from(2)
        };
        let place = match &self.admin {
            Some(place) => place.clone(),
            None => {
                let found = admin_socket(self.config.as_deref());
                let found = found.map_err(|error| {
                    eprintln!("dunlin: {error}");
                    ExitCode::FAILURE
                });
                found?.display().to_string()
            }
        };
        let client = Client::new(&place).map_err(|error| refuse(format!("--admin {error}")))?;
        Ok((client, place))
    }
}

/// What went wrong between the command and the server, as a sentence.
pub(crate) fn expect_ok(answer: std::io::Result<Answer>) -> Result<Answer, String> {
    let answer = answer.map_err(|error| {
        format!("the server is not reached: {error}; is `admin` set in its configuration, or `status` on a route?")
    })?;
    match answer.status {
        200 => Ok(answer),
        status => {
            let text = answer.text().unwrap_or_default();
            let first =
                text.lines().next().filter(|line| !line.starts_with('<')).unwrap_or_default();
            Err(format!("the server answers {status}: {first}").trim_end_matches(": ").to_owned())
        }
    }
}
