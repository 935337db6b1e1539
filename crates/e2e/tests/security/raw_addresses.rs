//! Connections to address literals, over IPv4 and IPv6, with and without HTTP, and sockets below TCP.

use crate::ground::{Ground, python};

#[test]
fn http_to_an_ipv4_address() {
    Ground::new().nothing_gets_out("curl -sS -m 10 -d {canary} http://203.0.113.10/");
}

#[test]
fn http_to_an_ipv6_address() {
    Ground::new().nothing_gets_out("curl -g -sS -m 10 -d {canary} 'http://[2001:db8::10]/'");
}

#[test]
fn bytes_to_an_ipv4_address() {
    Ground::new().nothing_gets_out(&bytes_to("203.0.113.10"));
}

#[test]
fn bytes_to_an_ipv6_address() {
    Ground::new().nothing_gets_out(&bytes_to("2001:db8::10"));
}

#[test]
fn bytes_to_an_ipv4_address_written_as_ipv6() {
    Ground::new().nothing_gets_out(&bytes_to("::ffff:203.0.113.10"));
}

#[test]
fn other_spellings_of_an_address() {
    // 203.0.113.10 in one number: the verdict is that of the canonical address.
    Ground::new().nothing_gets_out("curl -sS -m 10 -d {canary} http://3405803786/");
}

#[test]
fn a_server_on_the_hosts_own_loopback() {
    let ground = Ground::with(&["--tcp", "127.0.0.1:8123"]);
    ground.nothing_gets_out("curl -sS -m 10 -d {canary} http://127.0.0.1:8123/");
}

#[test]
fn sockets_below_tcp() {
    // The witness of these is the kernel's own answer: such a socket would see or forge what passes.
    let probe = python(
        "
import socket
for family, kind, protocol in [(socket.AF_INET, socket.SOCK_RAW, 1), (socket.AF_INET, socket.SOCK_RAW, 255),
                               (socket.AF_INET6, socket.SOCK_RAW, 58), (socket.AF_PACKET, socket.SOCK_RAW, 0),
                               (socket.AF_VSOCK, socket.SOCK_STREAM, 0)]:
    try:
        socket.socket(family, kind, protocol)
        print('made', family, kind, protocol)
    except OSError as error:
        print('refused', error)
",
    );
    let ground = Ground::new();
    let control = ground.outside(&probe);
    assert!(control.stdout.contains("made"), "{control:?}");
    let outcome = ground.inside(&probe);
    assert!(!outcome.stdout.contains("made"), "{outcome}");
    assert_eq!(outcome.stdout.matches("refused").count(), 5, "{outcome}");
}

fn bytes_to(address: &str) -> String {
    python(&format!(
        "
import socket
s = socket.create_connection(('{address}', 7777), timeout=10)
s.sendall(b'\\0\\1\\2 {{canary}}')
s.shutdown(socket.SHUT_WR)
print(s.recv(1000))
"
    ))
}
