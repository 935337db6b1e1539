//! System calls that the agent may not make. Everything else is allowed: the namespaces decide
//! what it can reach, this list decides how much of the kernel it can touch.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, sock_filter,
};

use crate::SandboxError;
use crate::error::During;

/// Installs the filters on this process. Several, because one filter has one answer.
pub(crate) fn restrict(nested_namespaces: bool) -> Result<(), SandboxError> {
    for program in programs(nested_namespaces)? {
        seccompiler::apply_filter(&program).during("install the system call filter")?;
    }
    Ok(())
}

fn programs(nested_namespaces: bool) -> Result<Vec<BpfProgram>, SandboxError> {
    let step = "build the system call filter";
    let mut refused = plain(REFUSED);
    refused.extend(conditional().during(step)?);
    let mut absent = plain(ABSENT);
    if !nested_namespaces {
        refused.extend(new_user_namespace().during(step)?);
        absent.insert(libc::SYS_clone3, Vec::new());
    }
    Ok(vec![
        filter(refused, libc::EPERM).during(step)?,
        filter(absent, libc::ENOSYS).during(step)?,
        filter(socket_families().during(step)?, libc::EAFNOSUPPORT).during(step)?,
        filter(socket_protocols().during(step)?, libc::EPROTONOSUPPORT).during(step)?,
        unknown_calls(),
    ])
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;
type Built<T> = Result<T, seccompiler::BackendError>;

/// Answered with "operation not permitted".
const REFUSED: &[i64] = &[
    // Kernel code, kernel memory, and kernel-wide state.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_nfsservctl,
    libc::SYS_vhangup,
    libc::SYS_clock_settime,
    libc::SYS_settimeofday,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    // Keyrings are not divided by namespaces as files are.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Files by handle go round every path that the view hides.
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    // Lets a program stop the kernel in the middle of a copy: a favourite of exploits.
    libc::SYS_userfaultfd,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ustat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_sysfs,
    #[cfg(target_arch = "x86_64")]
    libc::SYS__sysctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    libc::SYS_lookup_dcookie,
];

/// Answered as if the kernel did not have them, for which programs have another way ready.
const ABSENT: &[i64] = &[
    // Work in a ring crosses no filter and no trace.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Options of file systems; mount(2), which nested sandboxes use, stays.
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
];

/// The newest call that was looked at when this list was made (Linux 6.18). Later ones, and the
/// x32 form of all (numbers from 2^30), are answered as absent.
const NEWEST_KNOWN_CALL: u32 = 470;

fn plain(calls: &[i64]) -> Rules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

fn rule(conditions: &[(u8, Op, u64)]) -> Built<SeccompRule> {
    let conditions = conditions.iter().map(|(argument, operator, value)| {
        SeccompCondition::new(*argument, Len::Dword, operator.clone(), *value)
    });
    SeccompRule::new(conditions.collect::<Built<_>>()?)
}

/// Calls that are refused for some arguments only. The kernel reads these arguments as 32 bits,
/// so the filter does too.
fn conditional() -> Built<Rules> {
    let mut rules = Rules::new();
    // Typing into the terminal for the person in front of it; other line disciplines.
    let requests = [libc::TIOCSTI, TIOCLINUX, libc::TIOCSETD];
    let requests = requests
        .iter()
        .map(|request| rule(&[(1, Op::Eq, *request & 0xffff_ffff)]));
    rules.insert(libc::SYS_ioctl, requests.collect::<Built<_>>()?);
    // Old execution domains weaken memory protection. What is left: the default, 32 bit,
    // "no randomisation" for debuggers, and the question which one it is.
    let allowed = [0, 0x8, 0x2_0000, 0x2_0008, 0x4_0000, 0x4_0008, 0xffff_ffff];
    let none: Vec<_> = allowed
        .iter()
        .map(|persona| (0, Op::Ne, *persona))
        .collect();
    rules.insert(libc::SYS_personality, vec![rule(&none)?]);
    Ok(rules)
}

const TIOCLINUX: u64 = 0x541c;

/// Unix, IPv4 and IPv6 sockets, and netlink for routes only. Some other families (vsock) are not
/// divided by network namespaces; all of them are rarely tested kernel code.
fn socket_families() -> Built<Rules> {
    let (unix, v4, v6) = (
        libc::AF_UNIX as u64,
        libc::AF_INET as u64,
        libc::AF_INET6 as u64,
    );
    let netlink = libc::AF_NETLINK as u64;
    let other = rule(&[
        (0, Op::Ne, unix),
        (0, Op::Ne, v4),
        (0, Op::Ne, v6),
        (0, Op::Ne, netlink),
    ])?;
    let other_netlink = rule(&[
        (0, Op::Eq, netlink),
        (2, Op::Ne, libc::NETLINK_ROUTE as u64),
    ])?;
    let not_unix = rule(&[(0, Op::Ne, unix)])?;
    Ok([
        (libc::SYS_socket, vec![other, other_netlink]),
        (libc::SYS_socketpair, vec![not_unix]),
    ]
    .into())
}

/// TCP, UDP and echo requests. Raw sockets are left to the kernel, which refuses them for want
/// of a capability, as programs expect.
fn socket_protocols() -> Built<Rules> {
    let kind = |kind: i32| (1, Op::MaskedEq(0xf), kind as u64);
    let not = |protocol: i32| (2, Op::Ne, protocol as u64);
    let mut rules = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let family = (0, Op::Eq, family as u64);
        rules.push(rule(&[
            family.clone(),
            kind(libc::SOCK_STREAM),
            not(0),
            not(libc::IPPROTO_TCP),
        ])?);
        rules.push(rule(&[
            family.clone(),
            kind(libc::SOCK_DGRAM),
            not(0),
            not(libc::IPPROTO_UDP),
            not(libc::IPPROTO_ICMP),
            not(libc::IPPROTO_ICMPV6),
        ])?);
        rules.push(rule(&[family.clone(), kind(libc::SOCK_SEQPACKET)])?);
        rules.push(rule(&[family, kind(libc::SOCK_DCCP)])?);
    }
    Ok([(libc::SYS_socket, rules)].into())
}

fn new_user_namespace() -> Built<Rules> {
    let flag = libc::CLONE_NEWUSER as u64;
    let rule = || rule(&[(0, Op::MaskedEq(flag), flag)]);
    Ok([
        (libc::SYS_unshare, vec![rule()?]),
        (libc::SYS_clone, vec![rule()?]),
    ]
    .into())
}

/// Ends a process that uses another architecture's calls (32-bit programs), by what the library
/// puts in front of every filter.
fn filter(rules: Rules, errno: i32) -> Built<BpfProgram> {
    let answer = SeccompAction::Errno(errno.cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, answer, architecture()?)?.try_into()
}

fn architecture() -> Built<TargetArch> {
    std::env::consts::ARCH.try_into()
}

/// "Number above the newest known: absent", for which the library has no form.
fn unknown_calls() -> BpfProgram {
    let statement = |code: u32, k: u32| sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let absent = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    let number_offset = 0;
    vec![
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, number_offset),
        sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16,
            jt: 0,
            jf: 1,
            k: NEWEST_KNOWN_CALL,
        },
        statement(libc::BPF_RET, absent),
        statement(libc::BPF_RET, libc::SECCOMP_RET_ALLOW),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_compiles_and_fits_the_kernel() {
        for nested in [true, false] {
            let programs = programs(nested).expect("the filters compile");
            assert_eq!(programs.len(), 5);
            for program in programs {
                assert!(program.len() < 4096, "{} instructions", program.len());
            }
        }
    }
}
