//! Processes that try to live on after the session.

use std::time::Duration;

use kairos_e2e::place::canary;
use kairos_e2e::process::{processes_with, until};

use crate::ground::{Ground, python};

#[test]
fn a_daemon_that_left_its_session_and_group() {
    let ground = Ground::new();
    let word = canary();
    let probe = python(&format!(
        "
import os, signal, sys, time
if os.fork():
    sys.exit()
os.setsid()
for n in range(1, 32):
    try:
        signal.signal(n, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
if os.fork():
    os._exit(0)
os.closerange(0, 64)
os.execv('/bin/sh', ['sh', '-c', ': {word}; while sleep 0.1; do echo x >> after.txt; done'])
"
    ));
    let control = ground.outside(&probe);
    assert!(
        until(Duration::from_secs(5), || !processes_with(&word).is_empty()),
        "{control:?}"
    );
    for id in processes_with(&word) {
        kairos_e2e::process::signal_process(&id.to_string(), "KILL");
    }
    assert!(until(Duration::from_secs(5), || processes_with(&word).is_empty()));
    std::fs::remove_file(ground.workspace.path().join("after.txt")).ok();
    let outcome = ground.inside(&format!("{probe}\nsleep 0.5"));
    assert!(
        until(Duration::from_secs(3), || processes_with(&word).is_empty()),
        "it outlives the session: {:?}\n{outcome}",
        processes_with(&word)
    );
    let committed = ground.workspace.read("after.txt");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(
        ground.workspace.read("after.txt"),
        committed,
        "it still writes\n{outcome}"
    );
}
