//! Real clients of registries, forges and pages, without a flag, against real servers outside that write down what reaches them.
//! What a fresh machine does not have is in `just runtimes`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kairos_e2e::place::{canary, root};
use kairos_e2e::workspace::ENV;
use kairos_e2e::{Outcome, Policy, Run, Workspace};
use sha2::{Digest, Sha256};

/// `tests/clients/serve.py`. Stops when dropped.
struct Internet {
    server: Child,
    port: u64,
    folder: PathBuf,
    log: PathBuf,
}

impl Internet {
    fn start(workspace: &Workspace) -> Self {
        let folder = workspace.folder().join("internet");
        std::fs::create_dir_all(&folder).unwrap();
        let log = folder.join("log");
        std::fs::write(&log, "").unwrap();
        let (server, port) = announced(
            Command::new("/usr/bin/python3")
                .arg(root().join("tests/clients/serve.py"))
                .args([&folder, &log])
                .env_remove("GIT_DIR"),
        );
        Self {
            server,
            port,
            folder,
            log,
        }
    }

    fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

struct Scene {
    workspace: Workspace,
    internet: Internet,
}

impl Scene {
    fn new() -> Self {
        let workspace = Workspace::plain();
        let internet = Internet::start(&workspace);
        Self {
            workspace,
            internet,
        }
    }

    /// `parties` are their keys, but for where they are reached.
    fn run(&self, parties: &[&str], more: &str, script: &str) -> Outcome {
        let mut policy = Policy::new();
        for party in parties {
            policy = policy.more(&format!(
                "[[party]]\n{party}\nupstream = \"http://127.0.0.1:{}\"\n",
                self.internet.port
            ));
        }
        Run::shell(&self.workspace, script)
            .policy(&policy.more(more))
            .limit(Duration::from_secs(180))
            .finish()
    }
}

/// Starts a server outside that prints its port.
fn announced(command: &mut Command) -> (Child, u64) {
    let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let stdout = server.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut said).unwrap();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    (server, said["port"].as_u64().unwrap())
}

/// Where `scripts/install-runtimes` put what does not come with the system.
fn tools() -> String {
    std::env::var("KAIROS_RUNTIMES").expect("`just runtimes` sets KAIROS_RUNTIMES")
}

/// Runs a program outside to its end.
#[track_caller]
fn outside(folder: &Path, program: &str, arguments: &[&str]) {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
}

#[test]
fn npm_installs() {
    let scene = Scene::new();
    let folder = scene.internet.folder.clone();
    scene.internet.put(
        "build/package/package.json",
        r#"{"name":"kairos-left-pad","version":"1.2.3","main":"index.js"}"#,
    );
    scene
        .internet
        .put("build/package/index.js", "module.exports = 'padded';");
    let tarball = "registry/kairos-left-pad/-/kairos-left-pad-1.2.3.tgz";
    scene.internet.put(tarball, "");
    outside(
        &folder.join("build"),
        "tar",
        &["czf", folder.join(tarball).to_str().unwrap(), "package"],
    );
    let document = serde_json::json!({
        "name": "kairos-left-pad",
        "dist-tags": { "latest": "1.2.3" },
        "versions": { "1.2.3": {
            "name": "kairos-left-pad", "version": "1.2.3", "main": "index.js",
            "dist": { "tarball": "https://{host}/kairos-left-pad/-/kairos-left-pad-1.2.3.tgz" },
        }},
    });
    // The package's document lies beside the folder of its files.
    scene
        .internet
        .put("registry/kairos-left-pad/index.html", document.to_string());
    let outcome = scene.run(
        &["preset = \"npm\""],
        "",
        "mkdir ~/app && cd ~/app && npm init -y >/dev/null && npm install --no-audit --no-fund kairos-left-pad && \
         node -p 'require(\"kairos-left-pad\")'",
    );
    assert!(
        outcome.stdout.contains("padded"),
        "{outcome}\n{}",
        scene.internet.log()
    );
    assert!(scene.internet.log().contains("/kairos-left-pad/-/"));
}

#[test]
fn pip_downloads_and_installs() {
    let scene = Scene::new();
    let folder = scene.internet.folder.clone();
    let wheel = "kairos_thing-1.0-py3-none-any.whl";
    let at = format!("files.pythonhosted.org/packages/{wheel}");
    scene.internet.put(&at, "");
    let make = format!(
        "import zipfile
w = zipfile.ZipFile({:?}, 'w')
w.writestr('kairos_thing.py', 'word = \"wheeled\"')
w.writestr('kairos_thing-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: kairos-thing\\nVersion: 1.0\\n')
w.writestr('kairos_thing-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
w.writestr('kairos_thing-1.0.dist-info/RECORD', '')
w.close()",
        folder.join(&at).to_str().unwrap()
    );
    outside(&folder, "/usr/bin/python3", &["-c", &make]);
    scene.internet.put(
        "pypi.org/simple/kairos-thing/index.html",
        format!("<a href=\"https://{at}\">{wheel}</a>"),
    );
    let outcome = scene.run(
        &["preset = \"pypi\""],
        "",
        "/usr/bin/python3 -m venv ~/v && cd ~ && ~/v/bin/pip --disable-pip-version-check download kairos-thing && ls *.whl && \
         ~/v/bin/pip --disable-pip-version-check install kairos-thing && ~/v/bin/python -c 'import kairos_thing; print(kairos_thing.word)'",
    );
    assert!(
        outcome.stdout.contains("wheeled") && outcome.stdout.contains(wheel),
        "{outcome}\n{}",
        scene.internet.log()
    );
}

#[test]
fn cargo_fetches_and_builds() {
    let scene = Scene::new();
    let folder = scene.internet.folder.clone();
    let name = "kairos-crated";
    scene.internet.put(
        &format!("build/{name}-0.1.0/Cargo.toml"),
        format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"),
    );
    scene.internet.put(
        &format!("build/{name}-0.1.0/src/lib.rs"),
        "pub const WORD: &str = \"crated\";",
    );
    let at = format!("static.crates.io/crates/{name}/0.1.0/download");
    scene.internet.put(&at, "");
    outside(
        &folder.join("build"),
        "tar",
        &[
            "czf",
            folder.join(&at).to_str().unwrap(),
            &format!("{name}-0.1.0"),
        ],
    );
    let sum = hex::encode(Sha256::digest(std::fs::read(folder.join(&at)).unwrap()));
    scene.internet.put(
        "index.crates.io/config.json",
        r#"{"dl":"https://static.crates.io/crates","api":"https://crates.io"}"#,
    );
    scene.internet.put(
        &format!("index.crates.io/ka/ir/{name}"),
        format!("{{\"name\":\"{name}\",\"vers\":\"0.1.0\",\"deps\":[],\"cksum\":\"{sum}\",\"features\":{{}},\"yanked\":false}}\n"),
    );
    let sysroot = Command::new("rustc")
        .args(["--print", "sysroot"])
        .output()
        .unwrap();
    let sysroot = String::from_utf8(sysroot.stdout).unwrap();
    let sysroot = sysroot.trim();
    let outcome = scene.run(
        &["preset = \"crates.io\""],
        &format!("[agent]\nexpose = [{sysroot:?}]\n"),
        &format!(
            "export PATH={sysroot}/bin:$PATH && mkdir -p ~/app/src && cd ~/app && \
             printf '[package]\\nname = \"app\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\n[dependencies]\\n{name} = \"0.1\"\\n' > Cargo.toml && \
             echo 'fn main() {{ println!(\"{{}}\", kairos_crated::WORD); }}' > src/main.rs && cargo fetch && cargo run --offline"
        ),
    );
    assert!(
        outcome.stdout.contains("crated"),
        "{outcome}\n{}",
        scene.internet.log()
    );
    assert!(scene.internet.log().contains("static.crates.io /crates/"));
}

/// A clone, a commit and a push, with a large file kept elsewhere.
#[test]
#[ignore = "needs git-lfs: `just runtimes`"]
fn git_lfs_pushes_and_fetches() {
    let scene = Scene::new();
    let host = "forge.example.test";
    std::fs::create_dir_all(scene.internet.folder.join(host)).unwrap();
    let depot = scene.internet.folder.join(host);
    outside(
        &depot,
        "git",
        &["init", "-q", "--bare", "-b", "main", "depot.git"],
    );
    let outcome = scene.run(
        &[&format!("hosts = [\"{host}\"]\nallow = true")],
        "",
        &format!(
            "cd ~ && git config --global user.email a@b && git config --global user.name a && git lfs install --skip-repo && \
             git clone -q https://{host}/depot.git one && cd one && git checkout -q -b main && git lfs track '*.bin' && \
             head -c 3000000 /dev/urandom > large.bin && sha256sum large.bin && git add . && git commit -qm large && \
             git push -q origin main && cd .. && git clone -q https://{host}/depot.git two && cd two && sha256sum large.bin"
        ),
    );
    let sums: Vec<&str> = outcome
        .stdout
        .lines()
        .filter(|line| line.ends_with("  large.bin"))
        .collect();
    assert!(
        sums.len() == 2 && sums[0] == sums[1],
        "{outcome}\n{}",
        scene.internet.log()
    );
    let kept = scene
        .internet
        .folder
        .join("lfs")
        .join(sums[0].split(' ').next().unwrap());
    assert_eq!(kept.metadata().unwrap().len(), 3_000_000);
    assert!(
        scene
            .internet
            .log()
            .contains("POST forge.example.test /depot.git/info/lfs/objects/batch")
    );
}

/// What a project inherits and imports comes from Maven's central repository.
#[test]
#[ignore = "needs Maven and a JDK: `just runtimes`"]
fn maven_resolves() {
    let scene = Scene::new();
    let pom = |name: &str, more: &str| {
        format!(
            "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
             <groupId>test.kairos</groupId><artifactId>{name}</artifactId><version>1</version><packaging>pom</packaging>{more}</project>"
        )
    };
    let central = "repo.maven.apache.org/maven2/test/kairos";
    for name in ["parent", "bom"] {
        scene.internet.put(
            &format!("{central}/{name}/1/{name}-1.pom"),
            pom(
                name,
                &format!("<properties><from.{name}>yes</from.{name}></properties>"),
            ),
        );
    }
    let own = "<parent><groupId>test.kairos</groupId><artifactId>parent</artifactId><version>1</version><relativePath/></parent>\
               <dependencyManagement><dependencies><dependency><groupId>test.kairos</groupId><artifactId>bom</artifactId>\
               <version>1</version><type>pom</type><scope>import</scope></dependency></dependencies></dependencyManagement>";
    std::fs::write(scene.workspace.path().join("pom.xml"), pom("app", own)).unwrap();
    let outcome = scene.run(
        &["preset = \"maven\""],
        "", // A JVM takes the home of the account, which is not the test's.
        "MAVEN_OPTS=-Duser.home=$HOME mvn -B validate",
    );
    assert!(
        outcome.stdout.contains("BUILD SUCCESS"),
        "{outcome}\n{}",
        scene.internet.log()
    );
    for name in ["parent", "bom"] {
        assert!(
            scene
                .internet
                .log()
                .contains(&format!("/{name}/1/{name}-1.pom"))
        );
    }
}

#[test]
#[ignore = "needs Gradle and a JDK: `just runtimes`"]
fn gradle_resolves() {
    let scene = Scene::new();
    let pom = "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
               <groupId>test.kairos</groupId><artifactId>thing</artifactId><version>1</version></project>";
    for central in ["repo.maven.apache.org", "repo1.maven.org"] {
        let at = format!("{central}/maven2/test/kairos/thing/1/thing-1");
        scene.internet.put(&format!("{at}.pom"), pom);
        // An archive with nothing in it.
        scene.internet.put(
            &format!("{at}.jar"),
            [b"PK\x05\x06".as_slice(), &[0; 18]].concat(),
        );
    }
    let build = "apply plugin: 'java'
repositories { mavenCentral() }
dependencies { compile 'test.kairos:thing:1' }
task show { doLast { configurations.compile.files.each { println 'resolved ' + it.name } } }
";
    std::fs::write(scene.workspace.path().join("build.gradle"), build).unwrap();
    let outcome = scene.run(
        &["preset = \"maven\""],
        "",
        "GRADLE_OPTS=-Duser.home=$HOME gradle --no-daemon -g $HOME/.gradle --project-cache-dir $HOME/cache -q show",
    );
    assert!(
        outcome.stdout.contains("resolved thing-1.jar"),
        "{outcome}\n{}",
        scene.internet.log()
    );
}

const PAGE: &str = r#"<html><body><script>
const say = word => { document.body.append(word + ' '); };
fetch('/fetched').then(r => r.text()).then(t => say('fetch:' + t));
const socket = new WebSocket('wss://' + location.host + '/socket');
socket.onopen = () => socket.send('CANARY');
socket.onmessage = m => { say('socket:' + m.data); fetch('/end-CANARY', {method: 'POST', body: m.data}); };
</script></body></html>"#;

/// A page, what its script fetches, and a WebSocket, with nothing set up by hand.
#[track_caller]
fn browser(script: &str) {
    let scene = Scene::new();
    let word = canary();
    scene
        .internet
        .put("page.example.test/page.html", PAGE.replace("CANARY", &word));
    scene.internet.put("page.example.test/fetched", "something");
    let outcome = scene.run(
        &["hosts = [\"page.example.test\"]\nallow = true"],
        "",
        &script.replace("{url}", "https://page.example.test/page.html"),
    );
    let log = scene.internet.log();
    for expect in [
        "GET page.example.test /page.html".to_owned(),
        "GET page.example.test /fetched".to_owned(),
        format!("MESSAGE page.example.test {word}"),
        format!("POST page.example.test /end-{word}"),
    ] {
        assert!(log.contains(&expect), "{expect}\n{log}\n{outcome}");
    }
    assert!(outcome.listed("held", "").is_empty(), "{outcome}");
}

#[test]
#[ignore = "needs Chromium: `just runtimes`"]
fn chromium() {
    browser(
        "chromium --headless --no-sandbox --disable-gpu --virtual-time-budget=15000 --timeout=20000 --dump-dom {url}",
    );
}

#[test]
#[ignore = "needs Firefox: `just runtimes`"]
fn firefox() {
    // It takes the authority in while it starts, so what is opened at once may come too early.
    browser(
        "profile=$(mktemp -d); for page in about:blank {url}; do \
         MOZ_HEADLESS=1 timeout 40 firefox-esr --no-remote --profile $profile $page; done; true",
    );
}

/// A Node of another version than the system's.
#[test]
#[ignore = "needs Node 22: `just runtimes`"]
fn node_22() {
    let scene = Scene::new();
    scene.internet.put("page.example.test/fetched", "something");
    let tools = tools();
    let outcome = scene.run(
        &["hosts = [\"page.example.test\"]\nallow = true"],
        &format!("[agent]\nexpose = [{tools:?}]\n"),
        &format!(
            "{tools}/node_modules/node/bin/node -e '
                fetch(\"https://page.example.test/fetched\").then(r => r.text()).then(console.log);
                const s = new WebSocket(\"wss://page.example.test/socket\");
                s.onopen = () => s.send(\"over node\");
                s.onmessage = m => {{ console.log(process.version, m.data); s.close(); }};'"
        ),
    );
    assert!(
        outcome.stdout.contains("something")
            && outcome.stdout.contains("v22")
            && outcome.stdout.contains("over node"),
        "{outcome}"
    );
}

/// A page, a POST and a WebSocket of the .NET runtime.
#[test]
#[ignore = "needs .NET: `just runtimes`"]
fn dotnet() {
    let scene = Scene::new();
    let word = canary();
    scene.internet.put("page.example.test/fetched", "something");
    let client = std::fs::read_to_string(root().join("tests/clients/dotnet.py")).unwrap();
    scene.workspace.write("dotnet.py", &client);
    let tools = tools();
    let outcome = scene.run(
        &["hosts = [\"page.example.test\"]\nallow = true"],
        &format!("[agent]\nexpose = [{tools:?}]\n"),
        &format!(
            "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1 {tools}/python/bin/python dotnet.py page.example.test {word}"
        ),
    );
    for expect in [
        "version 8.".to_owned(),
        "get something".to_owned(),
        format!("post 200 {{\"got\": {}}}", word.len()),
        format!("socket {word}"),
    ] {
        assert!(outcome.stdout.contains(&expect), "{expect}\n{outcome}");
    }
    let log = scene.internet.log();
    assert!(
        log.contains(&format!("MESSAGE page.example.test {word}")),
        "{log}"
    );
}

#[test]
#[ignore = "needs websocat: `just runtimes`"]
fn websocat() {
    let scene = Scene::new();
    let tools = tools();
    let outcome = scene.run(
        &["hosts = [\"page.example.test\"]\nallow = true"],
        &format!("[agent]\nexpose = [{tools:?}]\n"),
        &format!(
            "printf 'over %s\\n' websocat | {tools}/cargo/bin/websocat --one-message wss://page.example.test/socket"
        ),
    );
    assert!(outcome.stdout.contains("over websocat"), "{outcome}");
    let log = scene.internet.log();
    assert!(
        log.contains("MESSAGE page.example.test over websocat"),
        "{log}"
    );
}

/// `tests/clients/calls.py` outside. Stops when dropped.
struct Calls {
    server: Child,
    port: u64,
    log: PathBuf,
}

impl Calls {
    fn start(workspace: &Workspace) -> Self {
        let script = root().join("tests/clients/calls.py");
        workspace.write("calls.py", &std::fs::read_to_string(&script).unwrap());
        let log = workspace.folder().join("calls.log");
        std::fs::write(&log, "").unwrap();
        let mut command = Command::new(format!("{}/python/bin/python", tools()));
        let (server, port) = announced(command.arg(script).arg("serve").arg(&log));
        Self { server, port, log }
    }

    /// A session in which the server is an allowed party, with what `calls.py` does inside.
    fn run(&self, workspace: &Workspace, words: &str) -> Outcome {
        let tools = tools();
        let policy = Policy::new().more(&format!(
            "[[party]]\nhosts = [\"calls.example.test\"]\nallow = true\nupstream = \"http://127.0.0.1:{}\"\n\
             [agent]\nexpose = [{tools:?}]\n",
            self.port
        ));
        Run::shell(
            workspace,
            &format!("{tools}/python/bin/python calls.py {words}"),
        )
        .policy(&policy)
        .finish()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// All four kinds of call, and an error of the server's, by gRPC's own library on both sides.
#[test]
#[ignore = "needs grpcio: `just runtimes`"]
fn grpc() {
    let workspace = Workspace::plain();
    let calls = Calls::start(&workspace);
    let outcome = calls.run(&workspace, "call calls.example.test");
    for expect in [
        "unary echo one unary\n",
        "down 0 1 2 3 4\n",
        "up 10\n",
        "both echo turn 0\nboth echo turn 1\nboth echo turn 2\n",
        "fail FAILED_PRECONDITION not today\n",
    ] {
        assert!(
            outcome.stdout.contains(expect),
            "{expect}\n{outcome}\n{}",
            calls.log()
        );
    }
    assert_eq!(
        calls.log(),
        "unary one\ndown 5\nup 1\nup 2\nup 3\nup 4\nboth turn 0\nboth turn 1\nboth turn 2\nfail please\n"
    );
}

/// A stream is judged message by message: the one with the secret ends it, for the client with a status of gRPC's own.
#[test]
#[ignore = "needs grpcio: `just runtimes`"]
fn a_secret_does_not_leave_in_a_stream_of_grpc() {
    let workspace = Workspace::plain();
    workspace.write(".env", ENV);
    let calls = Calls::start(&workspace);
    let outcome = calls.run(&workspace, "leak calls.example.test .env");
    assert!(
        outcome.stdout.contains("both echo harmless")
            && outcome.stdout.contains("leak PERMISSION_DENIED"),
        "{outcome}\n{}",
        calls.log()
    );
    assert_eq!(calls.log(), "both harmless\n");
}
