//! The session bus: whoever reaches it can start programs outside.

use std::process::Command;

use kairos_e2e::Run;
use kairos_e2e::process::Process;

use crate::ground::{Ground, python};

#[test]
fn the_session_bus_of_the_principal() {
    let ground = Ground::new();
    let socket = ground.workspace.home().join("bus");
    let mut command = Command::new("dbus-daemon");
    command
        .args(["--session", "--nofork", "--print-address=1"])
        .arg(format!("--address=unix:path={}", socket.display()));
    let bus = Process::start(command, &ground.workspace.logs(), "bus");
    assert!(
        kairos_e2e::process::until(std::time::Duration::from_secs(10), || socket.exists()),
        "{:?}",
        bus.so_far()
    );
    let address = format!("unix:path={}", socket.display());
    let probe = python(&format!(
        "
import os, socket
print('address', os.environ.get('DBUS_SESSION_BUS_ADDRESS'))
try:
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(3)
    s.connect('{}')
    s.sendall(b'\\0AUTH ANONYMOUS\\r\\n')
    print('bus says', s.recv(100))
except OSError as error:
    print(error)
",
        socket.display()
    ));
    let control = ground.outside(&probe);
    assert!(control.stdout.contains("bus says"), "{control:?}");
    let script = format!("{probe}\necho probe ran");
    let outcome = Run::shell(&ground.workspace, &script)
        .within(&ground.world)
        .env("DBUS_SESSION_BUS_ADDRESS", &address)
        .env("XDG_RUNTIME_DIR", ground.workspace.home().to_str().unwrap())
        .finish();
    assert!(outcome.stdout.contains("probe ran"), "{outcome}");
    assert!(!outcome.stdout.contains("bus says"), "{outcome}");
    assert!(
        outcome.stdout.contains("address None"),
        "the address is not passed on\n{outcome}"
    );
}

#[test]
fn f12_starting_a_program_through_the_users_service_manager() {
    let ground = Ground::new();
    let mark = ground.workspace.home().join("started");
    let outcome = ground.inside(&format!(
        "systemd-run --user --quiet touch {mark}; dbus-run-session -- true; mkdir -p ~/.config/autostart; \
         echo x > ~/.config/autostart/x.desktop; echo '* * * * * touch {mark}' | crontab -",
        mark = mark.display()
    ));
    assert!(!mark.exists(), "{outcome}");
    assert!(
        !ground
            .workspace
            .home()
            .join(".config/autostart/x.desktop")
            .exists(),
        "{outcome}"
    );
}
