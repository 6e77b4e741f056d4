//! `dunlin top`

mod figures;
mod layout;
mod lines;
mod screen;
mod source;

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use self::screen::{Screen, Scroll};
use self::source::{Reports, Source};
use crate::remote::Admin;

/// The arguments of `dunlin top`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopArguments {
    #[command(flatten)]
    admin: Admin,
    /// Add up the servers in the SRV records of this name, such as _http._tcp.web.example.com
    #[arg(long, value_name = "NAME", conflicts_with_all = ["admin", "config"])]
    fleet: Option<String>,
    /// Path of the status route of these servers
    #[arg(long, value_name = "PATH", requires = "fleet", default_value = "/status/")]
    status: String,
    /// Address and port of a name server [default: those of the system]
    #[arg(long, value_name = "ADDR:PORT", requires = "fleet")]
    resolver: Vec<SocketAddr>,
    /// Seconds between updates
    #[arg(long, short, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Print the figures of one interval as text and exit
    #[arg(long)]
    once: bool,
}

const EXAMPLES: &str = "\
Keys: q or Esc ends, p pauses, s sorts routes and clients by requests, latency, bytes or errors, Tab selects a part, the arrow keys scroll it, Enter shows it alone, ? shows all keys.

Examples:
  dunlin top                                          by the admin socket
  dunlin top --admin http://127.0.0.1:8080/status/    through a status route
  dunlin top --fleet _http._tcp.web.example.com       all replicas together
  dunlin top --once                                   the figures of one second, as text";

impl TopArguments {
    /// Returns where the reports come from, and its name.
    fn source(&self) -> Result<(Source, String), ExitCode> {
        let Some(name) = &self.fleet else {
            let (server, place) = self.admin.server()?;
            return Ok((Source::Server(server), place));
        };
        if !self.status.starts_with('/') {
            eprintln!("dunlin: --status {}: the path begins with a slash", self.status);
            return Err(ExitCode::from(2));
        }
        let source = Source::fleet(name, &self.resolver, &self.status).map_err(|error| {
            eprintln!("dunlin: {error}");
            ExitCode::FAILURE
        })?;
        Ok((source, name.clone()))
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if !(0.1..=3600.0).contains(&seconds) {
        return Err("not between 0.1 and 3600".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Shows the figures until the command is stopped.
pub(crate) fn run(arguments: &TopArguments) -> ExitCode {
    let (source, place) = match arguments.source() {
        Ok(found) => found,
        Err(code) => return code,
    };
    let result = match (arguments.once, io::stdout().is_terminal()) {
        (true, _) => once(&source, arguments.interval),
        (false, true) => live(source, arguments.interval, &place),
        (false, false) => Err("standard output is not a terminal; use --once".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dunlin: {error}");
            ExitCode::FAILURE
        }
    }
}

fn once(source: &Source, interval: Duration) -> Result<(), String> {
    let first = source.fetch()?;
    std::thread::sleep(interval);
    let reports = source.fetch()?;
    for failure in &reports.failures {
        eprintln!("dunlin: {failure}");
    }
    if let Source::Fleet(_) = source {
        println!("replicas     {}", reports.counted());
    }
    print!("{}", reports.since(&first).text());
    if reports.failures.is_empty() { Ok(()) } else { Err("not all replicas have responded".into()) }
}

/// Fetches reports on a thread of its own, so that a server that does not respond cannot block the keyboard.
fn fetch_periodically(
    source: &Source,
    interval: Duration,
    reports: &Sender<Result<Reports, String>>,
) {
    loop {
        // The first reports were fetched before: an interval without a length has no rates.
        std::thread::sleep(interval);
        if reports.send(source.fetch()).is_err() {
            return;
        }
    }
}

fn live(source: Source, interval: Duration, place: &str) -> Result<(), String> {
    // Report errors of the first request before the terminal changes to full screen.
    let first = source.fetch()?;
    let mut screen = Screen::new(first.since(&first), place);
    screen.history = source.history(interval.as_secs() as usize);
    let (sender, reports) = channel();
    std::thread::spawn(move || fetch_periodically(&source, interval, &sender));
    let mut terminal = ratatui::init();
    let result = follow(&mut terminal, screen, first, &reports);
    ratatui::restore();
    result.map_err(|error| error.to_string())
}

fn follow(
    terminal: &mut ratatui::DefaultTerminal,
    mut screen: Screen,
    first: Reports,
    reports: &Receiver<Result<Reports, String>>,
) -> io::Result<()> {
    let mut before = first;
    loop {
        terminal.draw(|frame| screen.draw(frame))?;
        match reports.recv_timeout(Duration::from_millis(50)) {
            Ok(Ok(report)) => {
                let failed = report.failures.join("; ");
                screen.trouble = (!failed.is_empty()).then_some(failed);
                let figures = report.since(&before);
                screen.history.add(&figures);
                if !screen.is_paused {
                    screen.figures = figures;
                }
                before = report;
            }
            Ok(Err(trouble)) => screen.trouble = Some(trouble),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        while event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
                && press(&mut screen, key).is_break()
            {
                return Ok(());
            }
        }
    }
}

/// Returns what a key does. Breaks if the command ends.
fn press(screen: &mut Screen, key: KeyEvent) -> ControlFlow<()> {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if is_control => return ControlFlow::Break(()),
        KeyCode::Esc if screen.shows_help => screen.shows_help = false,
        KeyCode::Esc if screen.is_enlarged => screen.is_enlarged = false,
        KeyCode::Char('q') | KeyCode::Esc => return ControlFlow::Break(()),
        KeyCode::Char('?' | 'h') => screen.shows_help = !screen.shows_help,
        KeyCode::Char('p') => screen.is_paused = !screen.is_paused,
        KeyCode::Char('s') => screen.order = screen.order.next(),
        KeyCode::Tab => screen.select(true),
        KeyCode::BackTab => screen.select(false),
        KeyCode::Enter => screen.is_enlarged = !screen.is_enlarged,
        KeyCode::Down | KeyCode::Char('j') => screen.scroll(Scroll::By(1)),
        KeyCode::Up | KeyCode::Char('k') => screen.scroll(Scroll::By(-1)),
        KeyCode::PageDown => screen.scroll(Scroll::Page(1)),
        KeyCode::PageUp => screen.scroll(Scroll::Page(-1)),
        KeyCode::Home => screen.scroll(Scroll::Start),
        KeyCode::End => screen.scroll(Scroll::End),
        _ => {}
    }
    ControlFlow::Continue(())
}
