//! The command runs, and what it says and how it ends comes back.

use super::{Check, Outcome, expect, prints};
use crate::probe::{Deed, Order};
use crate::runner::User;

pub(crate) const CHECKS: &[Check] = &[
    ("the_command_runs_and_its_status_comes_back", status),
    ("a_command_that_cannot_run_is_told_apart", not_runnable),
    ("death_by_signal_is_reported", signal_death),
    ("signals_reach_the_agent", forwarded_signal),
    ("the_environment_is_an_allow_list", environment),
    ("a_terminal_is_the_agents_own", terminal),
    ("streams_can_be_opened_again", reopened_streams),
    ("an_agent_starts_quickly", quick),
    ("doctor_finds_this_host_able", doctor),
    ("doctor_names_the_remedy_for_a_closed_fuse", closed_fuse),
    (
        "doctor_names_the_remedy_for_forbidden_namespaces",
        no_namespaces,
    ),
    ("everyday_programs_run_as_outside", everyday),
];

fn status(user: &User) -> Outcome {
    let seen = user.run("id -u; id -g; pwd; hostname; echo problem >&2; exit 7");
    let id = user.uid();
    let said = format!("{id}\n{id}\n{}\nkairos\n", user.home().display());
    expect(
        seen.code == 7 && seen.stdout == said && seen.stderr == "problem\n",
        &seen,
    )
}

fn not_runnable(user: &User) -> Outcome {
    for (command, code, words) in [
        ("/no/such/program", 127, "not found"),
        ("no-such-program", 127, "not found"),
        ("/etc/passwd", 126, "Permission denied"),
        ("/usr", 126, "Permission denied"),
    ] {
        let mut plan = user.plan("");
        plan.command = vec![command.into()];
        let seen = user.confine(plan);
        let error = seen.error.clone().unwrap_or_default();
        expect(
            seen.code == code && error.contains(words) && error.contains(command),
            &seen,
        )?;
    }
    let mut plan = user.plan("true");
    plan.cwd = "relative".into();
    let seen = user.confine(plan);
    expect(seen.code == 125 && seen.error.is_some(), &seen)
}

fn signal_death(user: &User) -> Outcome {
    let seen = user.run("kill -SEGV $$");
    expect(seen.signal == Some(11) && seen.code == 139, &seen)
}

fn forwarded_signal(user: &User) -> Outcome {
    let plan =
        user.plan("trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.05; done");
    let seen = user.order(Order {
        deed: Some(Deed::Signal(15)),
        ..Order::new(plan)
    });
    expect(seen.code == 3 && seen.stdout == "ready\ncaught\n", &seen)
}

fn environment(user: &User) -> Outcome {
    let seen = user.run("env | cut -d= -f1 | sort | tr '\\n' ' '");
    expect(seen.stdout == "HOME PATH PWD SHLVL TMPDIR _ ", &seen)
}

fn terminal(user: &User) -> Outcome {
    // Job control works only in a session whose terminal this is.
    let script = "set -m; tty; test -t 0 && echo terminal; \
        (sleep 0.05; exit 4) & fg > /dev/null; echo status $?; \
        read line < /dev/tty; echo got $line; stty size; \
        perl -MErrno -e '$c = \"x\"; print ioctl(STDIN, 0x5412, $c) ? \"ok\" : \
        $!{EPERM} ? \"EPERM\" : $!, \"\\n\"'";
    let terminal = Some("hello\n".to_owned());
    let seen = user.order(Order {
        terminal,
        ..Order::new(user.plan(script))
    });
    let lines: Vec<_> = seen.stdout.lines().map(str::trim_end).collect();
    for line in ["/dev/console", "terminal", "status 4", "got hello", "EPERM"] {
        expect(lines.contains(&line), (line, &seen))?;
    }
    expect(seen.code == 0, &seen)
}

fn reopened_streams(user: &User) -> Outcome {
    let script = "echo one > /dev/stdout; echo two > /dev/stderr; echo three > /proc/self/fd/1";
    let seen = user.run(script);
    expect(
        seen.stdout == "one\nthree\n" && seen.stderr == "two\n",
        &seen,
    )
}

/// Measured, not promised, on a busy machine: the limit here is ten times the goal.
fn quick(user: &User) -> Outcome {
    let mut times: Vec<_> = (0..5).map(|_| user.run("true").start_us).collect();
    times.sort_unstable();
    eprintln!(
        "{}: an agent starts in {} us (best), {} us (median)",
        user.name(),
        times[0],
        times[2]
    );
    expect(times[0] > 0 && times[0] < 250_000, times)
}

fn doctor(user: &User) -> Outcome {
    let checks = user.doctor();
    let bad: Vec<_> = checks
        .iter()
        .filter(|check| check.status == sandbox::CheckStatus::Missing)
        .collect();
    expect(checks.len() >= 10 && bad.is_empty(), checks)
}

fn closed_fuse(user: &User) -> Outcome {
    if user.uid() == 0 || !rustix::process::geteuid().is_root() {
        return Ok(()); // Only root can close the device, and only to others.
    }
    let _closed = crate::runner::ClosedFuse::new();
    let checks = user.doctor();
    let fuse = checks
        .iter()
        .find(|check| check.name == sandbox::CheckName::Fuse);
    let fuse = fuse.ok_or("no check of FUSE")?;
    expect(fuse.status == sandbox::CheckStatus::Missing, fuse)?;
    expect(fuse.remedy.contains("sudo chmod 0666 /dev/fuse"), fuse)?;
    let seen = user.confine(user.plan_with_tree("true"));
    let error = seen.error.clone().unwrap_or_default();
    expect(
        seen.code == 125 && error.contains("sudo chmod 0666 /dev/fuse"),
        &seen,
    )?;
    prints(
        user,
        "echo without trees it is not needed",
        &["without trees it is not needed"],
    )
}

fn no_namespaces(user: &User) -> Outcome {
    if user.uid() == 0 {
        // Inside another namespace, root has only its own id to give: that is refused first.
        let checks = user.doctor_without_namespaces();
        let check = checks.first().ok_or("no check")?;
        expect(check.name == sandbox::CheckName::Ids, &checks)?;
        return expect(check.remedy.contains("as an ordinary user"), &checks);
    }
    let checks = user.doctor_without_namespaces();
    let check = checks.first().ok_or("no check")?;
    expect(check.name == sandbox::CheckName::UserNamespaces, &checks)?;
    expect(check.status == sandbox::CheckStatus::Missing, &checks)?;
    expect(
        check
            .remedy
            .contains("sudo sysctl -w user.max_user_namespaces="),
        &checks,
    )
}

/// Whatever of these the host has says the same inside as outside.
fn everyday(user: &User) -> Outcome {
    let path = match user {
        User::Current => std::env::var("PATH").unwrap_or_default(),
        User::Ordinary(_) => sandbox::plan::DEFAULT_PATH.to_owned(),
    };
    let script = "for p in git node npm python3 curl cargo rustc gcc perl tar make; do \
        echo $p $($p --version 2>&1 | head -1); done; \
        git init -q /tmp/r && git -C /tmp/r status --short && echo git; \
        echo 'print(6 * 7)' > /tmp/p.py && python3 /tmp/p.py; node -e 'console.log(6 * 7)'";
    let mut plan = user.plan(script);
    plan.env.insert("PATH".into(), path.clone().into());
    for name in ["PYENV_ROOT", "RUSTUP_HOME", "NVM_DIR"] {
        if let (User::Current, Some(value)) = (user, std::env::var_os(name)) {
            plan.env.insert(name.into(), value);
        }
    }
    sandbox::tools::Tools::discover(&plan).add_to(&mut plan);
    let inside = user.confine(plan);
    let outside = user.outside(script, &path);
    expect(
        inside.stdout == outside && inside.stdout.contains("git"),
        (outside, &inside),
    )
}
