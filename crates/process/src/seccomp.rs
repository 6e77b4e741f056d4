//! System call filters (seccomp), and the one thread that may start programs.
//!
//! Child processes inherit a filter. A server that starts scripts can only deny what no script needs; one that starts no
//! scripts denies everything that it does not need itself, by three filters, of which the strictest applies: an allow
//! list; `clone3`, whose arguments a filter cannot inspect, fails with ENOSYS, so that libc uses `clone`;
//! and a filter that denies new processes to all threads but the one that starts the new process of an upgrade. Threads
//! share memory, so an attacker who executes code in this process could make that thread start a program; that program
//! would have the same filters.

use std::collections::BTreeMap;

use dunlin_config::Calls;
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{
    BackendError, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use crate::error::{StartError, fail};
use crate::start_program::Starter;

/// System calls with alternative conditions on their arguments; no conditions match any arguments.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Restricts the system calls of this thread and all that it starts. Returns the thread that may start programs after
/// that, if this one may not.
///
/// # Errors
/// When a filter cannot be installed.
pub(crate) fn install_filters(calls: Calls) -> Result<Option<Starter>, StartError> {
    match calls {
        Calls::Any => Ok(None),
        Calls::Harmless => {
            install(harmful().and_then(|calls| deny_filter(calls, libc::EPERM)))?;
            // A filter cannot inspect its arguments; libc falls back to `clone`.
            deny(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS).map(|()| None)
        }
        Calls::Needed => allow_needed().map(Some),
    }
}

/// Calls that no script of a web site needs. In its own user namespace a process is root, which exposes much of the
/// kernel.
fn harmful() -> Result<Rules, BackendError> {
    let mut calls: Rules = DENIED.iter().map(|&call| (call, Vec::new())).collect();
    let flag = libc::CLONE_NEWUSER as u64;
    for call in [libc::SYS_clone, libc::SYS_unshare] {
        calls.insert(call, vec![rule([(0, MaskedEq(flag), flag)])?]);
    }
    Ok(calls)
}

fn allow_needed() -> Result<Starter, StartError> {
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    install(needed().and_then(|calls| {
        SeccompFilter::new(calls, refused, SeccompAction::Allow, architecture()?)
    }))?;
    let unknown = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    deny(unknown, libc::ENOSYS)?;
    let starter = Starter::begin()
        .map_err(|error| fail(format!("starting the thread for upgrades: {error}")))?;
    install(programs().and_then(|calls| deny_filter(calls, libc::EPERM)))?;
    Ok(starter)
}

/// Returns the calls that the server needs, with conditions on their arguments.
fn needed() -> Result<Rules, BackendError> {
    let mut calls: Rules = NEEDED.iter().chain(OLDER).map(|&call| (call, Vec::new())).collect();
    let ioctl = IOCTLS.iter().map(|&request| rule([(1, Eq, u64::from(request))]));
    calls.insert(libc::SYS_ioctl, ioctl.collect::<Result<_, _>>()?);
    calls.insert(libc::SYS_clone, vec![rule([(0, MaskedEq(NAMESPACES), 0)])?]);
    // A thread may set its own priority (PRIO_PROCESS of 0).
    calls.insert(libc::SYS_setpriority, vec![rule([(0, Eq, 0), (1, Eq, 0)])?]);
    let mut sockets = vec![rule([(0, Eq, libc::AF_UNIX as u64)])?];
    for family in [libc::AF_INET, libc::AF_INET6] {
        for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM] {
            let kind = (1, MaskedEq(KIND_OF_SOCKET), kind as u64);
            sockets.push(rule([(0, Eq, family as u64), kind])?);
        }
    }
    // sock_diag: the state of a connection.
    let diagnosis = libc::NETLINK_SOCK_DIAG as u64;
    sockets.push(rule([(0, Eq, libc::AF_NETLINK as u64), (2, Eq, diagnosis)])?);
    calls.insert(libc::SYS_socket, sockets);
    Ok(calls)
}

/// Calls that start programs, but not those that start threads.
fn programs() -> Result<Rules, BackendError> {
    let process = rule([(0, MaskedEq(libc::CLONE_THREAD as u64), 0)])?;
    Ok(BTreeMap::from([
        (libc::SYS_clone, vec![process]),
        (libc::SYS_execve, Vec::new()),
        (libc::SYS_execveat, Vec::new()),
    ]))
}

/// Returns a rule that matches when all conditions on arguments (by index) hold.
fn rule<const N: usize>(
    arguments: [(u8, SeccompCmpOp, u64); N],
) -> Result<SeccompRule, BackendError> {
    let condition = |(number, operator, value)| {
        SeccompCondition::new(number, SeccompCmpArgLen::Dword, operator, value)
    };
    SeccompRule::new(arguments.into_iter().map(condition).collect::<Result<_, _>>()?)
}

/// Has these calls fail.
fn deny(calls: Rules, error: i32) -> Result<(), StartError> {
    install(deny_filter(calls, error))
}

fn deny_filter(calls: Rules, error: i32) -> Result<SeccompFilter, BackendError> {
    let error = SeccompAction::Errno(error as u32);
    SeccompFilter::new(calls, SeccompAction::Allow, error, architecture()?)
}

fn install(filter: Result<SeccompFilter, BackendError>) -> Result<(), StartError> {
    let program = filter.and_then(seccompiler::BpfProgram::try_from);
    let program = program.map_err(|error| fail(format!("seccomp: {error}")))?;
    seccompiler::apply_filter(&program).map_err(|error| fail(format!("seccomp: {error}")))
}

fn architecture() -> Result<TargetArch, BackendError> {
    TargetArch::try_from(std::env::consts::ARCH)
}

/// The `CLONE_NEW*` flags of `clone`.
const NAMESPACES: u64 = 0x7E02_0000;
/// The type bits of a socket type; the others are flags.
const KIND_OF_SOCKET: u64 = 0xF;
/// Terminal detection and size, non-blocking mode, close-on-exec, and the pages that an instance of a component has written.
const IOCTLS: [u32; 8] = [
    libc::TCGETS as u32,
    libc::TCGETS2 as u32,
    libc::TIOCGWINSZ as u32,
    libc::FIONBIO as u32,
    libc::FIONREAD as u32,
    libc::FIOCLEX as u32,
    libc::FIONCLEX as u32,
    PAGEMAP_SCAN,
];
/// `_IOWR('f', 16, struct pm_scan_arg)`, of linux/fs.h.
const PAGEMAP_SCAN: u32 = 0xC060_6610;

/// Calls that the server and its libraries need to serve and to start: the new process of an upgrade starts with the filter
/// of the old one.
const NEEDED: [i64; 164] = [
    // Memory
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mlock,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munlock,
    libc::SYS_munmap,
    // Threads, time and this process
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_getpgid,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_getsid,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sysinfo,
    libc::SYS_times,
    libc::SYS_umask,
    libc::SYS_uname,
    // Signals
    libc::SYS_kill,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    libc::SYS_tkill,
    // A new process of the program
    libc::SYS_clone3,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_wait4,
    libc::SYS_waitid,
    // Users and what is given up
    libc::SYS_capget,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getuid,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_seccomp,
    libc::SYS_setgid,
    libc::SYS_setgroups,
    libc::SYS_setregid,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_setreuid,
    libc::SYS_setuid,
    // Files
    libc::SYS_chdir,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fchdir,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_fgetxattr,
    libc::SYS_flock,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_memfd_create,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readahead,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat2,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_sync_file_range,
    libc::SYS_truncate,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_write,
    libc::SYS_writev,
    // Sockets and events
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_listen,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendfile,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
];

/// Those that not every architecture has: the newer calls do the same and are made by newer libraries.
#[cfg(target_arch = "x86_64")]
const OLDER: &[i64] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_getdents,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_lchown,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_setrlimit,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
    libc::SYS_utime,
    libc::SYS_utimes,
];
/// Those that not every architecture has.
#[cfg(target_arch = "aarch64")]
const OLDER: &[i64] = &[libc::SYS_getrlimit, libc::SYS_renameat, libc::SYS_setrlimit];
/// Those that not every architecture has.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OLDER: &[i64] = &[];

/// Calls that neither the server nor a script of a web site has a use for, and that attacks are made
/// of. A list of all that is needed would have to know every script: filters are inherited.
const DENIED: [i64; 37] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_move_mount,
    libc::SYS_move_pages,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_userfaultfd,
];
