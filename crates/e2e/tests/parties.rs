//! What a policy says of single parties, with real servers: SSH with a host key that is checked, client
//! certificates, credentials of git.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kairos_e2e::place::canary;
use kairos_e2e::run::kairos;
use kairos_e2e::{Outcome, Policy, Run, Who, Witness, Workspace};

const HOST: &str = "git.example.test";

/// Runs a program outside to its end.
#[track_caller]
fn outside(folder: &Path, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .env("HOME", folder)
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A real SSH server of whoever runs the tests, with a repository. Stops when dropped.
struct Sshd {
    server: Child,
    port: u16,
    host_key: String,
    folder: PathBuf,
}

impl Sshd {
    /// `client_key` may log in.
    fn start(workspace: &Workspace, client_key: &Path) -> Self {
        let folder = workspace.folder().join("sshd");
        std::fs::create_dir_all(&folder).unwrap();
        let text = |name: &str| folder.join(name).display().to_string();
        outside(
            &folder,
            "ssh-keygen",
            &["-q", "-t", "ed25519", "-N", "", "-f", &text("host")],
        );
        std::fs::copy(client_key.with_extension("pub"), folder.join("authorized")).unwrap();
        outside(
            &folder,
            "git",
            &["init", "-q", "--bare", "-b", "main", "depot.git"],
        );
        let port = free_port();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
             UsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nSubsystem sftp internal-sftp\nLogLevel VERBOSE\n",
            text("host"),
            text("authorized"),
        );
        std::fs::write(folder.join("config"), config).unwrap();
        // Where a service would have made it.
        let _ = std::fs::create_dir_all("/run/sshd");
        let server = Command::new("/usr/sbin/sshd")
            .args(["-D", "-f", &text("config"), "-E", &text("log")])
            .stdin(Stdio::null())
            .spawn()
            .expect("openssh-server: `scripts/setup` installs it");
        let sshd = Self {
            server,
            port,
            host_key: std::fs::read_to_string(folder.join("host.pub")).unwrap(),
            folder,
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "sshd: {}", sshd.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        sshd
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    fn host_key(&self) -> &str {
        self.host_key.trim()
    }

    fn fingerprint(&self) -> String {
        let key = self.folder.join("host.pub");
        let said = outside(
            &self.folder,
            "ssh-keygen",
            &["-l", "-f", key.to_str().unwrap()],
        );
        said.split(' ').nth(1).unwrap().to_owned()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

struct Scene {
    workspace: Workspace,
    sshd: Sshd,
    user: String,
}

impl Scene {
    fn new() -> Self {
        let workspace = Workspace::plain();
        let key = workspace.path().join("id");
        outside(
            &workspace.path(),
            "ssh-keygen",
            &["-q", "-t", "ed25519", "-N", "", "-f", key.to_str().unwrap()],
        );
        let sshd = Sshd::start(&workspace, &key);
        let user = outside(&workspace.path(), "id", &["-un"]);
        Self {
            workspace,
            sshd,
            user,
        }
    }

    fn run(&self, host_keys: &str, script: &str) -> Outcome {
        let policy = Policy::new().more(&format!(
            "[[party]]\nhosts = [\"{HOST}\"]\nports = [22]\nallow = [\"CONNECT\"]\nupstream = \"http://127.0.0.1:{}\"\n{host_keys}",
            self.sshd.port
        ));
        let script = format!(
            "umask 077; cp id ~/id; export GIT_SSH_COMMAND='ssh -i ~/id -o BatchMode=yes'\n{}",
            script.replace("{user}", &self.user).replace(
                "{depot}",
                &format!(
                    "ssh://{}@{HOST}{}/depot.git",
                    self.user,
                    self.sshd.folder.display()
                )
            )
        );
        Run::shell(&self.workspace, &script)
            .policy(&policy)
            .limit(Duration::from_secs(90))
            .finish()
    }
}

const PUSH: &str = "git init -q -b main ~/work && cd ~/work && git config user.email a@b && git config user.name a && \
                    echo one > file && git add file && git commit -qm first && git push -q {depot} main && echo pushed";

#[test]
fn git_and_scp_work_over_ssh_to_a_party_whose_host_key_the_policy_names() {
    let scene = Scene::new();
    let named = format!("host_keys = [\"{}\"]", scene.sshd.host_key());
    let word = canary();
    let script = format!(
        "{PUSH} && git ls-remote {{depot}} && echo {word} > ~/sent && \
         scp -i ~/id -o BatchMode=yes ~/sent {{user}}@{HOST}:{0}/arrived && \
         scp -i ~/id -o BatchMode=yes {{user}}@{HOST}:{0}/arrived ~/back && cat ~/back",
        scene.sshd.folder.display()
    );
    let outcome = scene.run(&named, &script);
    assert!(
        outcome.stdout.contains("pushed") && outcome.stdout.contains("refs/heads/main"),
        "{outcome}\n{}",
        scene.sshd.log()
    );
    assert!(outcome.stdout.contains(&word), "{outcome}");
    let arrived = std::fs::read_to_string(scene.sshd.folder.join("arrived")).unwrap();
    assert_eq!(arrived.trim(), word);
    let depot = scene.sshd.folder.join("depot.git");
    let log = outside(&depot, "git", &["log", "--format=%s", "main"]);
    assert_eq!(log, "first");
}

/// A fingerprint does as well; then the client inside has to be told to believe it.
#[test]
fn a_fingerprint_is_enough() {
    let scene = Scene::new();
    let named = format!("host_keys = [\"{}\"]", scene.sshd.fingerprint());
    let script = PUSH.replace(
        "git push",
        "GIT_SSH_COMMAND=\"$GIT_SSH_COMMAND -o StrictHostKeyChecking=accept-new\" git push",
    );
    let outcome = scene.run(&named, &script);
    assert!(
        outcome.stdout.contains("pushed"),
        "{outcome}\n{}",
        scene.sshd.log()
    );
}

/// Another key than the policy's: cut before the client has logged in, whatever the client believes.
#[test]
fn another_host_key_is_cut_before_anything_of_the_client_arrives() {
    let scene = Scene::new();
    let other = "host_keys = [\"SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU\"]";
    let script = "ssh -i ~/id -o BatchMode=yes -o StrictHostKeyChecking=no {user}@git.example.test echo in; echo $?";
    let outcome = scene.run(other, script);
    assert!(
        outcome.stderr.contains("which the policy does not name")
            && outcome.stderr.contains(&scene.sshd.fingerprint()),
        "{outcome}"
    );
    assert!(outcome.stdout.contains("255"), "{outcome}");
    let log = scene.sshd.log();
    assert!(!log.contains("Accepted"), "{log}");
    assert!(!log.contains("publickey"), "not even tried: {log}");
}

/// Without a key in the policy, and to somebody that the policy does not name: one line, at once.
#[test]
fn ssh_that_cannot_be_checked_is_refused_in_one_line() {
    let scene = Scene::new();
    let start = Instant::now();
    for (host, keys) in [(HOST, ""), ("elsewhere.example.test", "")] {
        let script = format!(
            "git ls-remote ssh://git@{host}/depot.git; ssh -o BatchMode=yes git@{host}; true"
        );
        let outcome = scene.run(keys, &script);
        let lines: Vec<&str> = outcome
            .stderr
            .lines()
            .filter(|line| line.contains("host_keys"))
            .collect();
        assert!(
            lines.len() >= 2 && lines.iter().all(|line| line.contains(host)),
            "{outcome}"
        );
    }
    assert!(start.elapsed() < Duration::from_secs(60));
    // But for the one that waited for it to start.
    let log = scene.sshd.log();
    assert_eq!(log.matches("Connection from").count(), 1, "{log}");
}

/// A server that wants to know who comes; what reaches it is in its log.
const CHOOSY: &str = r#"
import http.server, ssl, sys
class Log(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.connection.getpeercert()["subject"][0][0][1]
        open(sys.argv[2], "a").write(name + " " + self.path + "\n")
        self.send_response(200)
        self.send_header("content-length", "8")
        self.end_headers()
        self.wfile.write(b"welcome\n")
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("server.pem", "server.key")
context.load_verify_locations("ca.pem")
context.verify_mode = ssl.CERT_REQUIRED
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Log)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"#;

#[test]
fn a_client_certificate_is_shown_and_its_key_stays_outside() {
    let workspace = Workspace::plain();
    let folder = workspace.folder().join("choosy");
    std::fs::create_dir_all(&folder).unwrap();
    let host = "choosy.example.test";
    let openssl = |line: &str| {
        outside(&folder, "openssl", &line.split(' ').collect::<Vec<_>>());
    };
    let pair = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(&format!(
        "req -x509 {pair} -keyout ca.key -out ca.pem -subj /CN=authority"
    ));
    for (name, extension) in [
        ("server", format!("subjectAltName=DNS:{host}")),
        ("client", "extendedKeyUsage=clientAuth".into()),
    ] {
        openssl(&format!(
            "req -x509 {pair} -CA ca.pem -CAkey ca.key -keyout {name}.key -out {name}.pem -subj /CN=the-{name} \
             -addext basicConstraints=critical,CA:FALSE -addext {extension}"
        ));
    }
    let (port, log) = (free_port(), folder.join("log"));
    let mut server = Command::new("/usr/bin/python3")
        .args(["-c", CHOOSY, &port.to_string(), log.to_str().unwrap()])
        .current_dir(&folder)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let kept = workspace.home().join(".config/kairos");
    std::fs::create_dir_all(&kept).unwrap();
    std::fs::copy(folder.join("client.key"), kept.join("client.key")).unwrap();
    let run = |key: &str| {
        let policy = Policy::new().more(&format!(
            "[[party]]\nhosts = [\"{host}\"]\nallow = true\nupstream = \"https://127.0.0.1:{port}\"\nroots = [\"{0}/ca.pem\"]\n\
             certificate = \"{0}/client.pem\"\nkey = \"{key}\"\n",
            folder.display()
        ));
        let secret = std::fs::read_to_string(folder.join("client.key")).unwrap();
        let (one, other) = secret.lines().nth(1).unwrap().split_at(20);
        // In two pieces, so that it does not find itself.
        let script = format!(
            "curl -sS https://{host}/in; cat ~/.config/kairos/client.key; printf '%s%s' '{one}' '{other}' > /tmp/key; \
             grep -rlsf /tmp/key /proc/*/environ /proc/*/cmdline /etc ~; echo done"
        );
        Run::shell(&workspace, &script).policy(&policy).finish()
    };
    let outcome = run("~/.config/kairos/client.key");
    assert!(outcome.stdout.starts_with("welcome\ndone\n"), "{outcome}");
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "the-client /in\n");
    // Nor is it in any record of the session.
    let secret = std::fs::read_to_string(folder.join("client.key")).unwrap();
    let line = secret.lines().nth(1).unwrap();
    let found = Command::new("grep")
        .args(["-rlF", line])
        .arg(workspace.state())
        .output()
        .unwrap();
    assert!(found.stdout.is_empty(), "{found:?}");
    // Where the agent could read it a run does not begin.
    std::fs::copy(
        folder.join("client.key"),
        workspace.path().join("client.key"),
    )
    .unwrap();
    let outcome = run(workspace.path().join("client.key").to_str().unwrap());
    assert!(
        outcome.stderr.contains("where the agent can read it") && outcome.stdout.is_empty(),
        "{outcome}"
    );
    let _ = server.kill();
    let _ = server.wait();
}

/// A credential helper of git hands out the placeholder; its real value reaches its own host only, and
/// nothing inside ever has it: not the environment, not a core dump.
#[test]
fn credentials_of_git_are_real_at_their_host_only() {
    let workspace = Workspace::plain();
    let witness = Witness::start(&workspace.logs());
    let real = format!("real-{}", canary());
    let policy = Policy::new()
        .allow("git.example.test", Some(&witness.url()))
        .allow("other.example.test", Some(&witness.url()))
        .more("[[credential]]\nenv = \"FORGE_TOKEN\"\nhosts = [\"git.example.test\"]\n");
    let script = "
        git config --global credential.helper '!f() { echo username=me; echo password=$FORGE_TOKEN; }; f'
        for host in git other; do
            printf 'protocol=https\\nhost=%s.example.test\\n\\n' $host | git credential fill | sed -n 's/^password=//p' > ~/password
            curl -sS -u me:$(cat ~/password) https://$host.example.test/basic/$host >/dev/null
            curl -sS \"https://$host.example.test/query/$host?access_token=$(cat ~/password)&note=$(cat ~/password)\" >/dev/null
            curl -sS -b session=$(cat ~/password) https://$host.example.test/cookie/$host >/dev/null
        done
        ulimit -c unlimited 2>/dev/null
        cd ~; sh -c 'kill -ABRT $$'; ls | grep -i core
        env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'";
    let outcome = Run::shell(&workspace, script)
        .policy(&policy)
        .env("FORGE_TOKEN", &real)
        .finish();
    assert!(!outcome.stdout.contains(&real), "{outcome}");
    assert!(!outcome.stdout.contains("core"), "no core dump: {outcome}");
    let coded = format!("printf %s 'me:{real}' | base64 -w0");
    let coded = outside(&workspace.path(), "/bin/sh", &["-c", &coded]);
    let seen = witness.requests();
    assert_eq!(seen.len(), 6, "{outcome}");
    for request in &seen {
        let (path, whole) = (request["path"].as_str().unwrap(), request.to_string());
        let has = whole.contains(&real) || whole.contains(&coded);
        assert_eq!(has, path.contains("/git"), "{request}");
        if path.contains("/query/git") {
            assert!(
                path.contains(&format!("access_token={real}&note=kairos-placeholder-")),
                "{path}"
            );
        }
    }
    let kept = Command::new("grep")
        .args(["-rlF", &real])
        .arg(workspace.state())
        .output()
        .unwrap();
    assert!(kept.stdout.is_empty(), "{kept:?}");
}

/// Approved where its credential is not set, a held request would be spent with the placeholder.
#[test]
fn a_held_request_is_not_sent_without_its_credential() {
    let workspace = Workspace::plain();
    let witness = Witness::start(&workspace.logs());
    let policy = Policy::new()
        .more(&format!(
            "[[party]]\nhost = \"git.example.test\"\nallow = [\"GET\"]\nupstream = \"{}\"\n",
            witness.url()
        ))
        .more("[[credential]]\nenv = \"FORGE_TOKEN\"\nhosts = [\"git.example.test\"]\n");
    let script = "
        curl -sS -d a=1 -H \"Authorization: Bearer $FORGE_TOKEN\" https://git.example.test/bearer
        curl -sS -d a=1 -u me:$FORGE_TOKEN https://git.example.test/basic
        curl -sS -d a=1 https://git.example.test/none";
    let outcome = Run::shell(&workspace, script)
        .policy(&policy)
        .env("FORGE_TOKEN", "the real one")
        .finish();
    let approval = kairos(&workspace, Who::Me, &["approve", outcome.session(), "all"]);
    assert_ne!(approval.code, 0, "{outcome}");
    assert!(
        approval.stderr.contains("FORGE_TOKEN"),
        "{}",
        approval.stderr
    );
    // The one without a credential waits for those before it.
    assert_eq!(witness.requests(), Vec::<serde_json::Value>::new());
    let held = kairos(
        &workspace,
        Who::Me,
        &["review", "--json", outcome.session()],
    );
    let held: serde_json::Value = serde_json::from_str(&held.stdout).unwrap();
    assert_eq!(held["sessions"][0]["counts"]["held"], 3, "{held}");
}

/// The monitor's own memory, which has the real values, is closed to every process of its user.
#[test]
fn the_monitor_cannot_be_looked_into() {
    let workspace = Workspace::plain();
    let process = Run::shell(&workspace, "touch started; sleep 60")
        .policy(&Policy::new())
        .who(Who::Ordinary)
        .start();
    let pid = process.id();
    let deadline = Instant::now() + Duration::from_secs(60);
    let status = || std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let core = || std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    // What belongs to a process that may be dumped is its user's; of one that may not it is root's.
    let closed = || {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(format!("/proc/{pid}/mem")).is_ok_and(|found| found.uid() == 0)
    };
    let no_core = || {
        core().lines().any(|line| {
            line.starts_with("Max core file size") && line.split_whitespace().nth(4) == Some("1")
        })
    };
    while !(closed() && no_core()) {
        assert!(Instant::now() < deadline, "{}\n{}", status(), core());
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(process);
}
