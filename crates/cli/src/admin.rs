//! Where commands find a running server.

use std::process::ExitCode;

use clap::Args;
use dunlin_server::client::{Answer, Client};

/// Which server a command speaks to.
#[derive(Args)]
pub(crate) struct Admin {
    /// The server's admin socket, or the URL of its status route, such as
    /// http://127.0.0.1:8080/status/
    #[arg(long, value_name = "SOCKET|URL", default_value = "/run/dunlin/admin.sock")]
    pub(crate) admin: String,
}

impl Admin {
    /// A client of it.
    pub(crate) fn client(&self) -> Result<Client, ExitCode> {
        Client::new(&self.admin).map_err(|error| {
            eprintln!("dunlin: --admin {error}");
            ExitCode::from(2)
        })
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
