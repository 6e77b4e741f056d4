//! The step between the server and a process that is to have less than the server has: another user,
//! limits. All of it holds before the program's first instruction.
//!
//! A process that is started by `posix_spawn` has what the server has, and only what can be changed from
//! outside can be taken from it afterwards. So the server starts itself once more, as a program that
//! takes these things from itself and then becomes the script. It is used only where such a setting
//! asks for it.

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

use super::reason;
use crate::config::Script;

/// The subcommand by which the server's program is that step.
pub const LAUNCH: &str = "launch-script";

/// Before names of variables that are for the program alone: the loader would take them for this one's.
const FOR_PROGRAM: &str = "DUNLIN_LAUNCH_";

/// What is taken from the process, as the words of its command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Everything.
    All,
    /// What the processes of a host can have of it, where they are to belong to somebody else: the
    /// server may then no more change them from outside.
    Inherited,
}

/// Makes `command` go through that step where `rules` ask for it. `name` is the program's own name for
/// itself. To be called before the streams and the directory of the command are set.
///
/// # Errors
/// When the server may not give its processes to another user.
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

/// Whether processes of these rules have been given their limits when they begin.
pub(super) fn is_asked_for(rules: &Script) -> bool {
    words(rules, What::All).is_some()
}

fn words(rules: &Script, what: What) -> Option<String> {
    let mut words = String::new();
    let mut add = |key: &str, value: u64| {
        // Writing to a text does not fail.
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

/// Becomes the program that the command line names, with less than this process has. Returns only when
/// that fails, with why.
pub fn launch(mut words: impl Iterator<Item = OsString>) -> io::Error {
    let (Some(less), Some(name), Some(program)) = (words.next(), words.next(), words.next()) else {
        return io::Error::other("it is started by the server alone");
    };
    let mut command = Command::new(&program);
    command.arg0(name).args(words);
    for (name, value) in std::env::vars_os() {
        if let Some(own) = name.as_bytes().strip_prefix(FOR_PROGRAM.as_bytes()) {
            command.env(OsStr::from_bytes(own), value).env_remove(&name);
        }
    }
    if let Err(error) = less.to_str().ok_or(rustix::io::Errno::INVAL).and_then(drop_all) {
        return io::Error::other(format!("what its route asks for cannot be set: {error}"));
    }
    let error = command.exec();
    let reason = reason::not_started(Path::new(&program), &error);
    io::Error::new(error.kind(), format!("{}: {reason}", program.display()))
}

/// In an order in which each is still allowed: what needs root comes before the user.
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
    // This process has one thread, so that what is the thread's is the process's.
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
