//! `dunlin top`

mod figures;
mod layout;
mod lines;
mod screen;

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use clap::Args;
use dunlin_server::status::Report;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use self::figures::Figures;
use self::screen::{Screen, Scroll};
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
Keys: q or Esc ends, p pauses, s sorts routes and clients by requests, latency, bytes or errors, Tab selects a part, the arrow keys scroll it, Enter shows it alone, ? shows all keys.

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
    let mut screen = Screen::new(Figures::new(&first, &first), place);
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
                && press(&mut screen, key).is_break()
            {
                return Ok(());
            }
        }
    }
}

/// What a key does. Breaks if the command ends.
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
        KeyCode::PageDown => screen.scroll(Scroll::By(10)),
        KeyCode::PageUp => screen.scroll(Scroll::By(-10)),
        KeyCode::Home => screen.scroll(Scroll::Start),
        KeyCode::End => screen.scroll(Scroll::End),
        _ => {}
    }
    ControlFlow::Continue(())
}
