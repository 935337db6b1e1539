//! The agent sees its own processes only, and none of them outlives the session.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{Check, Outcome, expect, prints, try_call};
use crate::probe::{Deed, Order};
use crate::runner::User;

pub(crate) const CHECKS: &[Check] = &[
    ("only_the_agents_processes_are_seen", visible),
    ("init_cannot_be_looked_into_or_ended", init),
    ("no_descriptor_is_inherited", descriptors),
    ("nothing_outlives_the_agent", leftovers),
    ("a_killed_monitor_takes_everything_along", killed_monitor),
    (
        "the_end_of_any_of_our_processes_ends_everything",
        ended_from_outside,
    ),
    ("orphans_are_collected", orphans),
    ("limits_hold", limits),
    ("debugging_ones_own_children_works", debugging),
    ("the_pid_is_the_agents", pid),
];

fn visible(user: &User) -> Outcome {
    let mut plan = user.plan("");
    plan.command = vec!["/bin/ls".into(), "/proc".into()];
    let seen = user.confine(plan);
    let processes: Vec<_> = seen
        .stdout
        .lines()
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .collect();
    expect(processes == ["1", "2"], &seen)
}

fn init(user: &User) -> Outcome {
    let attach = try_call(libc::SYS_ptrace, ", 16, 1, 0, 0");
    let script = format!(
        "for f in environ maps mem root/etc fd/0 cwd/etc auxv io stack; do \
         cat /proc/1/$f > /tmp/out 2>/dev/null && test -s /tmp/out && echo read $f; done; \
         ls /proc/1/fd /proc/1/root/ 2>/dev/null; kill -9 1; kill -STOP 1; {attach} \
         ls -d /proc/1/task/1/root/usr 2>/dev/null; echo end"
    );
    prints(user, &script, &["EPERM", "end"])
}

fn descriptors(user: &User) -> Outcome {
    let mut plan = user.plan("");
    plan.command = vec!["/bin/ls".into(), "/proc/self/fd".into()];
    let seen = user.confine(plan);
    // The last one is the folder that ls reads.
    expect(seen.stdout == "0\n1\n2\n3\n", &seen)
}

fn leftovers(user: &User) -> Outcome {
    let mark = format!("30{}.5", std::process::id());
    let seen = user.run(&format!(
        "setsid sleep {mark} > /dev/null 2>&1 & (setsid sh -c 'sleep {mark} & sleep {mark}' \
         > /dev/null 2>&1 &); nohup sleep {mark} > /dev/null 2>&1 & \
         while [ $(pgrep -fc '^sleep {mark}') -lt 4 ]; do sleep 0.02; done; echo running"
    ));
    expect(seen.stdout == "running\n" && seen.code == 0, &seen)?;
    expect(!running(&mark), "a process outlived the agent")
}

fn killed_monitor(user: &User) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(
        folder.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    let go = folder.path().join("go");
    let mark = format!("31{}.5", std::process::id());
    let script = format!("setsid sleep {mark} & trap '' TERM HUP INT; sleep {mark}; sleep {mark}");
    let die_at = Some(go.to_str().unwrap().to_owned());
    let mut child = user.spawn(&Order {
        die_at,
        ..Order::new(user.plan(&script))
    });
    let started = within(Duration::from_secs(10), || running(&mark));
    std::fs::write(&go, "").unwrap();
    let status = child.wait().unwrap();
    expect(started && !status.success(), status)?;
    expect(
        within(Duration::from_secs(2), || !running(&mark)),
        "the agent outlived its monitor",
    )
}

fn ended_from_outside(user: &User) -> Outcome {
    for (index, deed) in [Deed::Kill, Deed::EndAncestor(1), Deed::EndAncestor(2)]
        .into_iter()
        .enumerate()
    {
        let mark = format!("32{}{index}.5", std::process::id());
        let plan = user.plan(&format!(
            "setsid sleep {mark} & trap '' TERM; echo go; sleep {mark}"
        ));
        let seen = user.order(Order {
            deed: Some(deed),
            ..Order::new(plan)
        });
        expect(seen.code == 137 && seen.stdout == "go\n", (deed, &seen))?;
        expect(within(Duration::from_secs(2), || !running(&mark)), deed)?;
    }
    Ok(())
}

fn within(limit: Duration, condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Whether any process of the host has this word in its command line.
fn running(mark: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        command
            .split(|byte| *byte == 0)
            .any(|word| word == mark.as_bytes())
    })
}

fn orphans(user: &User) -> Outcome {
    prints(
        user,
        "for i in 1 2 3 4 5; do (setsid true &); done; sleep 0.2; \
         grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l",
        &["0"],
    )
}

fn limits(user: &User) -> Outcome {
    prints(user, "ulimit -Hc; ulimit -c", &["0", "0"])?;
    let mut plan = user.plan("for i in $(seq 60); do sleep 1 & done 2>&1 | grep -c -m1 fork");
    plan.processes_max = Some(20);
    let seen = user.confine(plan);
    expect(
        seen.stdout.starts_with('1') || seen.stderr.contains("fork"),
        &seen,
    )?;
    let mut plan = user.plan("head -c 2000000 /dev/zero > /tmp/x; stat -c %s /tmp/x");
    plan.private_bytes_max = Some(1 << 20);
    let seen = user.confine(plan);
    expect(seen.stdout == "1048576\n", &seen)
}

fn debugging(user: &User) -> Outcome {
    let script = "sleep 5 & perl -e '$p = shift; print syscall(101, 16, $p + 0, 0, 0) == 0 ? \
        \"attached\\n\" : \"$!\\n\"' $!; head -c1 /proc/$!/maps | wc -c";
    let script = script.replace("101", &libc::SYS_ptrace.to_string());
    prints(user, &script, &["attached", "1"])
}

fn pid(user: &User) -> Outcome {
    let seen = user.run("sleep 0.5");
    expect(
        seen.pid
            .is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()),
        &seen,
    )
}
