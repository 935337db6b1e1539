//! What is in force without any file.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use std::path::Path;

use kernel::policy::Gate;
use kernel::{Kind, Level, Source};

fn default() -> policy::Loaded {
    policy::load(None, Path::new("/w"), Path::new("/nowhere")).unwrap_or_else(|e| panic!("{e}"))
}

fn at(path: &str) -> Source {
    Source::Location {
        tree: "workspace".to_string(),
        path: path.to_string(),
    }
}

#[test]
fn the_task_is_trusted_for_all_and_the_workspace_for_paths() {
    let kernel = default().kernel;
    for kind in Kind::ALL {
        assert!(
            kernel.trusted_kinds(&Source::Task).contains(kind),
            "{}",
            kind.name()
        );
        let expect = kind == Kind::Path;
        assert_eq!(
            kernel.trusted_kinds(&at("README.md")).contains(kind),
            expect,
            "{}",
            kind.name()
        );
    }
    assert!(
        kernel
            .trusted_kinds(&Source::Party("example.org".to_string()))
            .is_empty()
    );
}

#[test]
fn secrets_are_sensitive_and_templates_are_not() {
    let kernel = default().kernel;
    for (path, level) in [
        (".env", Level::Critical),
        ("app/.env.production", Level::Critical),
        (".env.example", Level::Public),
        ("app/.env.sample", Level::Public),
        (".env.template", Level::Public),
        ("keys/server.pem", Level::Critical),
        (".ssh/config", Level::Critical),
        ("home/.ssh/known_hosts", Level::Critical),
        ("id_ed25519", Level::Critical),
        ("id_ed25519.pub", Level::Public),
        (".npmrc", Level::Critical),
        (".aws/credentials", Level::Critical),
        (".docker/config.json", Level::Critical),
        ("secrets.yaml", Level::Critical),
        ("src/secrets.rs", Level::Public),
        ("k8s/secrets/db.yaml", Level::Critical),
        ("config/credentials.json", Level::Critical),
        ("credentials.example", Level::Public),
        ("prod.tfvars", Level::Confidential),
        ("a/terraform.tfstate.backup", Level::Confidential),
        ("src/main.rs", Level::Public),
        ("README.md", Level::Public),
        ("environment.md", Level::Public),
    ] {
        assert_eq!(kernel.sensitivity(&at(path)), level, "{path}");
    }
}

#[test]
fn what_runs_unasked_is_known() {
    let kernel = default().kernel;
    for (path, place) in [
        (".git/hooks/pre-commit", Some("git hook")),
        ("vendor/lib/.git/config", Some("git configuration")),
        (".git/modules/lib/config", Some("git configuration")),
        (".github/workflows/ci.yml", Some("CI workflow")),
        (".gitlab-ci.yml", Some("CI workflow")),
        ("web/package.json", Some("package scripts")),
        ("build.rs", Some("build script")),
        ("Makefile", Some("make rules")),
        (".vscode/tasks.json", Some("editor configuration")),
        ("docs/AGENTS.md", Some("agent instructions")),
        (".claude/settings.json", Some("agent configuration")),
        (".mcp.json", Some("agent configuration")),
        ("kairos.toml", Some("agent configuration")),
        (".envrc", Some("shell start file")),
        (".husky/pre-commit", Some("git hook")),
        ("requirements-dev.txt", Some("dependencies")),
        ("pytest.ini", Some("configuration that is code")),
        ("web/package-lock.json", Some("dependencies")),
        ("docs/requirements.md", None),
        (
            "lib/site-packages/x.pth",
            Some("loaded by the interpreter at start"),
        ),
        ("src/main.rs", None),
        ("tests/login.rs", None),
        ("README.md", None),
        ("docs/config.md", None),
        ("scripts/report.sh", None),
        (".git/index", None),
        (".git/objects/ab/cdef", None),
        (".git/refs/heads/main", None),
    ] {
        assert_eq!(kernel.executes("workspace", path), place, "{path}");
    }
}

#[test]
fn only_the_paths_of_models_are_internal() {
    let kernel = default().kernel;
    for (host, method, path, expect) in [
        ("api.openai.com", "POST", "/v1/responses", true),
        ("api.openai.com", "GET", "/v1/responses", true),
        ("api.openai.com", "POST", "/v1/files", false),
        ("api.openai.com", "POST", "/x/v1/responses", false),
        ("api.anthropic.com", "POST", "/v1/messages?beta=true", true),
        (
            "api.anthropic.com",
            "POST",
            "/api/event_logging/batch",
            false,
        ),
        ("chatgpt.com", "POST", "/backend-api/codex/responses", true),
        (
            "chatgpt.com",
            "POST",
            "/backend-api/codex/analytics-events/events",
            false,
        ),
        (
            "generativelanguage.googleapis.com",
            "POST",
            "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
            true,
        ),
        (
            "x.openai.azure.com",
            "POST",
            "/openai/deployments/gpt/chat/completions?api-version=1",
            true,
        ),
        ("api.deepseek.com", "POST", "/chat/completions", true),
        ("evil.example", "POST", "/v1/responses", false),
    ] {
        assert_eq!(
            kernel.internal(host, 443, method, path),
            expect,
            "{method} {host}{path}"
        );
    }
}

#[test]
fn everybody_else_needs_a_url_from_the_task() {
    let kernel = default().kernel;
    for host in ["example.org", "10.0.0.1", "api.openai.com"] {
        let party = kernel.party(host, 443).unwrap();
        assert_eq!(party.gate, Gate::Url, "{host}");
        assert_eq!(party.clearance, Level::Public, "{host}");
    }
    assert_eq!(kernel.parties.last().unwrap().name, "anybody");
}
