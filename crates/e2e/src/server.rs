//! What stands outside the boundary: the stand-in model and the witness. Each is a process of its own with a log that a test
//! reads; both live in `tests/` of the checkout.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::place::root;
use crate::process::until;

/// The scripted model. Stops when dropped.
#[derive(Debug)]
pub struct Provider {
    server: Server,
    pub port: u16,
}

/// Writes down whatever reaches it. Stops when dropped.
#[derive(Debug)]
pub struct Witness {
    server: Server,
    /// Ports of the TCP listeners asked for, in order.
    pub tcp: Vec<u16>,
    /// Ports of the UDP listeners asked for, in order.
    pub udp: Vec<u16>,
}

impl Provider {
    /// Plays `tests/provider/scripts/<script>.json`; `arguments` are more of `provider.py`.
    pub fn start(logs: &Path, script: &str, arguments: &[&str]) -> Self {
        let script = root().join(format!("tests/provider/scripts/{script}.json"));
        let mut command = Command::new("/usr/bin/python3");
        command
            .arg(root().join("tests/provider/provider.py"))
            .args(["--script", script.to_str().unwrap()])
            .args(["--dump", logs.join("provider-dump").to_str().unwrap()])
            .args(arguments);
        let (server, said) = Server::start(command, logs, "provider");
        Self {
            server,
            port: u16::try_from(said["port"].as_u64().unwrap()).unwrap(),
        }
    }

    pub fn log(&self) -> Vec<Value> {
        self.server.log()
    }

    /// Model requests, each as the provider read it.
    pub fn model_requests(&self) -> Vec<Value> {
        self.log()
            .into_iter()
            .filter(|record| record["wire"].is_string())
            .collect()
    }

    /// Everything that any model request said, as one text.
    pub fn conversation(&self) -> String {
        let mut whole = String::new();
        let mut files: Vec<_> = self
            .server
            .log
            .with_file_name("provider-dump")
            .read_dir()
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default();
        files.sort();
        for file in files {
            whole.push_str(&std::fs::read_to_string(file).unwrap());
        }
        whole
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The same over TLS.
    pub fn tls_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The root that signed its certificates.
    pub fn ca(&self) -> PathBuf {
        self.server.ca.clone()
    }
}

impl Witness {
    /// One TCP and one UDP listener on loopback.
    pub fn start(logs: &Path) -> Self {
        Self::with(logs, &["--tcp", "127.0.0.1:0", "--udp", "127.0.0.1:0"])
    }

    /// Whatever `arguments` of `witness.py` say.
    pub fn with(logs: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new("/usr/bin/python3");
        command
            .arg(root().join("tests/witness/witness.py"))
            .args(arguments);
        Self::from(Server::start(command, logs, "witness"))
    }

    pub(crate) fn from((server, said): (Server, Value)) -> Self {
        let ports = |kind: &str| {
            let list = said[kind].as_array().cloned().unwrap_or_default();
            list.iter()
                .map(|port| u16::try_from(port.as_u64().unwrap()).unwrap())
                .collect()
        };
        Self {
            tcp: ports("tcp"),
            udp: ports("udp"),
            server,
        }
    }

    pub fn log(&self) -> Vec<Value> {
        self.server.log()
    }

    /// Whether anything that reached it holds `word`, in any field.
    pub fn has_seen(&self, word: &str) -> bool {
        self.server.text().contains(word)
    }

    /// Waits a moment for it: a record is written after the bytes arrive.
    pub fn sees(&self, word: &str) -> bool {
        until(std::time::Duration::from_secs(5), || self.has_seen(word))
    }

    pub fn requests(&self) -> Vec<Value> {
        self.log()
            .into_iter()
            .filter(|record| record["what"] == "request")
            .collect()
    }

    pub fn connections(&self) -> usize {
        self.log()
            .iter()
            .filter(|record| record["what"] == "connect")
            .count()
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.tcp[0])
    }

    pub fn ca(&self) -> PathBuf {
        self.server.ca.clone()
    }

    pub fn id(&self) -> u32 {
        self.server.child.id()
    }
}

#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    log: PathBuf,
    ca: PathBuf,
}

impl Server {
    /// Starts it and waits for the line that says that it listens.
    pub(crate) fn start(mut command: Command, logs: &Path, name: &str) -> (Self, Value) {
        let log = logs.join(format!("{name}.jsonl"));
        std::fs::write(&log, "").unwrap();
        command
            .args([
                "--log",
                log.to_str().unwrap(),
                "--ca-dir",
                logs.join("authority").to_str().unwrap(),
            ])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let said: Value = serde_json::from_str(&line)
            .unwrap_or_else(|_| panic!("{command:?} did not start: `{line}`"));
        let ca = PathBuf::from(said["ca"].as_str().unwrap());
        (Self { child, log, ca }, said)
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    fn log(&self) -> Vec<Value> {
        self.text()
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
