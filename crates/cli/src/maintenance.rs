//! `dunlin maintenance`: sites whose requests get 503.

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::admin;

/// The settings of the maintenance.
#[derive(Args)]
pub(crate) struct MaintenanceArguments {
    /// Begin or end the maintenance
    #[arg(value_name = "STATE")]
    state: State,
    /// Only the site with this name [default: all sites]
    #[arg(long, value_name = "NAME")]
    site: Option<String>,
    /// Seconds after which clients may try again, in `Retry-After`
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    retry_after: u64,
    #[command(flatten)]
    server: admin::AdminArguments,
}

#[derive(Clone, Copy, ValueEnum)]
enum State {
    /// Requests get 503 with `Retry-After`
    On,
    /// Requests are served again
    Off,
}

/// Begins or ends the maintenance of a site, on all servers that share their state with the server.
pub(crate) fn run(arguments: &MaintenanceArguments) -> ExitCode {
    let MaintenanceArguments { state, site, retry_after, server } = arguments;
    let state = match state {
        State::On => "on",
        State::Off => "off",
    };
    let site = site.as_ref().map(|site| format!("&site={}", admin::encoded(site)));
    let site = site.unwrap_or_default();
    admin::run(&format!("/maintenance?state={state}&retry_after={retry_after}{site}"), server)
}
