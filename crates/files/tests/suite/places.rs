//! Places that run later by other names than the tables', by what a configuration of git leads to,
//! and by what the workspace lies in.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use files::Options;

use super::world::{Disk, World};

fn write(root: &Path, files: &[(&str, &str)]) {
    for (path, content) in files {
        let at = root.join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, content).unwrap();
    }
}

/// Changes files inside; of those, the ones that are held.
fn held(world: &World, changes: &[&str]) -> Vec<String> {
    for path in changes {
        let at = world.inside().join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, "evil\n").unwrap();
    }
    world.settle();
    let mut held: Vec<String> = world
        .seen()
        .into_iter()
        .filter_map(|line| line.strip_prefix("held ").map(str::to_string))
        .filter_map(|line| line.split_once(' ').map(|(_, path)| path.to_string()))
        .collect();
    held.sort();
    held
}

#[test]
fn what_a_link_anywhere_stands_for() {
    let world = World::new(|base| {
        write(
            base,
            &[
                ("githooks/pre-commit", "x"),
                ("hooks of all/pre-push", "x"),
                ("plain/file", "x"),
                ("deep/er/.git/HEAD", "x"),
                ("common/tasks", "x"),
            ],
        );
        fs::create_dir(base.join(".git")).unwrap();
        symlink("../githooks", base.join(".git/hooks")).unwrap();
        symlink("../../../hooks of all", base.join("deep/er/.git/hooks")).unwrap();
        fs::create_dir_all(base.join("svc/api")).unwrap();
        symlink("../../common/tasks", base.join("svc/api/held.json")).unwrap();
        symlink("svc", base.join("other")).unwrap();
    });
    let changes = [
        "githooks/pre-commit",
        "hooks of all/new",
        "common/tasks",
        "common/other",
        "plain/file",
        "svc/api/plain",
    ];
    assert_eq!(
        held(&world, &changes),
        ["common/tasks", "githooks/pre-commit", "hooks of all/new"]
    );
}

#[test]
fn what_a_link_made_meanwhile_stands_for() {
    let world = World::new(|base| write(base, &[("real/x", "x"), (".git/HEAD", "x")]));
    symlink("real", world.inside().join("way")).unwrap();
    world.settle();
    symlink("../way", world.inside().join(".git/hooks")).unwrap();
    world.settle();
    assert_eq!(
        held(&world, &["real/pre-push"]),
        [".git/hooks", "real/pre-push"]
    );
}

#[test]
fn what_a_configuration_leads_to() {
    let world = World::new(|base| {
        write(
            base,
            &[
                (
                    ".git/config",
                    "[include]\n\tpath = ../shared.cfg\n[core]\n\tfsmonitor = ./tools/watch\n",
                ),
                ("shared.cfg", "[core]\n\thooksPath = gh\n"),
                ("real/pre-commit", "x"),
                ("tools/watch", "x"),
                // A work tree of the repository, and one with a configuration of its own.
                ("wt/.git", "gitdir: ../.git/worktrees/wt\n"),
                (".git/worktrees/wt/commondir", "../..\n"),
                (
                    ".git/worktrees/wt/config.worktree",
                    "[core]\n\thooksPath = own\n",
                ),
                ("sub/.git", "gitdir: ../.git/modules/sub\n"),
                (
                    ".git/modules/sub/config",
                    "[core]\n\thooksPath = ../hooks of sub\n",
                ),
            ],
        );
        symlink("real", base.join("gh")).unwrap();
    });
    let changes = [
        "real/pre-commit",
        "shared.cfg",
        "tools/watch",
        "tools/other",
        "wt/gh/pre-commit",
        "wt/own/pre-push",
        "wt/plain",
        "hooks of sub/pre-push",
    ];
    assert_eq!(
        held(&world, &changes),
        [
            "hooks of sub",
            "hooks of sub/pre-push",
            "real/pre-commit",
            "shared.cfg",
            "tools/watch",
            "wt/gh",
            "wt/gh/pre-commit",
            "wt/own",
            "wt/own/pre-push",
        ]
    );
}

#[test]
fn git_directories_by_other_names() {
    let world = World::new(|base| {
        write(
            base,
            &[
                ("proj.git/HEAD", "ref: refs/heads/main\n"),
                ("proj.git/objects/x", "x"),
                ("proj.git/refs/x", "x"),
                ("sub/.git", "gitdir: ../.git/modules/sub\n"),
                (".git/HEAD", "x"),
                ("no/config", "x"),
                ("no/hooks/x", "x"),
            ],
        );
    });
    let inside = world.inside();
    // One that is complete only with its last part.
    write(
        &inside,
        &[
            ("made/config", "evil"),
            ("made/objects/x", "x"),
            ("made/refs/x", "x"),
        ],
    );
    world.settle();
    write(
        &inside,
        &[
            ("sub/.git", "gitdir: ../evil\n"),
            ("fine/.git", "gitdir: ../.git/modules/fine\n"),
            (".git/worktrees/w/commondir", "../..\n"),
            (".git/worktrees/v/commondir", "../../../elsewhere\n"),
            (".git/commondir", "elsewhere\n"),
        ],
    );
    let changes = [
        "proj.git/config",
        "proj.git/hooks/pre-receive",
        "proj.git/refs/heads/main",
        "proj.git/HEAD",
        "made/HEAD",
        "no/config",
        "no/hooks/x",
    ];
    assert_eq!(
        held(&world, &changes),
        [
            ".git/commondir",
            ".git/worktrees/v/commondir",
            "made/HEAD",
            "proj.git/config",
            "proj.git/hooks",
            "proj.git/hooks/pre-receive",
            "sub/.git",
        ]
    );
}

#[test]
fn what_the_workspace_lies_in() {
    for (within, changes, expect) in [
        (".git/hooks", vec!["pre-commit"], vec!["pre-commit"]),
        (
            "pkg",
            vec!["gh/pre-commit", "src/x"],
            vec!["gh", "gh/pre-commit"],
        ),
        ("held-places", vec!["x"], vec!["x"]),
    ] {
        let disk = Disk::within(within);
        let top = disk.dir.path().join("base");
        write(&top, &[(".git/config", "[core]\n\thooksPath = pkg/gh\n")]);
        let world = World::on(disk, Options::default());
        assert_eq!(held(&world, &changes), expect, "{within}");
    }
}
