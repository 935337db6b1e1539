//! A person's terminal while an agent runs in it: Ctrl-Z and `fg`, a new size, a lone Escape, a long paste.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::process::Command;
use std::time::Duration;

use kairos_e2e::Workspace;
use kairos_e2e::place::kairos;
use kairos_e2e::process::Process;

#[test]
fn the_terminal_is_as_without_kairos() {
    let workspace = Workspace::plain();
    workspace.write("person.py", include_str!("terminal.py"));
    let mut command = Command::new("/usr/bin/python3");
    command
        .arg(workspace.path().join("person.py"))
        .arg(kairos())
        .arg(workspace.path())
        .env("HOME", workspace.home());
    let ended =
        Process::start(command, &workspace.logs(), "person").finish(Duration::from_secs(300));
    for what in [
        "ctrl-z",
        "raw ctrl-z",
        "resize",
        "escape",
        "paste",
        "restored",
    ] {
        assert!(
            ended.stdout.contains(&format!("{what} ok\n")),
            "{what}: {ended:?}"
        );
    }
}
