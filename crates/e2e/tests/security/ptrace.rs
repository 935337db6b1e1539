//! Taking over a process of the host.

use std::process::Command;
use std::time::Duration;

use kairos_e2e::process::Process;
use kairos_e2e::run::outside;
use kairos_e2e::{Outcome, Run};

use crate::ground::{Ground, python, somebody};

#[test]
fn attaching_to_the_monitor_and_reading_its_memory() {
    let ground = Ground::new();
    let who = somebody();
    ground.workspace.give_to(who);
    // A process of the same user outside, which the control can take over and the probe must not find.
    let mut sleeper = Command::new("/bin/sh");
    sleeper.args(["-c", "sleep 60"]);
    let sleeper = Process::start(sleeper, &ground.workspace.logs(), "sleeper");
    let probe = |target: &str| {
        python(&format!(
            "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
targets = {target}
for pid in targets:
    if pid == os.getpid():
        continue
    if libc.ptrace(16, pid, 0, 0) == 0:                  # PTRACE_ATTACH
        print('attached to', pid)
        os.waitpid(pid, 0x40000000)
        libc.ptrace(17, pid, 0, 0)
    try:
        open('/proc/%d/mem' % pid, 'rb').close()
        print('memory of', pid)
    except OSError:
        pass
"
        ))
    };
    let control = outside(
        &ground.workspace,
        kairos_e2e::Who::Me,
        None,
        &probe(&format!("[{}]", sleeper.id())),
    );
    assert!(
        control
            .stdout
            .contains(&format!("attached to {}", sleeper.id())),
        "{control:?}"
    );
    ground.workspace.write("host-pids", "");
    let run = Run::shell(
        &ground.workspace,
        &format!(
            "sleep 2; {}\necho probe ran",
            probe("[*range(1, 40), *map(int, open('host-pids').read().split())]")
        ),
    )
    .who(who)
    .start();
    let monitor = run.id();
    std::fs::write(
        ground.workspace.path().join("host-pids"),
        monitor.to_string(),
    )
    .unwrap();
    let outcome = Outcome::of(run.finish(Duration::from_secs(60)));
    assert!(outcome.stdout.contains("probe ran"), "{outcome}");
    assert!(
        !outcome.stdout.contains(&format!("attached to {monitor}\n")),
        "{outcome}"
    );
    // Process 1 inside is ours: it must be out of the agent's reach as well.
    assert!(
        !outcome.stdout.contains("attached to 1\n") && !outcome.stdout.contains("memory of 1\n"),
        "{outcome}"
    );
}
