//! The system calls that no safe wrapper covers.
#![allow(
    unsafe_code,
    reason = "fork, exec, unshare and mount_setattr have no safe form"
)]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::process::Pid;
use rustix::thread::UnshareFlags;

/// Which side of a fork this is.
pub(crate) enum Fork {
    Parent(Pid),
    Child,
}

/// Forks this process, which must have one thread only.
pub(crate) fn fork() -> io::Result<Fork> {
    if std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() > 1) {
        return Err(io::Error::other(
            "a process with several threads cannot be forked safely",
        ));
    }
    // SAFETY: fork needs, for anything but async-signal-safe calls in the child, that no other
    // thread holds a lock at that moment; this process has no other thread (checked above, and
    // the hidden entry point starts none).
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Pid::from_raw(pid)
            .map(Fork::Parent)
            .ok_or_else(|| io::Error::other("no pid")),
    }
}

/// Leaves namespaces of this single-threaded process.
pub(crate) fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    debug_assert!(!flags.contains(UnshareFlags::FILES));
    // SAFETY: only CLONE_FILES can invalidate descriptors that other code believes in, and it is
    // never among the flags.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// Enters a new user namespace whose id maps another process of the same user can write: gaining
/// capabilities there has made this process's files in `/proc` root's, which is taken back.
pub(crate) fn unshare_user() -> rustix::io::Result<()> {
    unshare(UnshareFlags::NEWUSER)?;
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)
}

/// Sets mount attributes on one mount, or on it and all below it.
pub(crate) fn mount_setattr(tree: impl AsFd, set: u64, recursive: bool) -> io::Result<()> {
    let depth = if recursive { libc::AT_RECURSIVE } else { 0 };
    let attributes = libc::mount_attr {
        attr_set: set,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the callee reads a NUL-terminated path and `size` bytes of a mount_attr, neither of
    // which it keeps; both live until it returns. The descriptor is borrowed for the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | depth,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    check(result)
}

/// Sets an integer socket option.
pub(crate) fn set_option(socket: impl AsFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the callee reads `length` bytes from the pointer, which points at a live i32 of
    // that size, and keeps nothing. The descriptor is borrowed for the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            length,
        )
    };
    check(result.into())
}

/// Closes every descriptor from `first` up. Only a process that holds no owned descriptor from
/// there on may call it: the hidden entry point at its start, and the agent just before exec.
pub(crate) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: closing descriptors touches no memory; the two callers hold no owned descriptor at
    // or above `first` that is used or dropped afterwards.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) })
}

/// Marks every descriptor from `first` up to be closed by exec.
pub(crate) fn close_from_on_exec(first: u32) -> io::Result<()> {
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: setting a descriptor flag touches no memory and closes nothing now.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, flags) })
}

/// Leaves the session keyring of the user who started the monitor.
pub(crate) fn new_session_keyring() -> io::Result<()> {
    let join = 1; // KEYCTL_JOIN_SESSION_KEYRING
    // SAFETY: with this operation the callee reads one pointer, a NULL name for an anonymous
    // keyring, and no memory of ours.
    check(unsafe { libc::syscall(libc::SYS_keyctl, join, std::ptr::null::<libc::c_char>()) })
}

/// Blocks SIGCHLD and returns a descriptor that becomes readable when a child changes state.
pub(crate) fn child_events() -> io::Result<OwnedFd> {
    let set = block_signal(libc::SIGCHLD)?;
    // SAFETY: signalfd reads the live set that it is given.
    let descriptor =
        unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: signalfd has just made this descriptor, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Holds a signal back from this thread; returns the set of it alone.
pub(crate) fn block_signal(signal: i32) -> io::Result<libc::sigset_t> {
    // SAFETY: sigset_t is a plain set of bits, for which all zeroes is a value; the calls write
    // only to it and it outlives them.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        match libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) {
            0 => Ok(set),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Gives the signals back their default action and unblocks them, as a new program expects.
pub(crate) fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: SIG_DFL installs no handler of ours; for SIGKILL, SIGSTOP and those that the C
        // library keeps for itself the call fails without effect.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: sigset_t is a plain set of bits, for which all zeroes is a value; the calls write
    // only to it and it outlives them.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// Sends a signal to a process group.
pub(crate) fn signal_group(leader: Pid, signal: i32) -> io::Result<()> {
    // SAFETY: kill touches no memory of ours, and the kernel refuses numbers that are no signals.
    check(unsafe { libc::kill(-leader.as_raw_nonzero().get(), signal) }.into())
}

/// Becomes another program; returns only if that fails.
pub(crate) fn exec(program: &CString, arguments: &[CString], environment: &[CString]) -> io::Error {
    let list = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings
            .iter()
            .map(|text| text.as_ptr())
            .chain([std::ptr::null()])
            .collect()
    };
    let (arguments, environment) = (list(arguments), list(environment));
    // SAFETY: execve needs a NUL-terminated path and two NULL-terminated arrays of NUL-terminated
    // strings; the CStrings that the pointers come from are borrowed until the call returns.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
