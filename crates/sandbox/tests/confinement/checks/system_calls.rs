//! System calls that reach round namespaces or deep into the kernel are refused.

use super::{Check, Outcome, prints, try_call};
use crate::runner::User;

pub(crate) const CHECKS: &[Check] = &[
    ("dangerous_calls_are_refused", refused),
    ("rings_and_unknown_calls_are_absent", absent),
    ("32_bit_calls_end_the_process", foreign_architecture),
    ("ordinary_calls_work", ordinary),
];

fn refused(user: &User) -> Outcome {
    let calls = [
        (libc::SYS_keyctl, ", 0, 0, 0, 0, 0"),
        (libc::SYS_add_key, ", 0, 0, 0, 0, 0"),
        (libc::SYS_request_key, ", 0, 0, 0, 0"),
        (libc::SYS_bpf, ", 0, 0, 0"),
        (libc::SYS_perf_event_open, ", 0, 0, 0, 0, 0"),
        (libc::SYS_userfaultfd, ", 1"),
        (libc::SYS_open_by_handle_at, ", 0, 0, 0"),
        (libc::SYS_kexec_load, ", 0, 0, 0, 0"),
        (libc::SYS_finit_module, ", 0, 0, 0"),
        (libc::SYS_swapoff, ", 0"),
        (libc::SYS_clock_settime, ", 0, 0"),
        (libc::SYS_acct, ", 0"),
        (libc::SYS_fanotify_init, ", 0, 0"),
        (libc::SYS_personality, ", 0x0400000"),
        (libc::SYS_ioctl, ", 0, 0x5412, 0"),
        // The kernel reads the request as 32 bits: the upper ones must not hide it.
        (libc::SYS_ioctl, ", 0, 0x100005412, 0"),
        (libc::SYS_ioctl, ", 0, 0x541c, 0"),
        (libc::SYS_ioctl, ", 0, 0x5423, 0"),
    ];
    let script: String = calls
        .iter()
        .map(|(number, arguments)| try_call(*number, arguments))
        .collect();
    prints(user, &script, &["EPERM"; 18])
}

fn absent(user: &User) -> Outcome {
    let calls = [
        (libc::SYS_io_uring_setup, ", 1, 0"),
        (libc::SYS_io_uring_enter, ", 0, 0, 0, 0, 0, 0"),
        (libc::SYS_fsopen, ", 0, 0"),
        (471, ""),
        (9999, ""),
        (0x4000_0027, ""), // getpid in the x32 form
    ];
    let script: String = calls
        .iter()
        .map(|(number, arguments)| try_call(*number, arguments))
        .collect();
    prints(user, &script, &["ENOSYS"; 6])
}

/// A program of a few bytes that asks for its pid the 32-bit way and exits with 0.
fn foreign_architecture(user: &User) -> Outcome {
    if cfg!(not(target_arch = "x86_64")) {
        return Ok(());
    }
    // ELF header and one loadable segment, then: mov eax,20; int 0x80; mov eax,60; xor edi,edi; syscall
    let code = "b814000000cd80b83c00000031ff0f05";
    let header = "7f454c4602010100000000000000000002003e0001000000780040000000000040000000000000\
                  00000000000000000000000000400038000100000000000000\
                  010000000500000000000000000000000000400000000000000040000000000088000000000000\
                  0088000000000000000010000000000000";
    prints(
        user,
        &format!(
            "perl -e 'print pack(\"H*\", \"{}{code}\")' > /tmp/p; chmod +x /tmp/p; /tmp/p; echo $?",
            header.replace(' ', "")
        ),
        &["159"],
    )
}

fn ordinary(user: &User) -> Outcome {
    let calls = [
        (libc::SYS_personality, ", 0xffffffff"),
        (libc::SYS_getpid, ""),
        (libc::SYS_pidfd_open, ", $$ + 0, 0"),
        (libc::SYS_eventfd2, ", 0, 0"),
        (libc::SYS_landlock_create_ruleset, ", 0, 0, 1"),
    ];
    let script: String = calls
        .iter()
        .map(|(number, arguments)| try_call(*number, arguments))
        .collect();
    prints(user, &script, &["ok"; 5])
}
