//! Actions of an attacker who has taken over a handler, so that tests can verify the sandbox.
//!
//! Compiled only with debug assertions. It responds at the admin socket of a server that was started with
//! `DUNLIN_DEBUG_BREAK=1`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use dunlin_exchange::Response;
use nix::mount::{MsFlags, mount, umount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::{ptrace, wait};
use nix::unistd::Pid;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use serde_json::{Map, Value, json};

use crate::route::reply::Reply;

/// Returns `true` if this process was started for such a test.
pub(crate) fn is_enabled() -> bool {
    std::env::var_os("DUNLIN_DEBUG_BREAK").is_some_and(|value| value == "1")
}

/// Performs all actions on the worker's thread and on a blocking thread. Returns the error number of each; 0 is success.
pub(crate) fn respond(query: &[u8]) -> Reply {
    let Some(aims) = Aims::of(query) else {
        let what = "outside=DIRECTORY&root=DIRECTORY&victim=PROCESS\n";
        return Response::with_text(400, "text/plain", what).into();
    };
    Reply::later(async move {
        let in_loop = aims.try_all();
        let in_blocking = tokio::task::spawn_blocking(move || aims.try_all()).await;
        let text = json!({ "loop": in_loop, "blocking": in_blocking.unwrap_or_default() });
        Response::with_text(200, "application/json", format!("{text}\n"))
    })
}

/// The targets of the actions.
struct Aims {
    /// A directory that the configuration does not name.
    outside: PathBuf,
    /// A directory that is served.
    root: PathBuf,
    /// A process of the same user.
    victim: i32,
}

impl Aims {
    fn of(query: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(query).ok()?;
        let value = |key| {
            let mut pairs = text.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find_map(|(name, value)| (name == key).then_some(value))
        };
        Some(Self {
            outside: value("outside")?.into(),
            root: value("root")?.into(),
            victim: value("victim")?.parse().ok()?,
        })
    }

    fn try_all(&self) -> Map<String, Value> {
        let Self { outside, root, victim } = self;
        let tries = [
            ("shadow", File::open("/etc/shadow").map(drop)),
            ("read", File::open(outside.join("secret")).map(drop)),
            ("create", create_in(outside)),
            ("write", create_in(root)),
            ("overwrite", File::options().append(true).open(root.join("a")).map(drop)),
            ("execute", Command::new("/bin/true").status().map(drop)),
            ("ptrace", trace(*victim)),
            ("memory", File::open(format!("/proc/{victim}/mem")).map(drop)),
            ("mount", mount_on(outside)),
            ("unshare", unshare(CloneFlags::CLONE_FS).map_err(io::Error::from)),
            ("netlink", open_socket(AddressFamily::NETLINK, SocketType::RAW)),
            ("packet", open_socket(AddressFamily::PACKET, SocketType::RAW)),
            ("raw", open_socket(AddressFamily::INET, SocketType::RAW)),
        ];
        let number = |error: io::Error| error.raw_os_error().unwrap_or(-1);
        let results =
            tries.map(|(name, came)| (name.into(), came.map_or_else(number, |()| 0).into()));
        results.into_iter().collect()
    }
}

fn create_in(directory: &Path) -> io::Result<()> {
    let path = directory.join("made-by-break-out");
    File::create_new(&path)?;
    fs::remove_file(path)
}

fn trace(victim: i32) -> io::Result<()> {
    let victim = Pid::from_raw(victim);
    ptrace::attach(victim)?;
    wait::waitpid(victim, None)?;
    Ok(ptrace::detach(victim, None)?)
}

fn mount_on(directory: &Path) -> io::Result<()> {
    let nothing = None::<&Path>;
    mount(nothing, directory, Some("tmpfs"), MsFlags::empty(), nothing)?;
    Ok(umount(directory)?)
}

fn open_socket(family: AddressFamily, kind: SocketType) -> io::Result<()> {
    let protocol = (family == AddressFamily::INET).then_some(rustix::net::ipproto::ICMP);
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, protocol).map(drop)?)
}
