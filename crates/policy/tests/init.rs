//! The file that `kairos init` writes: it fits the repository and has no mistake, with its
//! comments and with every commented key taken into force.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use std::fs;
use std::path::Path;

fn init_in(files: &[(&str, &str)], agents: &[&str]) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let (workspace, home) = (dir.path().join("workspace"), dir.path().join("home"));
    fs::create_dir_all(&workspace).unwrap();
    for (name, text) in files {
        let path = workspace.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    for agent in agents {
        fs::create_dir_all(home.join(agent)).unwrap();
    }
    let text = policy::init(&workspace, &home);
    (dir, text)
}

fn load(dir: &Path, text: &str) -> policy::Loaded {
    let path = dir.join("workspace/kairos.toml");
    fs::write(&path, text).unwrap();
    policy::load(Some(&path), &dir.join("workspace"), &dir.join("home"))
        .unwrap_or_else(|e| panic!("{e}"))
}

const RUST: &[(&str, &str)] = &[
    ("Cargo.toml", "[package]\n"),
    ("package.json", "{}"),
    (".env", "A=b"),
    (".env.example", "A="),
    ("deploy/server.pem", ""),
    (
        ".git/config",
        "[remote \"origin\"]\n\turl = git@github.com:owner/name.git\n",
    ),
];

#[test]
fn a_repository_with_much_in_it() {
    let (dir, text) = init_in(RUST, &[".codex", ".claude"]);
    insta::assert_snapshot!(text);
    let loaded = load(dir.path(), &text);
    for host in ["static.crates.io", "github.com"] {
        assert_eq!(
            loaded.kernel.party(host, 443).unwrap().gate,
            kernel::policy::Gate::Host,
            "{host}"
        );
    }
}

#[test]
fn an_empty_directory() {
    let (dir, text) = init_in(&[], &[]);
    insta::assert_snapshot!(text);
    load(dir.path(), &text);
}

#[test]
fn every_commented_line_of_policy_is_sound() {
    let (dir, text) = init_in(RUST, &[".codex"]);
    // A comment that starts like TOML is TOML.
    let live: Vec<&str> = text
        .lines()
        .map(|line| {
            let bare = line.strip_prefix("# ").unwrap_or(line);
            let is_key = bare
                .split_once(" = ")
                .is_some_and(|(key, _)| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
            let is_rule =
                bare.starts_with("forbid(") || bare.starts_with("when {") || bare == "'''";
            let is_table = bare.starts_with('[');
            if is_key || is_rule || is_table {
                bare
            } else {
                line
            }
        })
        .collect();
    let live = live.join("\n");
    assert!(
        live.contains("\n[[credential]]\n") && live.contains("\nforbid("),
        "{live}"
    );
    let loaded = load(dir.path(), &live);
    assert_eq!(loaded.rules.names(), ["no-publishing"]);
    assert_eq!(loaded.oracle.default.as_deref(), Some("ask"));
}

#[test]
fn names_that_could_break_out_of_a_comment_do_not() {
    let (dir, text) = init_in(&[("x\n[workspace]\ntrusted = true\n.pem", "")], &[]);
    assert!(!text.contains("\ntrusted = true\n.pem"), "{text}");
    load(dir.path(), &text);
}
