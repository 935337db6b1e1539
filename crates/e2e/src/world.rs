//! The whole outside world in a network namespace of its own: addresses that stand for hosts of the internet, a witness that
//! listens on all of them, and a resolver. Nothing in it can reach the machine's real network, so a probe that gets out
//! reaches the witness and nobody else.

use std::path::Path;
use std::process::Command;

use crate::place::{is_root, root};
use crate::server::{Server, Witness};

/// The witness's address.
pub const V4: &str = "203.0.113.10";
/// The same over IPv6.
pub const V6: &str = "2001:db8::10";
/// The world's resolver: every name leads to [`V4`] and [`V6`].
pub const RESOLVER: &str = "203.0.113.53";
/// A TCP port that speaks no HTTP by habit.
pub const ODD_PORT: u16 = 7777;

/// Lives until dropped; its witness with it.
#[derive(Debug)]
pub struct World {
    pub witness: Witness,
}

impl World {
    pub fn new(logs: &Path) -> Self {
        Self::with(logs, &[])
    }

    /// `arguments` are more of `witness.py`.
    pub fn with(logs: &Path, arguments: &[&str]) -> Self {
        let resolv = logs.join("resolv.conf");
        std::fs::write(&resolv, format!("nameserver {RESOLVER}\n")).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount"]);
        if !is_root() {
            // The user's own id inside too: what enters later has no rights there that it has not outside.
            command.args(["--user", "--map-current-user", "--keep-caps"]);
        }
        let tcp = [
            format!("{V4}:80"),
            format!("{V4}:443"),
            format!("{V4}:53"),
            format!("{V4}:{ODD_PORT}"),
            format!("[{V6}]:80"),
            format!("[{V6}]:443"),
            format!("[{V6}]:{ODD_PORT}"),
            format!("{RESOLVER}:53"),
        ];
        let udp = [
            format!("{V4}:443"),
            format!("{V4}:{ODD_PORT}"),
            format!("[{V6}]:{ODD_PORT}"),
        ];
        command.args([
            "/bin/sh",
            "-euc",
            "mount --make-rprivate /; mount --bind \"$0\" /etc/resolv.conf; ip link set lo up; \
             ip address add 203.0.113.10/32 dev lo; ip address add 203.0.113.53/32 dev lo; \
             ip address add 2001:db8::10/128 dev lo nodad; exec \"$@\"",
        ]);
        command
            .arg(&resolv)
            .arg("/usr/bin/python3")
            .arg(root().join("tests/witness/witness.py"));
        for place in &tcp {
            command.args(["--tcp", place]);
        }
        for place in &udp {
            command.args(["--udp", place]);
        }
        command.args([
            "--dns",
            &format!("{RESOLVER}:53"),
            "--dns",
            &format!("{V4}:53"),
        ]);
        command
            .args(["--answer", V4, "--answer6", V6])
            .args(arguments);
        Self {
            witness: Witness::from(Server::start(command, logs, "world")),
        }
    }

    /// The words before a command that is to run in this world, in `folder` (entering a mount namespace leaves the caller
    /// at its root).
    pub(crate) fn enter(&self, folder: &Path) -> Vec<String> {
        let target = self.witness.id().to_string();
        let mut words: Vec<String> = ["nsenter", "--target", &target, "--net", "--mount"]
            .map(Into::into)
            .into();
        if !is_root() {
            words.extend(["--user".into(), "--preserve-credentials".into()]);
        }
        words.extend(["/bin/sh", "-c", "cd \"$0\" && exec \"$@\""].map(Into::into));
        words.push(folder.to_str().unwrap().to_owned());
        words
    }
}
