//! What the standard library has no call for: how the scheduler treats a thread, and how often it
//! had to give way.
#![allow(
    unsafe_code,
    reason = "scheduling classes and usage exist only as C interfaces"
)]

use std::io;

/// Lets a thread (0: this one) run only when nobody else wants its processor, or ends that.
///
/// # Errors
/// Ending it takes `CAP_SYS_NICE` or an `RLIMIT_NICE` that allows the thread's nice value.
pub(crate) fn give_way(thread: i32, yes: bool) -> io::Result<()> {
    let class = if yes {
        libc::SCHED_IDLE
    } else {
        libc::SCHED_OTHER
    };
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: reads one structure that lives as long as the call.
    match unsafe { libc::sched_setscheduler(thread, class, &raw const none) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// How often this thread was taken off its processor while it wanted to go on.
pub(crate) fn given_way() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: fills one structure, which is valid if all of it is zero as well.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    u64::try_from(usage.ru_nivcsw).unwrap_or(0)
}
