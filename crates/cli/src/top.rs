//! `dunlin top`

mod figures;
mod layout;
mod lines;
mod screen;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use clap::Args;
use dunlin_server::status::Report;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use self::figures::{Figures, History};
use self::screen::{Order, Screen};
use crate::remote::{Admin, Remote, expect_ok};

/// The arguments of `dunlin top`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    admin: Admin,
    /// Seconds between updates
    #[arg(long, short, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Print the figures of one interval as text and exit
    #[arg(long)]
    once: bool,
}

const EXAMPLES: &str = "\
Keys: q or Esc ends, p pauses, s orders routes and clients by requests, by latency or by bytes.

Examples:
  dunlin top                                          by the admin socket
  dunlin top --admin http://127.0.0.1:8080/status/    through a status route
  dunlin top --once                                   the figures of one second, as text";

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if !(0.1..=3600.0).contains(&seconds) {
        return Err("not between 0.1 and 3600".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Shows the figures until the command is stopped.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let (server, place) = match arguments.admin.server() {
        Ok(found) => found,
        Err(code) => return code,
    };
    let result = match (arguments.once, io::stdout().is_terminal()) {
        (true, _) => once(&server, arguments.interval),
        (false, true) => live(server, arguments.interval, &place),
        (false, false) => Err("standard output is no terminal; use --once".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dunlin: {error}");
            ExitCode::FAILURE
        }
    }
}

fn fetch(server: &Remote) -> Result<Report, String> {
    let text = expect_ok(server.get("/status.json"))?.text().map_err(|error| error.to_string())?;
    serde_json::from_str(&text)
        .map_err(|error| format!("the server's status is malformed: {error}"))
}

fn once(server: &Remote, interval: Duration) -> Result<(), String> {
    let first = fetch(server)?;
    std::thread::sleep(interval);
    print!("{}", Figures::new(&fetch(server)?, &first).text());
    Ok(())
}

/// Fetches reports on a thread of its own, so that a server that does not respond cannot block the keyboard.
fn fetch_periodically(
    server: &Remote,
    interval: Duration,
    reports: &Sender<Result<Report, String>>,
) {
    while reports.send(fetch(server)).is_ok() {
        std::thread::sleep(interval);
    }
}

fn live(server: Remote, interval: Duration, place: &str) -> Result<(), String> {
    // Report errors of the first request before the terminal changes to full screen.
    let first = fetch(&server)?;
    let (sender, reports) = channel();
    std::thread::spawn(move || fetch_periodically(&server, interval, &sender));
    let mut terminal = ratatui::init();
    let result = follow(&mut terminal, first, &reports, place);
    ratatui::restore();
    result.map_err(|error| error.to_string())
}

fn follow(
    terminal: &mut ratatui::DefaultTerminal,
    first: Report,
    reports: &Receiver<Result<Report, String>>,
    place: &str,
) -> io::Result<()> {
    let mut screen = Screen {
        figures: Figures::new(&first, &first),
        history: History::default(),
        order: Order::Requests,
        is_paused: false,
        trouble: None,
        place: place.to_owned(),
    };
    let mut before = first;
    loop {
        terminal.draw(|frame| screen.draw(frame))?;
        match reports.recv_timeout(Duration::from_millis(50)) {
            Ok(Ok(report)) => {
                screen.trouble = None;
                let figures = Figures::new(&report, &before);
                screen.history.add(&figures);
                before = report;
                if !screen.is_paused {
                    screen.figures = figures;
                }
            }
            Ok(Err(trouble)) => screen.trouble = Some(trouble),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        while event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
            {
                let control = key.modifiers.contains(KeyModifiers::CONTROL);
                match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                    KeyCode::Char('c') if control => return Ok(()),
                    KeyCode::Char('p') => screen.is_paused = !screen.is_paused,
                    KeyCode::Char('s') => screen.order = screen.order.next(),
                    _ => {}
                }
            }
        }
    }
}
