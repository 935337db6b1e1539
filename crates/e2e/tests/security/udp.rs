//! Datagrams.

use crate::ground::{Ground, python};

#[test]
fn to_an_ipv4_address() {
    Ground::new().nothing_gets_out(&datagram("AF_INET", "203.0.113.10", 7777));
}

#[test]
fn to_an_ipv6_address() {
    Ground::new().nothing_gets_out(&datagram("AF_INET6", "2001:db8::10", 7777));
}

#[test]
fn to_the_port_of_quic() {
    Ground::new().nothing_gets_out(&datagram("AF_INET", "203.0.113.10", 443));
}

fn datagram(family: &str, address: &str, port: u16) -> String {
    python(&format!(
        "
import socket
s = socket.socket(socket.{family}, socket.SOCK_DGRAM)
s.settimeout(2)
try:
    s.sendto(b'{{canary}}', ('{address}', {port}))
    print(s.recv(100))
except OSError as error:
    print(error)
"
    ))
}
