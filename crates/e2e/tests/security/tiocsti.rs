//! Typing into the principal's terminal: `TIOCSTI` and `TIOCLINUX` on whatever terminal the agent holds.

use std::time::Duration;

use kairos_e2e::place::kairos;
use kairos_e2e::process::Process;

use crate::ground::Ground;

/// Runs a command on a terminal of its own and afterwards prints what waits to be read from it.
const TERMINAL: &str = r#"
import os, pty, select, sys, termios, time
pid, master = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
seen, end = b"", time.time() + 60
while time.time() < end:
    ready, _, _ = select.select([master], [], [], 0.2)
    if ready:
        try:
            piece = os.read(master, 65536)
        except OSError:
            break
        if not piece:
            break
        seen += piece
sys.stdout.buffer.write(seen)
_, status = os.waitpid(pid, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"#;

const PROBE: &str = r"
import errno, fcntl, os
def attempt(name, fd, request, argument):
    try:
        fcntl.ioctl(fd, request, argument)
        print(name, 'DONE')
    except OSError as error:
        print(name, errno.errorcode[error.errno])
for path in ('/dev/tty', '/dev/stdin', '/proc/self/fd/0'):
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOCTTY)
    except OSError as error:
        print(path, 'not opened', error)
        continue
    attempt('TIOCSTI', fd, 0x5412, b'x')
    attempt('TIOCLINUX', fd, 0x541C, b'\x03')
";

#[test]
fn the_agent_cannot_type_for_its_principal() {
    let ground = Ground::new();
    ground.workspace.write("probe.py", PROBE);
    ground.workspace.write("terminal.py", TERMINAL);
    let mut command = ground.command_on_terminal();
    command.args([
        kairos().to_str().unwrap(),
        "run",
        "--oracle",
        "deny",
        "--task",
        "Do what has to be done here.",
        "--workspace",
        ground.workspace.path().to_str().unwrap(),
        "--",
        "/usr/bin/python3",
        "probe.py",
    ]);
    let ended = Process::start(command, &ground.workspace.logs(), "terminal")
        .finish(Duration::from_secs(90));
    assert!(
        ended.stdout.contains("TIOCSTI"),
        "the probe did not run: {ended:?}"
    );
    assert!(!ended.stdout.contains("DONE"), "{ended:?}");
    // EPERM is the filter's answer; EIO only says that this kernel has the old interface switched off.
    assert!(
        ended.stdout.contains("TIOCSTI EPERM"),
        "it is the kernel that refused, not the boundary: {ended:?}"
    );
    assert!(ended.stdout.contains("TIOCLINUX EPERM"), "{ended:?}");
}

#[test]
fn control_without_the_boundary_the_filter_is_not_what_answers() {
    let ground = Ground::new();
    ground.workspace.write("probe.py", PROBE);
    ground.workspace.write("terminal.py", TERMINAL);
    let mut command = ground.command_on_terminal();
    command.args(["/usr/bin/python3", "probe.py"]);
    let ended = Process::start(command, &ground.workspace.logs(), "terminal")
        .finish(Duration::from_secs(60));
    assert!(
        ended.stdout.contains("TIOCSTI DONE") || ended.stdout.contains("TIOCSTI EIO"),
        "{ended:?}"
    );
}

impl Ground {
    fn command_on_terminal(&self) -> std::process::Command {
        let mut command = std::process::Command::new("/usr/bin/python3");
        command
            .arg(self.workspace.path().join("terminal.py"))
            .current_dir(self.workspace.path())
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("TERM", "xterm")
            .env("HOME", self.workspace.home())
            .env("XDG_STATE_HOME", self.workspace.state())
            .stdin(std::process::Stdio::null());
        command
    }
}
