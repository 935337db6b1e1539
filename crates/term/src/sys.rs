//! What needs raw system calls: putting the terminal back when this process dies, and stopping its
//! own process group.
#![allow(
    unsafe_code,
    reason = "signal handlers and exit hooks exist only as C interfaces"
)]

use rustix::termios::{OptionalActions, Termios, tcsetattr};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Signals that kill the process and that no ordinary handler may take over.
const FATAL: [libc::c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGABRT,
];

struct Saved {
    fd: RawFd,
    termios: Termios,
}

/// What to put back; null while the terminal is as it was. Never freed, so a handler may read it
/// at any time: there is one per session.
static SAVED: AtomicPtr<Saved> = AtomicPtr::new(ptr::null_mut());
static PREVIOUS: [AtomicPtr<libc::sigaction>; FATAL.len()] =
    [const { AtomicPtr::new(ptr::null_mut()) }; FATAL.len()];
static HOOKS: Once = Once::new();

/// A place for one terminal's settings, which outlives the process's end.
pub(crate) struct Rescue(*mut Saved);

// SAFETY: the pointee is leaked and never written after its creation, so any thread may read it.
unsafe impl Send for Rescue {}
// SAFETY: as above.
unsafe impl Sync for Rescue {}

impl Rescue {
    /// `fd` has to stay open as long as the rescue is armed; a closed one is a failed restore only.
    pub(crate) fn new(fd: RawFd, termios: Termios) -> Self {
        Self(Box::into_raw(Box::new(Saved { fd, termios })))
    }

    /// From now on every end of the process but SIGKILL restores the terminal.
    pub(crate) fn arm(&self) {
        HOOKS.call_once(install_hooks);
        SAVED.store(self.0, Ordering::Release);
    }

    pub(crate) fn disarm(&self) {
        let _ =
            SAVED.compare_exchange(self.0, ptr::null_mut(), Ordering::AcqRel, Ordering::Acquire);
    }
}

/// Restores the terminal if a rescue is armed. Async-signal-safe: one atomic load, one `ioctl`.
fn restore_now() {
    let saved = SAVED.load(Ordering::Acquire);
    // SAFETY: the pointer is null or comes from `Rescue::new`, whose allocation is never freed.
    if let Some(saved) = unsafe { saved.as_ref() } {
        // SAFETY: the descriptor is used for this call only; if it was closed meanwhile the call
        // fails with EBADF, which is ignored.
        let fd = unsafe { BorrowedFd::borrow_raw(saved.fd) };
        let _ = tcsetattr(fd, OptionalActions::Now, &saved.termios);
    }
}

fn install_hooks() {
    let earlier = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        restore_now();
        earlier(info);
    }));
    // SAFETY: `at_exit` is a plain function without captured state and does not unwind.
    unsafe { libc::atexit(at_exit) };
    for (&signal, previous) in FATAL.iter().zip(&PREVIOUS) {
        let mut old = MaybeUninit::<libc::sigaction>::uninit();
        let mut new = zeroed_action();
        new.sa_sigaction = on_fatal as *const () as usize;
        // The stack may have overflowed: run on the alternate stack that std has set up.
        new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: both pointers are to live actions; the handler calls async-signal-safe functions
        // only.
        if unsafe { libc::sigaction(signal, &new, old.as_mut_ptr()) } == 0 {
            // SAFETY: the call succeeded, so it has written the old action.
            let old = unsafe { old.assume_init() };
            previous.store(Box::into_raw(Box::new(old)), Ordering::Release);
        }
    }
}

extern "C" fn at_exit() {
    restore_now();
}

/// Restores the terminal and hands over to the action that was there before: returning re-executes
/// the faulting instruction, or lets `abort` go on.
extern "C" fn on_fatal(signal: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    restore_now();
    for (&candidate, previous) in FATAL.iter().zip(&PREVIOUS) {
        let previous = previous.load(Ordering::Acquire);
        if candidate == signal && !previous.is_null() {
            // SAFETY: `previous` is a leaked, initialised action for this very signal; `sigaction`
            // is async-signal-safe.
            unsafe { libc::sigaction(signal, previous, ptr::null_mut()) };
            if signal == libc::SIGABRT {
                // SAFETY: `raise` is async-signal-safe and has no preconditions. The signal is
                // pending until this handler returns, then has its earlier effect.
                unsafe { libc::raise(signal) };
            }
        }
    }
}

/// Whether this process was started with `signal` ignored (`nohup`, a background job of a script).
pub(crate) fn is_ignored(signal: libc::c_int) -> bool {
    let mut now = zeroed_action();
    // SAFETY: a null new action only asks; `now` is a live action to write to.
    let asked = unsafe { libc::sigaction(signal, ptr::null(), &mut now) };
    asked == 0 && now.sa_sigaction == libc::SIG_IGN
}

/// Stops this process's group the way Ctrl-Z does, and returns when it was continued. In an
/// orphaned group, which nobody could continue, the kernel ignores the signal and this returns soon;
/// so it does where the signal was ignored from the start.
pub(crate) fn stop_own_group() {
    if is_ignored(libc::SIGTSTP) {
        return;
    }
    let mut old = zeroed_action();
    let mut default = zeroed_action();
    default.sa_sigaction = libc::SIG_DFL;
    // SAFETY: both pointers are to live, initialised actions.
    if unsafe { libc::sigaction(libc::SIGTSTP, &default, &mut old) } != 0 {
        return;
    }
    // SAFETY: `kill` has no preconditions; 0 is the caller's own group.
    unsafe { libc::kill(0, libc::SIGTSTP) };
    // Another thread may be the one that takes the signal; the default action has to stay in place
    // until it has.
    std::thread::sleep(std::time::Duration::from_millis(30));
    // SAFETY: `old` was written by the successful call above.
    unsafe { libc::sigaction(libc::SIGTSTP, &old, ptr::null_mut()) };
}

fn zeroed_action() -> libc::sigaction {
    // SAFETY: `sigaction` is a C structure of integers, for which all zeroes is a valid value: an
    // empty mask, no flags, the default action.
    unsafe { MaybeUninit::zeroed().assume_init() }
}
