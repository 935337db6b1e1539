//! Credentials in the environment of the monitor and of whoever started it.

use kairos_e2e::Run;
use kairos_e2e::place::canary;

use crate::ground::Ground;

#[test]
fn of_every_process_that_can_be_seen() {
    let ground = Ground::new();
    let word = canary();
    let probe = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; env";
    let control = ground.outside(&format!("export TOKEN={word}; sh -c \"{probe}\""));
    assert!(control.stdout.contains(&word), "{control:?}");
    let outcome = Run::shell(&ground.workspace, &format!("{probe}\necho probe ran"))
        .within(&ground.world)
        .env("OPENAI_ADMIN_KEY", &word)
        .env("AWS_SECRET_ACCESS_KEY", &word)
        .env("SSH_AUTH_SOCK", &format!("/tmp/{word}"))
        .finish();
    assert!(outcome.stdout.contains("probe ran"), "{outcome}");
    assert!(!outcome.stdout.contains(&word), "{outcome}");
}
