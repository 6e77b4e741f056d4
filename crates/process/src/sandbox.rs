//! The sandbox: privileges that the server drops before it serves, so that a vulnerability in it or in a script gains an
//! attacker less.
//!
//! Landlock, `no_new_privs` and seccomp apply to a thread and the threads that it starts, so they are applied while there
//! is only one thread. The server switches users after it has opened everything that requires root; libc does that for
//! all threads.

use std::fmt;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use dunlin_config::{AllowedPaths, Calls, Chroot, Config, ErrorLogTarget, ResourceLimits, Server};
use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus,
};
use nix::unistd::{
    Gid, Group, Uid, User, getegid, geteuid, getgrouplist, setgid, setgroups, setuid,
};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::thread::{CapabilitySet, capabilities};

use crate::error::{StartError, fail};
use crate::pid_file::PidFile;
use crate::socket_remover::SocketRemover;
use crate::start_program::Starter;

/// The state of a process after [`confine`], which a start needs.
pub struct Confined {
    /// The user to which the server switches.
    pub identity: Option<Identity>,
    /// Path of this program as seen from the sandbox; `None` when it is not reachable there.
    pub program: Option<PathBuf>,
    /// Removes the sockets that the user may not remove.
    pub remover: Option<SocketRemover>,
}

impl fmt::Debug for Confined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.program.fmt(f)
    }
}

/// Applies `limits` and `chroot`.
///
/// # Errors
/// The first setting that cannot be applied, and why.
pub fn confine(config: &Config) -> Result<Confined, StartError> {
    let Server { user, group, limits, .. } = &config.server;
    check_script_users(config)?;
    set_limits(limits)?;
    let called = || std::env::args_os().next().map(PathBuf::from).filter(|path| path.is_absolute());
    // In a chroot, `current_exe` works only where /proc is mounted.
    let program = std::env::current_exe().ok().or_else(called);
    if Chroot::entered().is_some() {
        // The old process of the upgrade has switched users already.
        return Ok(Confined { identity: None, program, remover: None });
    }
    let identity = identity(user.as_deref(), group.as_deref())?;
    let other = identity.as_ref().filter(|identity| identity.changes_from_root());
    let remover = other.zip(program.as_deref());
    let remover =
        remover.and_then(|(identity, program)| SocketRemover::start(config, identity, program));
    let Some(chroot) = config.chroot() else { return Ok(Confined { identity, program, remover }) };
    let program = program.and_then(|program| chroot.within(&program));
    let directory = chroot.directory().to_owned();
    let explain = |error: rustix::io::Errno| {
        let hint = if error == rustix::io::Errno::PERM { "; only root can do that" } else { "" };
        fail(format!("chroot {}: {error}{hint}", directory.display()))
    };
    rustix::process::chroot(&directory).map_err(explain)?;
    // Otherwise the working directory would be an escape.
    rustix::process::chdir("/").map_err(explain)?;
    chroot.enter();
    Ok(Confined { identity, program, remover })
}

/// Reasons why a start by the user of this process would fail, as far as they are known in advance.
pub fn hindrances(config: &Config) -> Vec<String> {
    let mut what = Vec::new();
    what.extend(check_script_users(config).err().map(|error| error.to_string()));
    match dunlin_net::temp_files::check() {
        Err(error) if config.needs_sockets() => {
            what.push(format!("{error}; the sockets of scripts need one"));
        }
        _ => {}
    }
    if geteuid().is_root() {
        return what;
    }
    let Server { user, group, .. } = &config.server;
    // A missing user is reported elsewhere.
    if let Ok(Some(identity)) = identity(user.as_deref(), group.as_deref())
        && !identity.is_present()
    {
        what.push(format!("it switches to {}", identity.name));
    }
    if let Some(chroot) = config.chroot() {
        what.push(format!("chroot {}", chroot.directory().display()));
    }
    what
}

/// Checks that this process can run scripts as the users and groups that `config` names.
///
/// # Errors
/// The first script for which it cannot, and why.
pub fn check_script_users(config: &Config) -> Result<(), StartError> {
    let Some(script) = config.script_of_another_user() else { return Ok(()) };
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    // In a container, root may lack them.
    let may = || capabilities(None).is_ok_and(|sets| sets.effective.contains(needed));
    let why = match geteuid().is_root() {
        true if may() => return Ok(()),
        true => "the process lacks CAP_SETUID and CAP_SETGID",
        false => "`user` and `group` of scripts need a server that root has started",
    };
    Err(fail(format!("scripts {script}: {why}")))
}

fn set_limits(limits: &ResourceLimits) -> Result<(), StartError> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let all = [
        ("open_files", Resource::Nofile, limits.open_files),
        ("core", Resource::Core, limits.core),
        ("processes", Resource::Nproc, limits.processes),
        ("memory", Resource::As, limits.memory),
    ];
    for (key, resource, limit) in all {
        let Some(limit) = limit else { continue };
        setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) }).map_err(
            |error| {
                let raised = error == rustix::io::Errno::PERM;
                let hint = if raised { "; only root can raise a limit" } else { "" };
                fail(format!("limits: {key} = {limit}: {error}{hint}"))
            },
        )?;
    }
    Ok(())
}

/// Applies `no_new_privs`, Landlock and seccomp. Returns what can start programs where seccomp forbids it to this
/// thread.
///
/// # Errors
/// The first setting that cannot be applied, and why.
pub fn restrict(config: &Config, confined: &Confined) -> Result<Option<Starter>, StartError> {
    let server = &config.server;
    // After that it could not be created, or not with this owner.
    for (name, path) in [
        ("state", config.state_directory()),
        ("cache: directory", config.cache_directory()),
        ("http3: qlog", config.qlog_directory()),
    ] {
        if let Some(path) = path.filter(|path| !path.exists()) {
            make_private(name, path, confined.identity.as_ref())?;
        }
    }
    if server.no_new_privs {
        rustix::thread::set_no_new_privs(true)
            .map_err(|error| fail(format!("no_new_privs: {error}")))?;
    }
    if let Some(mut places) = config.places() {
        // An upgrade executes the program again. In a chroot, the configuration lists it.
        if config.server.chroot.is_none() {
            places.execute.extend(std::env::current_exe());
        }
        restrict_files(&places, server.calls != Calls::Needed)
            .map_err(|what| fail(format!("landlock: {what}")))?;
    }
    super::seccomp::install_filters(server.calls)
}

/// Creates a directory that is accessible only to the user to which the server switches.
fn make_private(name: &str, path: &Path, identity: Option<&Identity>) -> Result<(), StartError> {
    let explain = |error: std::io::Error| fail(format!("{name} {}: {error}", path.display()));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(explain)?;
    if let Some(Identity { uid: Some(uid), gid, .. }) = identity {
        std::os::unix::fs::chown(path, Some(uid.as_raw()), Some(gid.as_raw())).map_err(explain)?;
    }
    Ok(())
}

/// Writes the PID file, and makes it writable for the user to which the server switches. In an upgrade, the file names the
/// old process until this one serves.
///
/// # Errors
/// When the file cannot be written now, or not by that user.
pub fn place_pid_file(
    file: &PidFile,
    confined: &Confined,
    is_first: bool,
) -> Result<(), StartError> {
    let explain = |error: std::io::Error| {
        let path = file.path().display();
        fail(format!("pid_file {path}: {error}; check that the directory is writable"))
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

/// Switches to the configured user, irrevocably.
///
/// # Errors
/// When the user does not exist, or this process lacks the permission.
pub fn switch_user(config: &Config, confined: Confined) -> Result<(), StartError> {
    // After an upgrade, the process has the user already.
    let identity = confined.identity.filter(|identity| !identity.is_present());
    let Some(Identity { name, uid, gid, groups }) = identity else { return Ok(()) };
    let explain = |error: nix::Error| {
        let hint = if error == nix::Error::EPERM { "; only root can switch users" } else { "" };
        fail(format!("switching to {name}: {error}{hint}"))
    };
    if let Some(uid) = uid {
        change_log_owner(config, uid, gid);
    }
    if uid.is_some() {
        setgroups(&groups).map_err(explain)?;
    }
    setgid(gid).map_err(explain)?;
    if let Some(uid) = uid {
        setuid(uid).map_err(explain)?;
        if !uid.is_root() && setuid(Uid::from_raw(0)).is_ok() {
            return Err(fail(format!("switching to {name}: the process can still return to root")));
        }
    }
    Ok(())
}

/// Gives the log files to the user to which the server switches, who reopens them after a rotation and in an upgrade.
fn change_log_owner(config: &Config, uid: Uid, gid: Gid) {
    let server = &config.server;
    let access = server.access_log.as_ref().map(|log| &*log.path);
    let error = match &server.error_log.target {
        ErrorLogTarget::File(path) => Some(&**path),
        _ => None,
    };
    for path in access.into_iter().chain(error).filter(|path| path.is_absolute()) {
        // The directory may belong to that user, who could have placed a link to any file there.
        let given = File::options()
            .append(true)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
            .open(path)
            .and_then(|file| {
                let metadata = file.metadata()?;
                match (metadata.is_file(), metadata.nlink()) {
                    (true, 1) => fchown(&file, Some(uid.as_raw()), Some(gid.as_raw())),
                    (true, _) => Err(std::io::Error::other("the file has several links")),
                    (false, _) => Ok(()),
                }
            });
        if let Err(error) = given {
            tracing::warn!("the owner of {} cannot be changed: {error}", path.display());
        }
    }
}

/// A user with groups.
pub struct Identity {
    /// The name of the user, or its number.
    pub name: String,
    /// The number of the user; `None` for that of the process.
    pub uid: Option<Uid>,
    /// The number of the group.
    pub gid: Gid,
    /// All groups of the user; empty when there is only a group.
    pub groups: Vec<Gid>,
}

impl Identity {
    /// Returns `true` if this process has the identity already.
    pub fn is_present(&self) -> bool {
        self.uid.is_none_or(|uid| uid == geteuid()) && self.gid == getegid()
    }

    /// Returns `true` if the process is root's and becomes that of another user.
    fn changes_from_root(&self) -> bool {
        geteuid().is_root() && self.uid.is_some_and(|uid| !uid.is_root())
    }

    /// Returns `true` if it may remove the file of root at `path`.
    pub fn may_remove(&self, path: &Path) -> bool {
        const STICKY: u32 = 0o1000;
        let Some(Ok(directory)) = path.parent().map(Path::metadata) else { return true };
        let (mode, owner) = (directory.mode(), Uid::from_raw(directory.uid()));
        if self.uid == Some(owner) {
            return mode & 0o300 == 0o300;
        }
        let group = Gid::from_raw(directory.gid());
        let bits = match group == self.gid || self.groups.contains(&group) {
            true => 0o030,
            false => 0o003,
        };
        mode & bits == bits && mode & STICKY == 0
    }
}

/// Looks up a user and a group.
///
/// # Errors
/// When one of them does not exist.
pub fn identity(user: Option<&str>, group: Option<&str>) -> Result<Option<Identity>, StartError> {
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
    // Looked up now, while /etc/group is available.
    let text = std::ffi::CString::new(name).map_err(|error| fail(error.to_string()))?;
    let groups = getgrouplist(&text, gid)
        .map_err(|error| fail(format!("user: the groups of {name:?}: {error}")))?;
    Ok(Some(Identity { name: format!("user {name}"), uid: Some(user.uid), gid, groups }))
}

/// Checks that a user and a group exist.
///
/// # Errors
/// The first that does not exist.
pub fn check_identity(user: Option<&str>, group: Option<&str>) -> Result<(), String> {
    identity(user, group).map(drop).map_err(|error| error.to_string())
}

/// Restricts this thread and all that it starts to `places` (Landlock).
fn restrict_files(places: &AllowedPaths, starts_programs: bool) -> Result<(), String> {
    // Older kernels ignore access rights that they do not know.
    let abi = ABI::V5;
    let read = AccessFs::from_read(abi) & !BitFlags::from(AccessFs::Execute);
    let execute = AccessFs::from_read(abi);
    // Without device files, which no script has to create.
    let write =
        AccessFs::from_all(abi) & !(AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock);
    let socket = AccessFs::MakeSock | AccessFs::RemoveFile;
    // The server's own temporary files have no names.
    let unnamed = AccessFs::ReadFile | AccessFs::WriteFile;
    let temporary = if starts_programs { write } else { unnamed };
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let explain = |error: RulesetError| error.to_string();
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
        rules = rules.add_rules(rules_beneath(paths, access)).map_err(explain)?;
    }
    let always: [(&[&str], BitFlags<AccessFs>); 4] =
        [(&PROGRAMS, execute), (&SETTINGS, read), (&DEVICES, device), (&TEMPORARY, temporary)];
    for (paths, access) in always {
        let there = paths.iter().filter(|path| Path::new(path).exists());
        rules = rules.add_rules(rules_beneath(there, access)).map_err(explain)?;
    }
    let status = rules.restrict_self().map_err(explain)?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err("the kernel does not support it".into()),
        RulesetStatus::PartiallyEnforced => {
            tracing::info!("landlock: the kernel supports only an older version, which is used");
            Ok(())
        }
        RulesetStatus::FullyEnforced => Ok(()),
    }
}

/// Rules for what exists of some paths.
///
/// The paths are opened without access to their content, which earlier restrictions may deny. The function of the crate does
/// so with glibc only: with musl, the standard library drops `O_PATH` from the flags of a file.
fn rules_beneath(
    paths: impl IntoIterator<Item = impl AsRef<Path>>,
    access: BitFlags<AccessFs>,
) -> impl Iterator<Item = Result<PathBeneath<OwnedFd>, RulesetError>> {
    paths.into_iter().filter_map(move |path| {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = rustix::fs::open(path.as_ref(), flags, Mode::empty()).ok()?;
        let metadata = rustix::fs::fstat(&file).ok()?;
        let access = match FileType::from_raw_mode(metadata.st_mode) {
            FileType::Directory => access,
            _ => access & AccessFs::from_file(ABI::V5),
        };
        Some(Ok(PathBeneath::new(file, access)))
    })
}

/// Directories of programs and libraries.
const PROGRAMS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt"];
/// Files that programs commonly read. None is secret.
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
/// Directories for cached copies, buffered request bodies and sockets of script workers.
const TEMPORARY: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
