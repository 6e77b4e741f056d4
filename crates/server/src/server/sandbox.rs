//! Confinement: what the server gives up before it serves, so that a fault in it, or in a script, is
//! worth less to an attacker.
//!
//! Landlock, `no_new_privs` and the filter of system calls hold for a thread and those that it starts,
//! so that they are applied while there is one thread only. Users are changed once everything that
//! takes root is open; the system's library does that for all threads.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
    path_beneath_rules,
};
use nix::unistd::{
    Gid, Group, Uid, User, getegid, geteuid, getgrouplist, setgid, setgroups, setuid,
};
use rustix::fs::OFlags;
use rustix::thread::{CapabilitySet, capabilities};

use super::pid_file::PidFile;
use super::seccomp::Starter;
use super::{StartError, fail};
use crate::config::{Calls, Config, ErrorLogPlace, Jail, Limits, Places, Server};

/// What a start needs of the world that the server has left.
pub struct Confined {
    /// The user that it becomes.
    pub(super) identity: Option<Identity>,
    /// This program as it was found when it was started: another may stand there by now. `None` when
    /// it cannot be found again.
    pub(super) program: Option<PathBuf>,
}

impl fmt::Debug for Confined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.program.fmt(f)
    }
}

/// Takes what `config` allows of resources, and goes into the directory that it names, if any: from then on
/// there are no other files.
///
/// # Errors
/// What was asked for and cannot be had.
pub fn confine(config: &Config) -> Result<Confined, StartError> {
    let Server { user, group, limits, .. } = &config.server;
    check_script_users(config)?;
    set_limits(limits)?;
    let called = || std::env::args_os().next().map(PathBuf::from).filter(|path| path.is_absolute());
    // Inside, the first is not to be had where `/proc` is not.
    let program = std::env::current_exe().ok().or_else(called);
    if Jail::entered().is_some() {
        // The process before has become whom it had to.
        return Ok(Confined { identity: None, program });
    }
    let identity = identity(user.as_deref(), group.as_deref())?;
    let Some(jail) = config.jail() else { return Ok(Confined { identity, program }) };
    let program = program.and_then(|program| jail.within(&program));
    let directory = jail.directory().to_owned();
    let explain = |error: rustix::io::Errno| {
        let hint = if error == rustix::io::Errno::PERM { "; only root can do that" } else { "" };
        fail(format!("chroot {}: {error}{hint}", directory.display()))
    };
    rustix::process::chroot(&directory).map_err(explain)?;
    // Else what is outside could be reached from here.
    rustix::process::chdir("/").map_err(explain)?;
    jail.entered_by_now();
    Ok(Confined { identity, program })
}

/// What a start by this process's user would fail for, as far as that is known beforehand.
pub fn hindrances(config: &Config) -> Vec<String> {
    let mut what = Vec::new();
    what.extend(check_script_users(config).err().map(|error| error.to_string()));
    match crate::temp_files::check() {
        Err(error) if config.needs_sockets() => {
            what.push(format!("{error}; the sockets of scripts need one"));
        }
        _ => {}
    }
    if geteuid().is_root() {
        return what;
    }
    let Server { user, group, .. } = &config.server;
    // That there is no such user is told elsewhere.
    if let Ok(Some(identity)) = identity(user.as_deref(), group.as_deref())
        && !identity.is_present()
    {
        what.push(format!("it becomes {}", identity.name));
    }
    if let Some(jail) = config.jail() {
        what.push(format!("chroot {}", jail.directory().display()));
    }
    what
}

/// Whether this process can give scripts the users and groups that `config` names for them.
///
/// # Errors
/// The first script for which it cannot, and why.
pub(crate) fn check_script_users(config: &Config) -> Result<(), StartError> {
    let Some(script) = config.script_of_another_user() else { return Ok(()) };
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    // A container's root may be without them.
    let may = || capabilities(None).is_ok_and(|sets| sets.effective.contains(needed));
    let why = match geteuid().is_root() {
        true if may() => return Ok(()),
        true => "it may not change users (CAP_SETUID, CAP_SETGID)",
        false => "`user` and `group` of scripts need a server that root has started",
    };
    Err(fail(format!("scripts {script}: {why}")))
}

fn set_limits(limits: &Limits) -> Result<(), StartError> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let all = [
        ("open_files", Resource::Nofile, limits.open_files),
        ("core", Resource::Core, limits.core),
        ("processes", Resource::Nproc, limits.processes),
        ("memory", Resource::As, limits.memory),
    ];
    for (key, resource, most) in all {
        let Some(most) = most else { continue };
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) }).map_err(
            |error| {
                let raised = error == rustix::io::Errno::PERM;
                let hint =
                    if raised { "; only root can raise what it was started with" } else { "" };
                fail(format!("limits: {key} = {most}: {error}{hint}"))
            },
        )?;
    }
    Ok(())
}

/// Gives up what can be given up before anything is opened. The answer is what can start programs from now on,
/// where this thread cannot.
///
/// # Errors
/// What was asked for and cannot be had.
pub(super) fn confine_files_and_calls(
    config: &Config,
    confined: &Confined,
) -> Result<Option<Starter>, StartError> {
    let server = &config.server;
    // Later it would be out of reach, or another user's.
    if let Some(state) = config.state_directory().filter(|state| !state.exists()) {
        make_private(state, confined.identity.as_ref())?;
    }
    if server.no_new_privs {
        rustix::thread::set_no_new_privs(true)
            .map_err(|error| fail(format!("no_new_privs: {error}")))?;
    }
    if let Some(mut places) = config.places() {
        // For a new process that takes over; inside of a directory of its own, its file is among others that
        // are named.
        if config.server.chroot.is_none() {
            places.execute.extend(std::env::current_exe());
        }
        confine_files(&places, server.calls != Calls::Needed)
            .map_err(|what| fail(format!("landlock: {what}")))?;
    }
    super::seccomp::allow(server.calls)
}

/// Makes a directory that only the server's user-to-be may look into.
fn make_private(path: &Path, identity: Option<&Identity>) -> Result<(), StartError> {
    let explain = |error: std::io::Error| fail(format!("{}: {error}", path.display()));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(explain)?;
    if let Some(Identity { uid: Some(uid), gid, .. }) = identity {
        std::os::unix::fs::chown(path, Some(uid.as_raw()), Some(gid.as_raw())).map_err(explain)?;
    }
    Ok(())
}

/// Writes the number of this process, and lets the user that it becomes write there again. The process before
/// this one is named until this one serves.
///
/// # Errors
/// When that user could not write it later, or it cannot be written now.
pub(super) fn place_pid_file(
    file: &PidFile,
    confined: &Confined,
    is_first: bool,
) -> Result<(), StartError> {
    let explain = |error: std::io::Error| {
        let path = file.path().display();
        fail(format!("pid_file {path}: {error}; check that the folder may be written"))
    };
    if is_first {
        file.write().map_err(explain)?;
    }
    match &confined.identity {
        Some(identity) if !identity.is_present() => {
            let Some(uid) = identity.uid else { return Ok(()) };
            file.give_to(uid, identity.gid).map_err(explain)
        }
        _ => Ok(()),
    }
}

/// Becomes the user that the configuration names. There is no way back.
///
/// # Errors
/// When there is no such user, or this process may not become it.
pub(super) fn become_user(config: &Config, confined: Confined) -> Result<(), StartError> {
    // It is present already after another process of the server has handed over.
    let identity = confined.identity.filter(|identity| !identity.is_present());
    let Some(Identity { name, uid, gid, groups }) = identity else { return Ok(()) };
    let explain = |error: nix::Error| {
        let hint =
            if error == nix::Error::EPERM { "; only root can become another user" } else { "" };
        fail(format!("becoming {name}: {error}{hint}"))
    };
    if let Some(uid) = uid {
        give_logs(config, uid, gid);
    }
    if uid.is_some() {
        setgroups(&groups).map_err(explain)?;
    }
    setgid(gid).map_err(explain)?;
    if let Some(uid) = uid {
        setuid(uid).map_err(explain)?;
        if !uid.is_root() && setuid(Uid::from_raw(0)).is_ok() {
            return Err(fail(format!("becoming {name}: the way back to root is open")));
        }
    }
    Ok(())
}

/// Lets the user that the server becomes open its logs anew: after a rotation, and in a process that
/// takes over.
fn give_logs(config: &Config, uid: Uid, gid: Gid) {
    let server = &config.server;
    let access = server.access_log.as_ref().map(|log| &*log.path);
    let error = match &server.error_log.place {
        ErrorLogPlace::File(path) => Some(&**path),
        _ => None,
    };
    for path in access.into_iter().chain(error).filter(|path| path.is_absolute()) {
        // The folder may be that user's already: what stands there may be a link to anything.
        let given = File::options()
            .append(true)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
            .open(path)
            .and_then(|file| {
                let facts = file.metadata()?;
                match (facts.is_file(), facts.nlink()) {
                    (true, 1) => fchown(&file, Some(uid.as_raw()), Some(gid.as_raw())),
                    (true, _) => Err(std::io::Error::other("it has other names, too")),
                    (false, _) => Ok(()),
                }
            });
        if let Err(error) = given {
            tracing::warn!("{} stays another user's: {error}", path.display());
        }
    }
}

pub(super) struct Identity {
    pub(super) name: String,
    pub(super) uid: Option<Uid>,
    pub(super) gid: Gid,
    /// All of its groups; those of the process stay when there is no user.
    pub(super) groups: Vec<Gid>,
}

impl Identity {
    /// Whether this process has it.
    pub(super) fn is_present(&self) -> bool {
        self.uid.is_none_or(|uid| uid == geteuid()) && self.gid == getegid()
    }
}

pub(super) fn identity(
    user: Option<&str>,
    group: Option<&str>,
) -> Result<Option<Identity>, StartError> {
    let group = match group {
        None => None,
        Some(name) => {
            let found = Group::from_name(name).ok().flatten();
            Some(found.ok_or_else(|| fail(format!("group: there is no group {name:?}")))?.gid)
        }
    };
    let Some(name) = user else {
        let named = |gid: Gid| Identity {
            name: format!("of group {gid}"),
            uid: None,
            gid,
            groups: Vec::new(),
        };
        return Ok(group.map(named));
    };
    let user = User::from_name(name).ok().flatten();
    let user = user.ok_or_else(|| fail(format!("user: there is no user {name:?}")))?;
    let gid = group.unwrap_or(user.gid);
    // Looked up while the system's files are there.
    let text = std::ffi::CString::new(name).map_err(|error| fail(error.to_string()))?;
    let groups = getgrouplist(&text, gid)
        .map_err(|error| fail(format!("user: the groups of {name:?}: {error}")))?;
    Ok(Some(Identity { name: format!("user {name}"), uid: Some(user.uid), gid, groups }))
}

/// Whether there are such users and groups.
///
/// # Errors
/// The first that there is not.
pub(crate) fn check_identity(user: Option<&str>, group: Option<&str>) -> Result<(), String> {
    identity(user, group).map(drop).map_err(|error| error.to_string())
}

/// Lets this thread, and all that it starts, use no other files than those.
fn confine_files(places: &Places, starts_programs: bool) -> Result<(), String> {
    // What later versions add is only of use where the kernel knows it.
    let abi = ABI::V5;
    let read = AccessFs::from_read(abi) & !BitFlags::from(AccessFs::Execute);
    let execute = AccessFs::from_read(abi);
    // Without devices: those need not be made.
    let write =
        AccessFs::from_all(abi) & !(AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock);
    let socket = AccessFs::MakeSock | AccessFs::RemoveFile;
    // The server's own scratch files have no names.
    let unnamed = AccessFs::ReadFile | AccessFs::WriteFile;
    let scratch = if starts_programs { write } else { unnamed };
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let explain = |error: landlock::RulesetError| error.to_string();
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))
        .map_err(explain)?
        .create()
        .map_err(explain)?;
    let named = [
        (&places.read, read),
        (&places.execute, execute),
        (&places.write, write),
        (&places.sockets, socket),
    ];
    for (paths, access) in named {
        rules = rules.add_rules(path_beneath_rules(paths, access)).map_err(explain)?;
    }
    let always: [(&[&str], BitFlags<AccessFs>); 4] =
        [(&PROGRAMS, execute), (&SETTINGS, read), (&DEVICES, device), (&SCRATCH, scratch)];
    for (paths, access) in always {
        let there = paths.iter().filter(|path| Path::new(path).exists());
        rules = rules.add_rules(path_beneath_rules(there, access)).map_err(explain)?;
    }
    let status = rules.restrict_self().map_err(explain)?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err("the kernel does not have it".into()),
        RulesetStatus::PartiallyEnforced => {
            tracing::info!("landlock: the kernel knows an older form of it, which is in force");
            Ok(())
        }
        RulesetStatus::FullyEnforced => Ok(()),
    }
}

/// Where programs and their libraries are.
const PROGRAMS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt"];
/// What programs commonly read: none of it is secret.
const SETTINGS: [&str; 24] = [
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/perl",
    "/etc/php",
    "/etc/protocols",
    "/etc/python3",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/run/systemd/resolve",
    "/proc",
];
const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
/// Where the cache's copies, spooled bodies and workers' sockets are.
const SCRATCH: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
