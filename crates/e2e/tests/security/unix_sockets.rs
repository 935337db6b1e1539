//! Unix sockets of the host: abstract names, and sockets in the file system wherever the agent may see them.

use kairos_e2e::place::canary;

use crate::ground::{Cleared, Ground, python};

#[test]
fn an_abstract_one() {
    let name = canary();
    let ground = Ground::with(&["--abstract", &name]);
    ground.nothing_gets_out(&say_to(&format!("\\0{name}")));
}

#[test]
fn one_in_tmp() {
    at(&format!("/tmp/{}.socket", canary()));
}

#[test]
fn one_in_run() {
    if !kairos_e2e::place::is_root() {
        return; // Only root may make one there.
    }
    at(&format!("/run/{}.socket", canary()));
}

#[test]
fn one_in_the_workspace() {
    // The workspace is made first, so that the witness can listen inside it.
    let workspace = kairos_e2e::Workspace::plain();
    let path = workspace.path().join("service.socket");
    let world = kairos_e2e::World::with(&workspace.logs(), &["--unix", path.to_str().unwrap()]);
    Ground { world, workspace }.nothing_gets_out(&say_to(path.to_str().unwrap()));
}

fn at(path: &str) {
    let _cleared = Cleared(path.into());
    let ground = Ground::with(&["--unix", path]);
    ground.nothing_gets_out(&say_to(path));
}

fn say_to(address: &str) -> String {
    python(&format!(
        "
import socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
s.settimeout(3)
try:
    s.connect('{address}')
    s.sendall(b'\\1 {{canary}}')
    s.shutdown(socket.SHUT_WR)
    print(s.recv(100))
except OSError as error:
    print(error)
"
    ))
}
