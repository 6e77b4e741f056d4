//! Requests of commands to a running server.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use dunlin_client::{BlockingClient, BlockingResponse, Error, Origin, Timeouts, Url};

use crate::configuration::admin_socket;

/// The limit of each phase of a request, unless a command sets another.
const LIMIT: Duration = Duration::from_secs(10);

/// A running server.
#[derive(Debug)]
pub(crate) struct Remote {
    client: BlockingClient,
    /// The path that all others are beneath; without a slash at its end.
    prefix: String,
    /// It is reached by a status route.
    is_route: bool,
}

impl Remote {
    /// Returns the server at an admin socket, or with its status route at an `http://` URL.
    ///
    /// # Errors
    /// If `place` is a URL of another kind.
    pub(crate) fn new(place: &str) -> Result<Self, String> {
        if !place.contains("://") {
            return Self::at_socket(Path::new(place));
        }
        let url =
            Url::parse(place).ok().filter(|url| !url.is_secure() && !url.target().contains('?'));
        let url = url.ok_or_else(|| {
            format!("{place:?} is not an http URL such as \"http://127.0.0.1:8080/status/\"")
        })?;
        let prefix = url.target().trim_end_matches('/').to_owned();
        let server = Self::at(&Origin::tcp(url.host(), url.port()), prefix)?;
        Ok(Self { is_route: true, ..server })
    }

    /// Returns the server at an admin socket.
    ///
    /// # Errors
    /// If the system lacks a resource that the client needs.
    pub(crate) fn at_socket(path: &Path) -> Result<Self, String> {
        Self::at(&Origin::unix(path), String::new())
    }

    fn at(origin: &Origin, prefix: String) -> Result<Self, String> {
        let client = BlockingClient::new(origin).map_err(|error| error.to_string())?;
        Ok(Self { client, prefix, is_route: false }.with_limit(LIMIT))
    }

    /// Creates the same server, with another limit of each phase of a request.
    pub(crate) fn with_limit(self, limit: Duration) -> Self {
        Self { client: self.client.with_timeouts(Timeouts::each(limit)), ..self }
    }

    /// Requests `path`, which begins with a slash.
    pub(crate) fn get(&self, path: &str) -> Result<BlockingResponse, Error> {
        self.client.get(&format!("{}{path}", self.prefix))
    }

    /// Returns the response of a page of the server's status, such as `/status.json`, if its status is 200; else what went
    /// wrong.
    pub(crate) fn status(&self, path: &str) -> Result<BlockingResponse, String> {
        let response = self.get(path);
        match &response {
            Ok(response) if self.is_route && response.status() == 404 => Err(self.no_route()),
            // Another route, as of a single-page application, responds in its place.
            Ok(response) if self.is_route && has_page(response) => Err(self.no_route()),
            _ => expect_ok(response),
        }
    }

    fn no_route(&self) -> String {
        let prefix = &self.prefix;
        let pattern = if prefix.is_empty() { "/status" } else { prefix };
        format!(
            "the server has no status route at {prefix}/; add [[site.route]] path = \"{pattern}/*\", status = true, \
             allow = [\"127.0.0.1\", \"::1\"] to its configuration, or name its admin socket"
        )
    }

    /// Sends a command to `path`, which begins with a slash.
    pub(crate) fn post(&self, path: &str) -> Result<BlockingResponse, Error> {
        self.client.post(&format!("{}{path}", self.prefix), "text/plain", "")
    }

    /// Sends `body`, a JSON text, to `path`, which begins with a slash.
    pub(crate) fn post_json(&self, path: &str, body: String) -> Result<BlockingResponse, Error> {
        self.client.post(&format!("{}{path}", self.prefix), "application/json", body)
    }
}

/// The server that a command speaks to.
#[derive(Args)]
pub(crate) struct Admin {
    /// The server's admin socket, or the URL of its status route, such as
    /// http://127.0.0.1:8080/status/ [default: the socket that the configuration names]
    #[arg(long, value_name = "SOCKET|URL")]
    admin: Option<String>,
    /// Configuration that names the socket [default: ./dunlin.toml or /etc/dunlin/dunlin.toml]
    #[arg(long, short, value_name = "FILE", conflicts_with = "admin")]
    config: Option<PathBuf>,
}

impl Admin {
    /// Returns the server, and its address as text.
    pub(crate) fn server(&self) -> Result<(Remote, String), ExitCode> {
        let fail = |error: String| {
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
        let server = Remote::new(&place).map_err(|error| fail(format!("--admin {error}")))?;
        Ok((server, place))
    }
}

fn has_page(response: &BlockingResponse) -> bool {
    let media_type = response.field("Content-Type").unwrap_or_default();
    response.status() == 200 && media_type.starts_with(b"text/html")
}

/// Returns the response, if its status is 200; else what went wrong, as a sentence.
pub(crate) fn expect_ok(
    response: Result<BlockingResponse, Error>,
) -> Result<BlockingResponse, String> {
    let response = response.map_err(|error| {
        format!("the server is not reached: {error}; is `admin` set in its configuration, or `status` on a route?")
    })?;
    match response.status() {
        200 => Ok(response),
        status => {
            let text = response.text().unwrap_or_default();
            let first =
                text.lines().next().filter(|line| !line.starts_with('<')).unwrap_or_default();
            Err(format!("the server responds with {status}: {first}")
                .trim_end_matches(": ")
                .to_owned())
        }
    }
}
