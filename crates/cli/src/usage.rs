//! Usage errors, with tips for options of other programs.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// Replaces the parser's tips on an unknown option by this program's equivalent. `words` is the command line without the
/// program.
pub(crate) fn improve(mut error: Error, words: &[OsString]) -> Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let command = words.iter().find(|word| !word.starts_with('-')).map_or("", |word| word);
    let value = value_of(option, &words);
    if let Some(tip) = tip(command, option, value.as_deref()) {
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    } else if let Some(ContextValue::StyledStrs(tips)) = error.get(ContextKind::Suggested) {
        // No option of this program has values that begin with a hyphen.
        let tips = tips.iter().filter(|tip| !tip.to_string().contains("as a value")).cloned();
        let tips: Vec<_> = tips.collect();
        error.remove(ContextKind::Suggested);
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    error
}

/// Returns the value of an option, after `=` or as the next word.
fn value_of(option: &str, words: &[impl AsRef<str>]) -> Option<String> {
    words.iter().enumerate().find_map(|(at, word)| {
        let rest = word.as_ref().strip_prefix(option)?;
        if let Some(value) = rest.strip_prefix('=') {
            return Some(value.to_owned());
        }
        let next = words.get(at + 1)?.as_ref();
        (rest.is_empty() && !next.starts_with('-')).then(|| next.to_owned())
    })
}

/// Returns the equivalent of an option of other programs.
fn tip(command: &str, option: &str, value: Option<&str>) -> Option<String> {
    if command == "serve" && matches!(option, "--port" | "-p" | "-P") {
        let port = value.filter(|value| value.bytes().all(|byte| byte.is_ascii_digit()));
        return Some(format!("write '--listen :{}'", port.unwrap_or("PORT")));
    }
    let (_, instead) = OPTIONS
        .iter()
        .filter(|(commands, ..)| commands.contains(&command))
        .find_map(|(_, options, instead)| options.contains(&option).then_some(((), instead)))?;
    let value = value.unwrap_or("VALUE");
    Some(instead.replace("VALUE", value))
}

/// Commands, options of other programs, and their equivalents. `VALUE` stands for the option's value.
const OPTIONS: [(&[&str], &[&str], &str); 22] = [
    (
        &["serve"],
        &["--host", "--bind", "-b", "--address", "--addr", "--interface", "-H"],
        "write '--listen ADDRESS:PORT', such as '--listen 127.0.0.1:8080' or '--listen :8080'",
    ),
    (
        &["serve"],
        &["--root", "--dir", "--directory", "--path", "--folder", "-d"],
        "write the directory without an option: 'dunlin serve VALUE'",
    ),
    (&["serve"], &["--workers", "-w", "-j", "--jobs"], "write '--threads VALUE'"),
    (
        &["serve"],
        &["--tls", "--ssl", "--https", "-S"],
        "write '--tls-self-signed' for development, or `tls` in a configuration",
    ),
    (
        &["serve"],
        &["--cert", "--certificate", "--key", "--tls-cert", "--tls-key", "--ssl-cert"],
        "write tls = { certificate = \"FILE\", key = \"FILE\" } into [[site]] of a configuration",
    ),
    (&["serve"], &["--log", "--log-file", "--logfile"], "write '--access-log VALUE'"),
    (&["serve"], &["--quiet", "-q", "--silent", "-s"], "write '--access-log off'"),
    (
        &["serve"],
        &["--daemon", "-D", "--background", "--foreground"],
        "the server stays in the foreground; let systemd or a container run it",
    ),
    (
        &["serve"],
        &["--user", "-u", "--group", "-g", "--chroot"],
        "write it into [server] of a configuration",
    ),
    (&["serve"], &["--test", "-T"], "write 'dunlin check'"),
    (&["serve"], &["--index", "--cors", "--spa", "--gzip"], "write it into a configuration"),
    (
        &["check", "reload", "upgrade", "top", "watch"],
        &["--file", "-f", "--conf", "--configuration"],
        "write '--config VALUE'",
    ),
    (&["serve"], &["--file", "-f", "--conf", "--configuration"], "write '--config VALUE'"),
    (&["load"], &["--concurrency", "--clients", "--conns"], "write '-c VALUE'"),
    (&["load"], &["--users", "--vus", "-u"], "write '-c VALUE'"),
    (&["load"], &["--num-requests", "--number", "--total"], "write '-n VALUE'"),
    (&["load"], &["--time", "--time-limit", "-z", "--runtime"], "write '-d VALUE'"),
    (&["load"], &["--qps", "-q", "--rps", "-R", "--throughput"], "write '--rate VALUE'"),
    (&["load"], &["-m"], "write '--method VALUE'"),
    (&["load"], &["-k", "--keepalive", "--keep-alive"], "connections are kept alive already"),
    (&["load"], &["-h2", "--h2"], "write '--http2'"),
    (&["load"], &["--body-file", "-T"], "write '--body VALUE'"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_other_programs_have_tips() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (line, option, expected) in [
            ("serve --port 80", "--port", "write '--listen :80'"),
            ("serve --port=8000", "--port", "write '--listen :8000'"),
            ("serve --port", "--port", "write '--listen :PORT'"),
            ("serve -d www", "-d", "write the directory without an option: 'dunlin serve www'"),
            ("load --concurrency 64 URL", "--concurrency", "write '-c 64'"),
        ] {
            let words = words(line);
            let value = value_of(option, &words);
            assert_eq!(tip(&words[0], option, value.as_deref()).as_deref(), Some(expected));
        }
        assert_eq!(tip("watch", "--port", None), None);
    }
}
