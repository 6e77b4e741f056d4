//! The step between the server and a process with another user or with limits. They hold before the program's first
//! instruction.
//!
//! A process that is started by `posix_spawn` inherits the server's user and limits, and not all of them can be
//! changed from outside. So the server executes itself once more, as a program that drops these privileges and then
//! executes the script. This happens only where a setting needs it.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{
    Gid, Resource, Rlimit, Uid, geteuid, getpriority_process, setpriority_process, setrlimit,
};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::start_error;
use dunlin_config::Script;

/// The subcommand for this step.
pub const LAUNCH: &str = "launch-script";

/// Prefix of variables that are for the program alone: the dynamic loader would apply them to this step.
const FOR_PROGRAM: &str = "DUNLIN_LAUNCH_";

/// The restrictions that are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// All of them.
    All,
    /// Those that a fork server's processes inherit, if they run as another user: the server cannot set them from
    /// outside then.
    Inherited,
}

/// Wraps `command` in this step if `rules` need it. `name` is the program's `argv[0]`. To be called before the
/// streams and the directory of the command are set.
///
/// # Errors
/// When the server may not change the user of its processes.
pub(super) fn through(
    command: Command,
    name: &OsStr,
    rules: &Script,
    what: What,
) -> io::Result<Command> {
    let Some(words) = words(rules, what) else { return Ok(command) };
    if rules.owner.is_some() && !geteuid().is_root() {
        let what = "`user` and `group` need a server that root has started";
        return Err(io::Error::other(what));
    }
    let mut through = Command::new("/proc/self/exe");
    through.arg(LAUNCH).arg(words).arg(name).arg(command.get_program()).args(command.get_args());
    through.env_clear();
    for (name, value) in command.get_envs() {
        let Some(value) = value else { continue };
        if name.as_bytes().starts_with(b"LD_") {
            let name = [FOR_PROGRAM.as_bytes(), name.as_bytes()].concat();
            through.env(OsString::from_vec(name), value);
        } else {
            through.env(name, value);
        }
    }
    Ok(through)
}

/// Returns `true` if `rules` need this step.
pub(super) fn is_needed(rules: &Script) -> bool {
    words(rules, What::All).is_some()
}

fn words(rules: &Script, what: What) -> Option<String> {
    let mut words = String::new();
    let mut add = |key: &str, value: u64| {
        // Writing to a string does not fail.
        let _ = write!(words, "{key}={value},");
    };
    if what == What::All || rules.owner.is_some() {
        rules.memory.into_iter().for_each(|bytes| add("memory", bytes));
    }
    if what == What::All {
        rules.cpu.into_iter().for_each(|seconds| add("cpu", seconds));
    }
    if let Some(owner) = &rules.owner {
        owner.groups.iter().for_each(|&group| add("and", group.into()));
        add("group", owner.group.into());
        owner.user.into_iter().for_each(|user| add("user", user.into()));
    }
    if words.is_empty() {
        return None;
    }
    if rules.nice != 0 {
        let _ = write!(words, "nice={},", rules.nice);
    }
    Some(words)
}

/// Drops privileges and executes the program that the command line names. Returns only the error.
pub fn launch(mut words: impl Iterator<Item = OsString>) -> io::Error {
    let (Some(less), Some(name), Some(program)) = (words.next(), words.next(), words.next()) else {
        return io::Error::other("only the server starts it");
    };
    let mut command = Command::new(&program);
    command.arg0(name).args(words);
    for (name, value) in std::env::vars_os() {
        if let Some(own) = name.as_bytes().strip_prefix(FOR_PROGRAM.as_bytes()) {
            command.env(OsStr::from_bytes(own), value).env_remove(&name);
        }
    }
    if let Err(error) = less.to_str().ok_or(rustix::io::Errno::INVAL).and_then(drop_all) {
        return io::Error::other(format!(
            "the limits or the user of its route cannot be set: {error}"
        ));
    }
    let error = command.exec();
    let reason = start_error::not_started(Path::new(&program), &error);
    io::Error::new(error.kind(), format!("{}: {reason}", program.display()))
}

/// Applies restrictions in an order in which each is still allowed: those that need root before the user.
fn drop_all(words: &str) -> rustix::io::Result<()> {
    use rustix::io::Errno;
    let mut groups = Vec::new();
    let (mut group, mut user, mut limits) = (None, None, Vec::new());
    for word in words.split_terminator(',') {
        let (key, value) = word.split_once('=').ok_or(Errno::INVAL)?;
        let number = || value.parse::<u32>().map_err(|_| Errno::INVAL);
        let limit = || value.parse::<u64>().map_err(|_| Errno::INVAL);
        match key {
            "memory" => limits.push((Resource::As, limit()?)),
            "cpu" => limits.push((Resource::Cpu, limit()?)),
            "and" => groups.push(Gid::from_raw(number()?)),
            "group" => group = Some(Gid::from_raw(number()?)),
            "user" => user = Some(Uid::from_raw(number()?)),
            "nice" => {
                let own = getpriority_process(None)?;
                let more: i32 = value.parse().map_err(|_| Errno::INVAL)?;
                setpriority_process(None, own + more)?;
            }
            _ => return Err(Errno::INVAL),
        }
    }
    // This process has one thread: the thread's credentials are the process's.
    if let Some(group) = group {
        set_thread_groups(&groups)?;
        set_thread_res_gid(group, group, group)?;
    }
    if let Some(user) = user {
        set_thread_res_uid(user, user, user)?;
    }
    for (resource, value) in limits {
        setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })?;
    }
    Ok(())
}
