//! Interfaces of the kernel that would go past the channels: io_uring, bpf, keyrings, shared memory of the host, and others.

use std::process::Command;

use kairos_e2e::place::must;

use crate::ground::{Ground, python};

#[test]
fn system_calls_that_no_agent_needs() {
    let ground = Ground::new();
    let outcome = ground.inside(&python(
        "
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(512)
calls = {'io_uring_setup': (425, 4, buffer), 'bpf': (321, 0, buffer, 128), 'add_key': (248, b'user', b'x', b'y', 1, -3),
         'keyctl': (250, 0, -3, 1), 'request_key': (249, b'user', b'x', None, -3), 'perf_event_open': (298, buffer, 0, -1, -1, 0),
         'userfaultfd': (323, 1), 'kexec_load': (246, 0, 0, 0, 0), 'init_module': (175, buffer, 1, b''), 'swapon': (167, b'/x', 0),
         'open_by_handle_at': (304, -100, buffer, 0), 'pivot_root': (155, b'/', b'/'),
         'quotactl': (179, 0, None, 0, buffer), 'lookup_dcookie': (212, 0, buffer, 1)}
for name, arguments in calls.items():
    ctypes.set_errno(0)
    result = libc.syscall(*arguments)
    print('allowed' if result >= 0 else 'refused', name, errno.errorcode.get(ctypes.get_errno()))
",
    ));
    assert!(!outcome.stdout.contains("allowed"), "{outcome}");
    assert!(
        outcome.stdout.contains("refused io_uring_setup"),
        "{outcome}"
    );
}

#[test]
fn shared_memory_and_queues_of_the_host() {
    let ground = Ground::new();
    let told = String::from_utf8(must(
        Command::new("ipcmk").args(["-M", "4096", "-p", "0666"]),
    ))
    .unwrap();
    let id = told.split_whitespace().last().unwrap().to_owned();
    let control = ground.outside("ipcs -m");
    let outcome = ground.inside("ipcs -m; ls /dev/shm /dev/mqueue");
    must(Command::new("ipcrm").args(["-m", &id]));
    assert!(control.stdout.contains(&id), "{control:?}");
    assert!(
        !outcome
            .stdout
            .lines()
            .any(|line| line.split_whitespace().nth(1) == Some(&id)),
        "{outcome}"
    );
}

#[test]
fn socket_pairs_still_work() {
    let ground = Ground::new();
    let outcome = ground.inside(&python(
        "
import socket
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    a, b = socket.socketpair(socket.AF_UNIX, kind)
    a.send(b'x')
    assert b.recv(1) == b'x'
print('pairs work')
",
    ));
    assert!(outcome.stdout.contains("pairs work"), "{outcome}");
}
