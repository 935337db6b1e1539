//! What keys come to mean: trees, patterns below the home, parties, credentials, presets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use std::fs;

use kernel::policy::Gate;
use kernel::{Kind, Level, Source};

struct World(tempfile::TempDir);

fn world(agents: &[&str]) -> World {
    let dir = tempfile::tempdir().unwrap();
    for agent in agents {
        fs::create_dir_all(dir.path().join(agent)).unwrap();
    }
    World(dir)
}

impl World {
    fn load(&self, text: &str) -> policy::Loaded {
        let path = self.0.path().join("kairos.toml");
        fs::write(&path, text).unwrap();
        policy::load(Some(&path), self.0.path(), self.0.path()).unwrap_or_else(|e| panic!("{e}"))
    }
}

fn at(tree: &str, path: &str) -> Source {
    Source::Location {
        tree: tree.to_string(),
        path: path.to_string(),
    }
}

#[test]
fn known_agents_have_their_state_and_nothing_of_it_runs_unseen() {
    let loaded = world(&[".codex", ".claude", ".config/opencode"]).load("");
    let names: Vec<&str> = loaded
        .agent
        .state
        .iter()
        .map(|tree| tree.name.as_str())
        .collect();
    assert_eq!(
        names,
        ["home:.codex", "home:.claude", "home:.config+opencode"]
    );
    let kernel = &loaded.kernel;
    for (tree, path, runs) in [
        ("home:.codex", "config.toml", true),
        ("home:.codex", "AGENTS.md", true),
        ("home:.codex", "prompts/x.md", true),
        ("home:.codex", "skills/evil/SKILL.md", true),
        ("home:.codex", "rules/default.rules", true),
        ("home:.codex", "sessions/2026/01/rollout.jsonl", false),
        ("home:.codex", "history.jsonl", false),
        ("home:.codex", "log/codex-tui.log", false),
        ("home:.codex", "state_5.sqlite", false),
        ("home:.claude", "settings.json", true),
        ("home:.claude", "settings.local.json", true),
        ("home:.claude", "hooks/x", true),
        ("home:.claude", "plugins/p/hooks/hooks.json", true),
        ("home:.claude", "CLAUDE.md", true),
        ("home:.claude", "projects/-w/abc.jsonl", false),
        ("home:.claude", "todos/x.json", false),
        ("home:.config+opencode", "opencode.json", true),
    ] {
        assert_eq!(kernel.executes(tree, path).is_some(), runs, "{tree}/{path}");
        assert!(
            kernel.trusted_kinds(&at(tree, path)).contains(Kind::Path),
            "{tree}/{path}"
        );
    }
    assert_eq!(
        kernel.sensitivity(&at("home:.codex", "auth.json")),
        Level::Critical
    );
    assert_eq!(
        kernel.sensitivity(&at("home:.codex", "sub/auth.json")),
        Level::Public
    );
    assert_eq!(
        kernel.sensitivity(&at("workspace", "auth.json")),
        Level::Public
    );
    assert_eq!(kernel.executes("workspace", "config.toml"), None);
}

#[test]
fn a_known_agent_sees_only_its_own_state() {
    let loaded = world(&[".codex", ".claude"]).load("");
    let names = |program: &str| -> Vec<String> {
        loaded
            .agent
            .state_for(program)
            .iter()
            .map(|tree| tree.name.clone())
            .collect()
    };
    assert_eq!(names("/usr/bin/codex"), ["home:.codex"]);
    assert_eq!(names("bash"), ["home:.codex", "home:.claude"]);
    let named = world(&[]).load("[agent]\nstate = [\"~/.codex\", \"~/x\"]\n");
    assert_eq!(named.agent.state_for("codex").len(), 2);
}

#[test]
fn patterns_below_the_home_point_into_state_trees() {
    let world = world(&[]);
    let loaded = world.load(
        "[agent]\nstate = [\"~/.codex\", \"~/.config/tool\"]\n[[source]]\npath = \"~/.codex/notes.md\"\ntrusted = \
         [\"host\"]\n[[sensitive]]\npath = \"~/.config/**\"\nlevel = \"internal\"\n[[executes]]\npath = \
         \"~/.codex/x\"\nplace = \"mine\"\n[[executes]]\npath = \"~/.codex/prompts\"\nruns = false\n",
    );
    let kernel = loaded.kernel;
    assert!(
        kernel
            .trusted_kinds(&at("home:.codex", "notes.md"))
            .contains(Kind::Host)
    );
    assert!(
        !kernel
            .trusted_kinds(&at("home:.codex", "a/notes.md"))
            .contains(Kind::Host)
    );
    assert!(
        !kernel
            .trusted_kinds(&at("workspace", "notes.md"))
            .contains(Kind::Host)
    );
    assert_eq!(
        kernel.sensitivity(&at("home:.config+tool", "any")),
        Level::Internal
    );
    assert_eq!(kernel.sensitivity(&at("home:.codex", "any")), Level::Public);
    assert_eq!(kernel.executes("home:.codex", "x"), Some("mine"));
    assert_eq!(kernel.executes("workspace", "x"), None);
    assert_eq!(kernel.executes("home:.codex", "prompts/a.md"), None);
    assert_eq!(
        kernel.executes("home:.codex", "skills/a.md"),
        Some("agent configuration")
    );
}

#[test]
fn exceptions_hold() {
    let kernel = world(&[])
        .load(
            "[workspace]\ntrusted = [\"path\", \"host\"]\nexcept = [\"vendor\"]\n[[sensitive]]\npath = \
             \"data/**\"\nexcept = [\"data/public/**\"]\n[[executes]]\npath = \"docs/Makefile\"\nruns = \
             false\n[defaults]\nexecutes = [\"build\"]\n",
        )
        .kernel;
    assert!(
        kernel
            .trusted_kinds(&at("workspace", "a/b"))
            .contains(Kind::Host)
    );
    assert!(
        kernel
            .trusted_kinds(&at("workspace", "a/vendor/b"))
            .is_empty()
    );
    assert_eq!(
        kernel.sensitivity(&at("workspace", "data/x")),
        Level::Confidential
    );
    assert_eq!(
        kernel.sensitivity(&at("workspace", "data/public/x")),
        Level::Public
    );
    assert_eq!(kernel.executes("workspace", "docs/Makefile"), None);
    assert_eq!(kernel.executes("workspace", "Makefile"), Some("make rules"));
    assert_eq!(
        kernel.executes("workspace", ".git/hooks/x"),
        None,
        "its group is off"
    );
}

#[test]
fn parties_are_ordered_by_how_exactly_they_are_named() {
    let kernel = world(&[])
        .load(
            "[[party]]\nname = \"all\"\nhosts = [\"*\"]\nallow = [\"GET\"]\n[[party]]\nname = \"some\"\nhosts = \
             [\"*.example.org\"]\n[[party]]\nname = \"one\"\nhosts = [\"A.Example.org\"]\nallow = true\n",
        )
        .kernel;
    for (host, name) in [
        ("a.example.org", "one"),
        ("b.example.org", "some"),
        ("elsewhere.example", "all"),
        ("api.openai.com", "openai"),
    ] {
        assert_eq!(kernel.party(host, 443).unwrap().name, name, "{host}");
    }
}

#[test]
fn naming_a_providers_host_keeps_its_models_internal() {
    let world = world(&[]);
    let loaded =
        world.load("[[party]]\nhost = \"api.openai.com\"\nupstream = \"http://127.0.0.1:9999\"\n");
    assert!(
        loaded
            .kernel
            .internal("api.openai.com", 443, "POST", "/v1/responses")
    );
    assert!(
        !loaded
            .kernel
            .internal("api.openai.com", 443, "POST", "/v1/files")
    );
    assert_eq!(
        loaded.upstream("api.openai.com", 443).unwrap().to_string(),
        "http://127.0.0.1:9999"
    );
    let off = world.load("[[party]]\nhost = \"api.openai.com\"\nprovider = false\n");
    assert!(
        !off.kernel
            .internal("api.openai.com", 443, "POST", "/v1/responses")
    );
}

#[test]
fn providers_of_ones_own() {
    let world = world(&[]);
    let loaded = world.load(
        "[[provider]]\nname = \"ollama\"\nbase_url = \"http://127.0.0.1:11434/v1\"\n[[party]]\nhost = \
         \"gateway.example\"\nprovider = true\n[[party]]\nhost = \"azure.example\"\nprovider = \"anthropic\"\n",
    );
    let kernel = &loaded.kernel;
    assert!(kernel.internal("127.0.0.1", 11434, "POST", "/v1/chat/completions"));
    assert!(!kernel.internal("127.0.0.1", 11435, "POST", "/v1/chat/completions"));
    assert!(!kernel.internal("127.0.0.1", 11434, "POST", "/api/pull"));
    assert_eq!(loaded.loopback_ports(), [11434]);
    assert!(kernel.internal("gateway.example", 443, "POST", "/v1/messages"));
    assert!(kernel.internal(
        "gateway.example",
        443,
        "POST",
        "/v1beta/models/x:generateContent"
    ));
    assert!(kernel.internal("azure.example", 443, "POST", "/v1/messages"));
    assert!(!kernel.internal("azure.example", 443, "POST", "/v1/responses"));
}

#[test]
fn presets_only_read() {
    let world = world(&[]);
    for preset in [
        "crates.io",
        "npm",
        "pypi",
        "go",
        "maven",
        "debian",
        "github-read",
        "docs",
    ] {
        let loaded = world.load(&format!("[[party]]\npreset = \"{preset}\"\n"));
        let party = loaded
            .kernel
            .parties
            .iter()
            .find(|party| party.name == preset)
            .unwrap();
        assert_eq!(party.gate, Gate::Host, "{preset}");
        assert_eq!(party.clearance, Level::Public, "{preset}");
        assert_eq!(party.methods, ["GET", "HEAD"], "{preset}");
        assert!(party.internal.is_empty(), "{preset}");
    }
    let github = world.load("[[party]]\npreset = \"github-read\"\n").kernel;
    assert!(github.needs_answer("github.com", 443, "POST", "/o/r.git/git-upload-pack"));
    assert!(!github.needs_answer("github.com", 443, "POST", "/o/r.git/git-receive-pack"));
    let party = github.party("github.com", 443).unwrap();
    assert_eq!(party.named.len(), 1, "{:?}", party.named);
}

#[test]
fn credentials_go_to_their_hosts_only() {
    let loaded = world(&[]).load(
        "[[credential]]\nenv = \"OPENAI_API_KEY\"\nhosts = [\"gateway.example\"]\n[[credential]]\nenv = \
         \"GITHUB_TOKEN\"\nhosts = [\"api.github.com\"]\nplaceholder = \"ghp_\"\n",
    );
    let hosts = |env: &str| -> Vec<String> {
        let of = loaded
            .credentials
            .iter()
            .find(|credential| credential.env == env)
            .unwrap();
        of.hosts.iter().map(|host| host.0.clone()).collect()
    };
    assert_eq!(
        hosts("OPENAI_API_KEY"),
        ["gateway.example"],
        "what the file says is all that counts"
    );
    assert_eq!(hosts("ANTHROPIC_API_KEY"), ["api.anthropic.com"]);
    let github = loaded
        .credentials
        .iter()
        .find(|credential| credential.env == "GITHUB_TOKEN")
        .unwrap();
    let placeholder = github.placeholder(&[7; 16]);
    assert!(
        placeholder.starts_with("ghp_kairos-placeholder-0707"),
        "{placeholder}"
    );
}

#[test]
fn what_is_in_force_in_words() {
    let world = world(&[".codex"]);
    let loaded = world.load(
        include_str!("good.toml")
            .replace("executes = [\"git\", \"ci\", \"agent\"]", "")
            .as_str(),
    );
    let mut report = loaded.report();
    report.epoch = "0".repeat(64);
    let words = report
        .to_string()
        .replace(world.0.path().to_str().unwrap(), "DIR");
    insta::assert_snapshot!(words);
    insta::assert_snapshot!("in_a_few_lines", loaded.summary());
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["rules"], serde_json::json!(["no-publishing"]));
}

#[test]
fn what_an_operator_may_not_have_meant() {
    let loaded = world(&[]).load(
        "[workspace]\ntrusted = true\n[[party]]\nhosts = [\"*\"]\nallow = true\n[defaults]\nsensitive = false\n",
    );
    insta::assert_snapshot!(loaded.report().warnings.join("\n"));
}

#[test]
fn how_trees_are_served() {
    let said = |text: &str| {
        let files = world(&[]).load(text).files;
        (files.first_reads, files.durable)
    };
    assert_eq!(said(""), (None, None));
    assert_eq!(
        said("[files]\nreads = \"first\"\ndurable = true\n"),
        (Some(true), Some(true))
    );
}

/// A client certificate comes with the place of its key, never with the key; what a session recorded
/// can be read without it.
#[test]
fn connections_of_a_party() {
    let world = world(&[]);
    let pem = |kind: &str| format!("-----BEGIN {kind}-----\nMAA=\n-----END {kind}-----\n");
    fs::write(world.0.path().join("client.pem"), pem("CERTIFICATE")).unwrap();
    fs::write(world.0.path().join("client.key"), pem("PRIVATE KEY")).unwrap();
    let loaded = world.load(
        "[[party]]
        hosts = [\"git.example.org\"]
        ports = [22]
        allow = [\"CONNECT\"]
        host_keys = [\"SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU\"]
        connections = 4

        [[party]]
        hosts = [\"mtls.example.org\"]
        certificate = \"client.pem\"
        key = \"~/client.key\"
        rate = \"600/min\"

        [limits]
        rate = \"100/s\"
        connections = 256
        body = \"64MiB\"
        head = \"32KiB\"
        headers = 100
        ",
    );
    let [identity] = &loaded.identities[..] else {
        panic!("{:?}", loaded.identities)
    };
    assert_eq!(identity.key, world.0.path().join("client.key"));
    assert_eq!(identity.hosts[0].0, "mtls.example.org");
    assert!(identity.certificates.contains("CERTIFICATE"));
    assert!(!loaded.text.contains("BEGIN PRIVATE KEY"));
    let [ssh, mtls] = &loaded.connections[..] else {
        panic!("{:?}", loaded.connections)
    };
    assert_eq!(
        (ssh.connections, ssh.ports.as_slice()),
        (Some(4), &[22][..])
    );
    assert_eq!(ssh.host_keys.len(), 1);
    assert_eq!(
        mtls.rate.map(|rate| (rate.requests, rate.seconds)),
        Some((600, 60))
    );
    let limits = &loaded.net_limits;
    assert_eq!(
        (
            limits.connections,
            limits.body_bytes,
            limits.head_bytes,
            limits.headers
        ),
        (Some(256), Some(64 << 20), Some(32 << 10), Some(100))
    );
    let report = loaded.report().to_string();
    for said in [
        "client.pem",
        "+DiY3wvvV6TuJJhbpZisF",
        "600 requests in 60 s",
    ] {
        assert!(report.contains(said), "{report}");
    }
    // Later, and elsewhere.
    fs::remove_file(world.0.path().join("client.key")).unwrap();
    let again = policy::recorded(&loaded.text).unwrap();
    assert_eq!(again.identities, loaded.identities);
    assert_eq!(again.connections, loaded.connections);
}
