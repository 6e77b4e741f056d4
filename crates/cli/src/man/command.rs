//! The page of a command.

use std::io;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::text::inlines;
use super::{Page, SOURCE};

const EXIT_STATUS: &str = "Exit status: ";

/// Returns the page of a command that has been built.
pub(super) fn page(command: &Command) -> Page {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let command =
        command.clone().subcommand_help_heading("COMMANDS").subcommand_value_name("COMMAND");
    // An empty argument of the title has to be written as such: two quotation marks.
    let man = Man::new(command.clone()).date("\"\"").source(SOURCE).manual("Dunlin");
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    let _ = generated(&man, &command, &mut text);
    let mut rest = Roff::new();
    notes(&mut rest, &command.get_after_help().map(ToString::to_string).unwrap_or_default());
    see_also(&mut rest, &name);
    let _ = rest.to_writer(&mut text);
    // Each part defines the apostrophe again. Before a list of values, two breaks surround an empty line.
    let definition = Roff::new().render();
    let text = String::from_utf8_lossy(&text).replace(&definition, "");
    let text = text.replace("\n.br\n\n.br\n", "\n.sp\n");
    Page { name, section: '1', text: definition + &text }
}

fn generated(man: &Man, command: &Command, text: &mut Vec<u8>) -> io::Result<()> {
    man.render_title(text)?;
    man.render_name_section(text)?;
    man.render_synopsis_section(text)?;
    man.render_description_section(text)?;
    man.render_options_section(text)?;
    match command.has_subcommands() {
        true => man.render_subcommands_section(text),
        false => Ok(()),
    }
}

/// Writes what the help has after the options: examples as they are written, then notes, then the exit status.
fn notes(page: &mut Roff, help: &str) {
    let mut notes = Vec::new();
    let mut status = None;
    for block in help.split("\n\n") {
        if let Some(examples) = block.strip_prefix("Examples:\n") {
            page.control("SH", ["EXAMPLES"]).control("nf", []);
            for line in examples.lines() {
                page.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
            }
            page.control("fi", []);
            continue;
        }
        let (exit, lines): (Vec<_>, Vec<_>) =
            block.lines().partition(|line| line.starts_with(EXIT_STATUS));
        status = exit.first().copied().or(status);
        if !lines.is_empty() {
            notes.push(lines.join(" "));
        }
    }
    for (n, note) in notes.iter().enumerate() {
        if n == 0 {
            page.control("SH", ["NOTES"]);
        } else {
            page.control("PP", []);
        }
        page.text(inlines(note));
    }
    if let Some(status) = status {
        page.control("SH", ["EXIT STATUS"]);
        for (n, item) in status[EXIT_STATUS.len()..].trim_end_matches('.').split(", ").enumerate() {
            if n > 0 {
                page.control("br", []);
            }
            page.text(inlines(item));
        }
    }
}

fn see_also(page: &mut Roff, name: &str) {
    page.control("SH", ["SEE ALSO"]);
    let mut others = vec![bold("dunlin.toml"), roman("(5)")];
    if name != "dunlin" {
        others.splice(0..0, [bold("dunlin"), roman("(1), ")]);
    }
    page.text(others);
}
