//! Programs that would give the agent more rights than its principal has.

use std::os::unix::fs::PermissionsExt;

use kairos_e2e::place::is_root;
use kairos_e2e::run::outside;
use kairos_e2e::{Run, Who};

use crate::ground::Ground;

#[test]
fn a_program_that_belongs_to_root() {
    if !is_root() {
        return; // Only root can make the program; CI runs as root.
    }
    let ground = Ground::new();
    ground.workspace.give_to(Who::Ordinary);
    let program = ground.workspace.path().join("elevated-id");
    std::fs::copy("/usr/bin/id", &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let probe = format!(
        "{} -u; grep NoNewPrivs /proc/self/status",
        program.display()
    );
    let control = outside(&ground.workspace, Who::Ordinary, None, &probe);
    assert!(control.stdout.starts_with("0\n"), "{control:?}");
    // `Run::who` would hand the program to the user, so start from a folder that is the user's already.
    let other = kairos_e2e::Workspace::plain();
    other.give_to(Who::Ordinary);
    let inner = other.path().join("elevated-id");
    let outcome = {
        let script = format!(
            "{} -u; grep NoNewPrivs /proc/self/status; echo probe ran",
            inner.display()
        );
        let run = Run::shell(&other, &script)
            .who(Who::Ordinary)
            .before("sleep 1")
            .start();
        std::thread::sleep(std::time::Duration::from_millis(300));
        std::fs::copy("/usr/bin/id", &inner).unwrap();
        std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(0o4755)).unwrap();
        kairos_e2e::Outcome::of(run.finish(std::time::Duration::from_secs(60)))
    };
    assert!(
        outcome.stdout.contains("probe ran") && outcome.stdout.contains("NoNewPrivs:\t1"),
        "{outcome}"
    );
    assert!(
        !outcome.stdout.starts_with("0\n"),
        "it ran as root\n{outcome}"
    );
}

#[test]
fn the_systems_own_su() {
    let ground = Ground::new();
    let outcome = Run::shell(
        &ground.workspace,
        "echo | su -c 'id -u' root; sudo -n id -u; echo probe ran",
    )
    .who(Who::Ordinary)
    .finish();
    assert!(outcome.stdout.contains("probe ran"), "{outcome}");
    assert!(!outcome.stdout.lines().any(|line| line == "0"), "{outcome}");
}
