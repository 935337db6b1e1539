//! What was committed can be taken back, and where the owner changed a file too, both are kept and
//! the owner chooses.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::world::{Disk, World, run, slow, snapshot, stopped_after};
use files::{Choice, CommitError, Merge, Options, Undone};

fn fill(base: &Path) {
    fs::create_dir_all(base.join("dir/sub")).unwrap();
    for name in [
        "modify",
        "delete",
        "mode",
        "to-dir",
        "dir/moved",
        "dir/sub/x",
    ] {
        fs::write(base.join(name), format!("old {name}")).unwrap();
    }
    std::os::unix::fs::symlink("old-target", base.join("link")).unwrap();
    run(
        base,
        "python3 -c \"import os; os.setxattr('modify', 'user.k', b'old')\"; find . -exec touch -h -d 2020-01-01 {} +",
    );
}

fn change(inside: &Path) {
    fs::write(inside.join("modify"), "new").unwrap();
    fs::remove_file(inside.join("delete")).unwrap();
    fs::set_permissions(inside.join("mode"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(inside.join("to-dir")).unwrap();
    fs::create_dir(inside.join("to-dir")).unwrap();
    fs::write(inside.join("to-dir/child"), "child").unwrap();
    fs::rename(inside.join("dir"), inside.join("renamed")).unwrap();
    fs::remove_file(inside.join("link")).unwrap();
    std::os::unix::fs::symlink("new-target", inside.join("link")).unwrap();
    run(
        inside,
        "mkfifo pipe; python3 -c \"import os; os.setxattr('modify', 'user.k', b'new'); os.setxattr('mode', 'user.n', b'new')\"",
    );
}

/// Times of change and attributes, besides what a snapshot has.
fn details(base: &Path) -> String {
    run(
        base,
        "stat -c '%n %Y' modify delete mode to-dir dir/moved dir/sub/x link dir/sub; \
         python3 -c \"import os; print([(f, os.listxattr(f), os.getxattr(f, 'user.k') if os.listxattr(f) else '') for f in ('modify', 'mode')])\"",
    )
}

fn kept(undone: &[Undone]) -> Vec<String> {
    undone
        .iter()
        .filter_map(|u| u.kept.as_ref().map(|why| format!("{}: {why}", u.path)))
        .collect()
}

#[test]
fn everything_comes_back() {
    let disk = Disk::new();
    fill(&disk.base());
    let (old, old_details) = (snapshot(&disk.base()), details(&disk.base()));
    let world = World::on(Arc::clone(&disk), slow());
    change(&world.inside());
    world.settle();
    // And once more, over what was committed.
    fs::write(world.inside().join("modify"), "newer").unwrap();
    fs::write(world.inside().join("renamed/moved"), "moved and changed").unwrap();
    world.settle();
    assert_ne!(snapshot(&disk.base()), old);
    drop(world);
    let world = World::on(Arc::clone(&disk), slow());
    let list = world.trees.undo(&[], false);
    assert!(list.len() > 8 && kept(&list).is_empty(), "{list:?}");
    assert_ne!(snapshot(&disk.base()), old, "listing changes nothing");
    let undone = world.trees.undo(&[], true);
    assert_eq!(kept(&undone), Vec::<String>::new());
    assert_eq!(snapshot(&disk.base()), old);
    assert_eq!(details(&disk.base()), old_details);
    assert_eq!(
        world.trees.undo(&[], true).len(),
        0,
        "nothing is left to undo"
    );
    drop(world);
    // The next to open it finds nothing to do.
    let world = World::on(Arc::clone(&disk), slow());
    world.settle();
    assert_eq!(snapshot(&disk.base()), old);
    assert_eq!(snapshot(&world.inside()), old);
    assert_eq!(world.seen(), Vec::<String>::new());
}

#[test]
fn one_path_or_directory_at_a_time() {
    let disk = Disk::new();
    fill(&disk.base());
    let world = World::on(Arc::clone(&disk), slow());
    change(&world.inside());
    world.settle();
    let at = |path: &str| vec![("workspace".to_string(), path.as_bytes().to_vec())];
    assert_eq!(world.trees.undo(&at("modify"), true).len(), 1);
    assert_eq!(
        fs::read_to_string(disk.base().join("modify")).unwrap(),
        "old modify"
    );
    assert!(!disk.base().join("delete").exists());
    world.trees.undo(&at("dir"), true);
    assert_eq!(
        fs::read_to_string(disk.base().join("dir/sub/x")).unwrap(),
        "old dir/sub/x"
    );
    assert!(disk.base().join("renamed/sub/x").exists());
}

#[test]
fn what_changed_since_stays() {
    let disk = Disk::new();
    fill(&disk.base());
    let world = World::on(Arc::clone(&disk), slow());
    change(&world.inside());
    world.settle();
    fs::write(disk.base().join("modify"), "the owner's").unwrap();
    fs::write(disk.base().join("delete"), "made again").unwrap();
    fs::write(disk.base().join("to-dir/owners"), "mine").unwrap();
    fs::remove_file(disk.base().join("link")).unwrap();
    let undone = world.trees.undo(&[], true);
    let mut kept = kept(&undone);
    kept.sort();
    assert_eq!(
        kept,
        [
            "delete: something else lies there now",
            "link: it was removed since",
            "modify: it was changed since",
            "to-dir: conflict: `to-dir` holds files that the agent did not see; the host's version stays as it is",
        ]
    );
    let read = |name: &str| fs::read_to_string(disk.base().join(name)).unwrap();
    assert_eq!(
        [
            read("modify"),
            read("delete"),
            read("to-dir/owners"),
            read("dir/moved")
        ],
        ["the owner's", "made again", "mine", "old dir/moved"]
    );
    let leftovers: Vec<_> = snapshot(&disk.base())
        .into_iter()
        .filter(|l| l.contains(".kairos-"))
        .collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
}

#[test]
fn it_stops_at_what_the_owner_wrote_in_between() {
    let world = World::new(|base| fs::write(base.join("f"), "first").unwrap());
    fs::write(world.inside().join("f"), "agent 1").unwrap();
    world.settle();
    fs::write(world.base().join("f"), "the owner's, longer").unwrap();
    // A close may reach us later than what comes after it.
    world.wait_until("the owner's version in the view", || {
        fs::read_to_string(world.inside().join("f")).unwrap() == "the owner's, longer"
    });
    fs::write(world.inside().join("f"), "agent 2").unwrap();
    world.settle();
    assert_eq!(
        fs::read_to_string(world.base().join("f")).unwrap(),
        "agent 2"
    );
    assert_eq!(kept(&world.trees.undo(&[], true)), Vec::<String>::new());
    assert_eq!(
        fs::read_to_string(world.base().join("f")).unwrap(),
        "the owner's, longer"
    );
}

#[test]
fn an_undo_that_is_cut_off_is_finished() {
    for stop in 0.. {
        let disk = Disk::new();
        fill(&disk.base());
        let old = snapshot(&disk.base());
        let world = World::on(Arc::clone(&disk), slow());
        change(&world.inside());
        world.settle();
        drop(world);
        let count = Arc::new(AtomicUsize::new(0));
        let options = stopped_after(stop, Arc::clone(&count), slow());
        let world = World::on(Arc::clone(&disk), options);
        world.trees.undo(&[], true);
        drop(world);
        let world = World::on(Arc::clone(&disk), slow());
        world.trees.undo(&[], true);
        assert_eq!(snapshot(&disk.base()), old, "stopped at {stop}");
        if count.load(Ordering::SeqCst) <= stop {
            assert!(stop > 20, "only {stop} steps");
            return;
        }
    }
}

#[test]
fn hard_links_stay_one_file_on_the_host() {
    let world = World::new(|base| {
        fs::write(base.join("a"), "shared").unwrap();
        fs::hard_link(base.join("a"), base.join("b")).unwrap();
    });
    let ino = |name: &str| fs::metadata(world.base().join(name)).unwrap().ino();
    let inside = world.inside();
    fs::write(inside.join("a"), "changed").unwrap();
    fs::hard_link(inside.join("b"), inside.join("c")).unwrap();
    fs::write(inside.join("new"), "n").unwrap();
    fs::create_dir(inside.join("d")).unwrap();
    fs::hard_link(inside.join("new"), inside.join("d/new2")).unwrap();
    world.settle();
    assert_eq!([ino("a"), ino("b")], [ino("c"); 2]);
    assert_eq!(ino("new"), ino("d/new2"));
    fs::set_permissions(inside.join("b"), fs::Permissions::from_mode(0o600)).unwrap();
    world.settle();
    assert_eq!([ino("a"), ino("b")], [ino("c"); 2]);
    let mode = |name: &str| fs::metadata(world.base().join(name)).unwrap().mode() & 0o777;
    assert_eq!([mode("a"), mode("b"), mode("c")], [0o600; 3]);
    assert_eq!(
        fs::metadata(inside.join("a")).unwrap().ino(),
        fs::metadata(inside.join("c")).unwrap().ino()
    );
}

#[test]
fn a_held_name_does_not_change_through_another() {
    let world = World::new(|base| {
        fs::write(base.join("held"), "echo run").unwrap();
        fs::hard_link(base.join("held"), base.join("plain")).unwrap();
    });
    fs::set_permissions(
        world.inside().join("plain"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    let other = fs::metadata(world.inside().join("held")).unwrap();
    assert_eq!(other.mode() & 0o777, 0o755, "one file inside");
    world.settle();
    assert!(
        world.seen().contains(&"held attributes held".to_string()),
        "the other name is decided by itself"
    );
    let mode = |name: &str| fs::metadata(world.base().join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("plain"), mode("held")), (0o755, 0o644));
}

#[test]
fn times_that_were_set_are_kept() {
    let world = World::new(|base| {
        fs::write(base.join("f"), "f").unwrap();
        fs::create_dir(base.join("d")).unwrap();
    });
    run(
        &world.inside(),
        "touch -d '2001-02-03 04:05:06.789 UTC' f; echo x > d/x; mkdir n; echo y > n/y; touch -d 2002-01-01 d n n/y",
    );
    world.settle();
    let times = |dir: &Path| run(dir, "stat -c '%n %y' f d n n/y");
    assert_eq!(times(&world.base()), times(&world.inside()));
    assert!(times(&world.base()).contains("2001-02-03"));
    assert_eq!(snapshot(&world.base()), snapshot(&world.inside()));
    world.seen();
    world.settle();
    assert_eq!(world.seen(), Vec::<String>::new());
}

/// Ext4 has no limit for a path, only what is given to the kernel at once has.
#[test]
fn a_path_of_any_length_is_committed_and_taken_back() {
    let disk = Disk::new();
    fs::write(disk.base().join("keep"), "precious").unwrap();
    let world = World::on(Arc::clone(&disk), slow());
    let down = "import os\nfor i in range(45):\n n = 'd%02d' % i + 'd' * 97\n";
    fs::write(
        disk.upper().join("make.py"),
        format!("{down} os.mkdir(n)\n os.chdir(n)\nopen('bottom', 'w').write('deep')\n"),
    )
    .unwrap();
    fs::write(
        disk.upper().join("look.py"),
        format!("{down} os.chdir(n)\nprint(open('bottom').read())\n"),
    )
    .unwrap();
    let script = |name: &str| format!("python3 {}", disk.upper().join(name).display());
    run(&world.inside(), &script("make.py"));
    fs::write(world.inside().join("keep"), "overwritten").unwrap();
    world.settle();
    assert_eq!(world.failed(), Vec::<String>::new());
    assert_eq!(run(&disk.base(), &script("look.py")).trim(), "deep");
    drop(world);
    let world = World::on(Arc::clone(&disk), slow());
    assert_eq!(run(&world.inside(), &script("look.py")).trim(), "deep");
    assert_eq!(kept(&world.trees.undo(&[], true)), Vec::<String>::new());
    assert_eq!(
        snapshot(&disk.base()).len(),
        1,
        "{:?}",
        fs::read_dir(disk.base())
    );
    assert_eq!(
        fs::read_to_string(disk.base().join("keep")).unwrap(),
        "precious"
    );
}

/// Of a directory that could not be put in place and is then taken, what is in it still waits when
/// that fails again.
#[test]
fn what_failed_stays_listed_when_its_directory_is_taken() {
    let fails = Arc::new(AtomicUsize::new(1));
    let asked = Arc::clone(&fails);
    let steps = move |step: &'static str| match asked.load(Ordering::SeqCst) {
        1 => Err(CommitError::Failed {
            what: "create",
            path: step.to_string(),
            errno: "Permission denied".to_string(),
        }),
        _ => Ok(()),
    };
    let options = Options {
        steps: Some(Arc::new(steps)),
        ..slow()
    };
    let world = World::on(Disk::new(), options);
    fs::create_dir_all(world.inside().join("m/p")).unwrap();
    fs::write(world.inside().join("m/p/f"), "precious").unwrap();
    world.settle();
    let listed = || -> Vec<String> {
        let all = world.trees.conflicts();
        all.into_iter().map(|one| one.path).collect()
    };
    assert_eq!(listed(), ["m", "m/p", "m/p/f"]);
    let found = world.trees.conflicts();
    fails.store(0, Ordering::SeqCst);
    world.trees.resolve(&found[0], Choice::Agent).unwrap();
    world.trees.resolve(&found[1], Choice::Agent).unwrap();
    fails.store(1, Ordering::SeqCst);
    let why = world.trees.resolve(&found[2], Choice::Agent).unwrap_err();
    assert!(why.contains("Permission denied"), "{why}");
    assert_eq!(listed(), ["m/p/f"]);
    assert_eq!(
        fs::read_to_string(world.inside().join("m/p/f")).unwrap(),
        "precious"
    );
    fails.store(0, Ordering::SeqCst);
    let found = world.trees.conflicts();
    world.trees.resolve(&found[0], Choice::Agent).unwrap();
    assert_eq!(listed(), Vec::<String>::new());
    assert_eq!(
        fs::read_to_string(world.base().join("m/p/f")).unwrap(),
        "precious"
    );
}

/// What its owner may not read is told by its time stamps, and what was kept of such a file is read
/// all the same.
#[test]
fn what_may_not_be_read_comes_back() {
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    let disk = Disk::new();
    for name in ["closed", "removed", "touched"] {
        fs::write(disk.base().join(name), name).unwrap();
    }
    mode(&disk.base().join("removed"), 0o000).unwrap();
    let world = World::on(Arc::clone(&disk), slow());
    mode(&world.inside().join("closed"), 0o000).unwrap();
    mode(&world.inside().join("touched"), 0o000).unwrap();
    fs::remove_file(world.inside().join("removed")).unwrap();
    fs::write(world.inside().join("new"), "new").unwrap();
    mode(&world.inside().join("new"), 0o000).unwrap();
    world.settle();
    drop(world);
    run(&disk.base(), "touch touched");
    let world = World::on(Arc::clone(&disk), slow());
    // As somebody whom modes bind, who runs on a thread of their own.
    let undone = std::thread::scope(|scope| {
        let bound = scope.spawn(|| {
            let all = rustix::thread::capabilities(None).unwrap();
            let none = rustix::thread::CapabilitySets {
                effective: rustix::thread::CapabilitySet::empty(),
                ..all
            };
            rustix::thread::set_capabilities(None, none).unwrap();
            assert!(fs::read(disk.base().join("closed")).is_err());
            world.trees.undo(&[], true)
        });
        bound.join().unwrap()
    });
    assert_eq!(
        kept(&undone),
        ["touched: it may not be read, so it is not known whether it was changed since"]
    );
    assert!(!disk.base().join("new").exists());
    let is = |name: &str| {
        let meta = fs::metadata(disk.base().join(name)).unwrap();
        meta.mode() & 0o777
    };
    assert_eq!([is("closed"), is("removed"), is("touched")], [0o644, 0, 0]);
    mode(&disk.base().join("removed"), 0o644).unwrap();
    for name in ["closed", "removed"] {
        assert_eq!(fs::read_to_string(disk.base().join(name)).unwrap(), name);
    }
}

/// After an undo a repository is whole, whatever its owner did with it meanwhile.
#[test]
fn objects_stay_where_something_may_refer_to_them() {
    let git = "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=e \
               GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=e;";
    for (meanwhile, stay) in [
        ("true", false),
        ("sleep 1; touch d1/f; git status -s", true),
        ("git branch mine", true),
        (
            "git checkout -q -b mine; echo o > o; git add o; git commit -qm o",
            true,
        ),
    ] {
        let disk = Disk::new();
        let host = |command: &str| run(&disk.base(), &format!("{git} {command}"));
        host(
            "git init -q; mkdir d1 d2; echo 1 > d1/f; echo 2 > d2/f; git add -A; git commit -qm 1",
        );
        let world = World::on(Arc::clone(&disk), slow());
        run(
            &world.inside(),
            &format!("{git} echo x > n; git add n; git commit -qm 2"),
        );
        world.settle();
        drop(world);
        let tip = host("git rev-parse HEAD");
        // A file system tells times apart by a few milliseconds.
        host(&format!("sleep 0.1; {meanwhile}"));
        let world = World::on(Arc::clone(&disk), slow());
        let why = "which is left as it is, may refer to it";
        let listed = kept(&world.trees.undo(&[], false));
        assert_eq!(
            listed.iter().any(|one| one.contains(why)),
            stay,
            "{listed:?}"
        );
        let kept = kept(&world.trees.undo(&[], true));
        assert_eq!(kept.iter().any(|one| one.contains(why)), stay, "{kept:?}");
        assert_eq!(kept.is_empty(), !stay, "{meanwhile}: {kept:?}");
        let whole = host("git fsck 2>&1 || echo broken");
        assert!(!whole.contains("broken"), "{meanwhile}: {whole}");
        let there = host(&format!("git cat-file -e {} 2>&1 || echo gone", tip.trim()));
        assert_eq!(!there.contains("gone"), stay, "{meanwhile}: {there}");
    }
}

fn lines(change: &[(usize, &str)]) -> String {
    let mut lines: Vec<String> = (0..20).map(|n| format!("line {n}")).collect();
    for (n, text) in change {
        lines[*n] = (*text).to_string();
    }
    lines.join("\n") + "\n"
}

#[test]
fn both_changes_are_put_together_as_an_offer() {
    let world = World::new(|base| {
        for name in ["clean", "marked", "saved", "gone", "binary"] {
            fs::write(base.join(name), lines(&[])).unwrap();
        }
    });
    let (inside, base) = (world.inside(), world.base());
    for name in ["clean", "marked", "gone", "binary"] {
        fs::write(inside.join(name), lines(&[(2, "the agent's")])).unwrap();
    }
    // As an editor saves.
    fs::write(inside.join("tmp"), lines(&[(2, "the agent's")])).unwrap();
    fs::rename(inside.join("tmp"), inside.join("saved")).unwrap();
    fs::write(inside.join("created"), "by the agent").unwrap();
    fs::write(base.join("clean"), lines(&[(17, "the owner's")])).unwrap();
    fs::write(base.join("saved"), lines(&[(17, "the owner's")])).unwrap();
    fs::write(base.join("marked"), lines(&[(2, "the owner's")])).unwrap();
    fs::write(base.join("created"), "by the owner").unwrap();
    fs::write(base.join("binary"), b"\0\x01").unwrap();
    fs::remove_file(base.join("gone")).unwrap();
    world.settle();
    let conflicts = world.trees.conflicts();
    let told: Vec<String> = conflicts
        .iter()
        .map(|c| {
            let merge = match &c.merge {
                Merge::Clean { .. } => "clean".to_string(),
                Merge::Marked { text } => {
                    assert!(String::from_utf8_lossy(text).contains("<<<<<<<"));
                    "marked".to_string()
                }
                Merge::No { why } => (*why).to_string(),
            };
            format!("{} {} {}: {merge}", c.path, c.owner, c.agent)
        })
        .collect();
    let mut sorted = told.clone();
    sorted.sort();
    assert_eq!(
        sorted,
        [
            "binary changed changed: it is no text, or a long one",
            "clean changed changed: clean",
            "created created created: one side has no version of it",
            "gone removed changed: one side has no version of it",
            "marked changed changed: marked",
            "saved changed changed: clean",
        ]
    );
    let of = |path: &str| conflicts.iter().find(|c| c.path == path).unwrap();
    let both = lines(&[(2, "the agent's"), (17, "the owner's")]);
    for path in ["clean", "saved"] {
        world.trees.resolve(of(path), Choice::Merged).unwrap();
        assert_eq!(fs::read_to_string(base.join(path)).unwrap(), both);
        assert_eq!(fs::read_to_string(inside.join(path)).unwrap(), both);
    }
    assert!(world.trees.resolve(of("marked"), Choice::Merged).is_err());
    world.trees.resolve(of("marked"), Choice::Agent).unwrap();
    assert_eq!(
        fs::read_to_string(base.join("marked")).unwrap(),
        lines(&[(2, "the agent's")])
    );
    world.trees.resolve(of("created"), Choice::Owner).unwrap();
    assert_eq!(
        fs::read_to_string(inside.join("created")).unwrap(),
        "by the owner"
    );
    world.trees.resolve(of("gone"), Choice::Agent).unwrap();
    assert!(base.join("gone").exists());
    world.trees.resolve(of("binary"), Choice::Owner).unwrap();
    assert_eq!(world.trees.conflicts().len(), 0);
    world.settle();
    assert_eq!(snapshot(&base), snapshot(&inside));
    // What the choice replaced is kept, too.
    world
        .trees
        .undo(&[("workspace".to_string(), b"marked".to_vec())], true);
    assert_eq!(
        fs::read_to_string(base.join("marked")).unwrap(),
        lines(&[(2, "the owner's")])
    );
}

#[test]
fn the_agents_version_can_be_taken_where_the_owner_removed_the_directory() {
    let world = World::new(|base| {
        fs::create_dir_all(base.join("a/b")).unwrap();
        fs::write(base.join("a/b/f"), "first").unwrap();
        fs::write(base.join("a/g"), "first").unwrap();
    });
    fs::write(world.inside().join("a/b/f"), "the agent's").unwrap();
    fs::remove_dir_all(world.base().join("a")).unwrap();
    world.settle();
    assert!(!world.base().join("a").exists());
    let conflicts = world.trees.conflicts();
    let [conflict] = conflicts.as_slice() else {
        panic!("{conflicts:?}")
    };
    assert_eq!(
        (conflict.path.as_str(), conflict.owner),
        ("a/b/f", "removed")
    );
    world.trees.resolve(conflict, Choice::Agent).unwrap();
    assert_eq!(
        snapshot(&world.base()),
        ["a 0755 dir", "a/b 0755 dir", "a/b/f 0644 \"the agent's\""]
    );
    assert_eq!(world.trees.conflicts().len(), 0);
    assert_eq!(kept(&world.trees.undo(&[], true)), Vec::<String>::new());
    assert_eq!(snapshot(&world.base()), Vec::<String>::new());
}

#[test]
fn space_is_told_and_given_back() {
    let disk = Disk::new();
    fill(&disk.base());
    let world = World::on(Arc::clone(&disk), slow());
    fs::write(disk.base().join("big"), vec![1; 1 << 20]).unwrap();
    fs::write(world.inside().join("big"), "small").unwrap();
    fs::write(world.inside().join("held1"), "waits").unwrap();
    world.settle();
    let kept = files::kept(&disk.upper());
    assert!(kept.undo >= 1 << 20 && kept.staged > 0, "{kept:?}");
    fs::write(disk.upper().join("data/77777"), "left by a killed process").unwrap();
    assert_eq!(world.trees.sweep(), 24);
    assert_eq!(world.trees.sweep(), 0);
    files::forget_undo(&disk.upper()).unwrap();
    assert_eq!(files::kept(&disk.upper()).undo, 0);
    let undone = world.trees.undo(&[], true);
    assert_eq!(
        undone[0].kept.as_deref(),
        Some("what was replaced is no longer kept (`kairos gc` removes it)")
    );
    assert_eq!(
        fs::read_to_string(disk.base().join("big")).unwrap(),
        "small"
    );
    assert_eq!(
        fs::read_to_string(world.inside().join("held1")).unwrap(),
        "waits"
    );
}

#[test]
fn attributes_alone_come_back() {
    // What `setfacl -m u:65534:RIGHTS,m::r list` does.
    let list = |rights: u8| {
        format!(
            "python3 -c \"import os, struct; os.setxattr('list', 'system.posix_acl_access', struct.pack('<I', 2) + \
             b''.join(struct.pack('<HHI', *one) for one in [(1, 6, 2**32-1), (2, {rights}, 65534), (4, 4, 2**32-1), (16, 4, 2**32-1), (32, 4, 2**32-1)]))\""
        )
    };
    let world = World::new(|base| {
        for name in ["attribute", "time", "list", "gone", "twice"] {
            fs::write(base.join(name), name).unwrap();
        }
        run(
            base,
            &format!(
                "touch -d 2020-01-01 *; python3 -c \"import os; os.setxattr('gone', 'user.k', b'old'); os.setxattr('twice', 'user.k', b'old')\"; {}",
                list(4)
            ),
        );
    });
    let state = |dir: &Path| {
        run(
            dir,
            "stat -c '%n %a %Y' *; python3 -c \"import os; print([(f, [(k, os.getxattr(f, k)) for k in os.listxattr(f)]) for f in sorted(os.listdir())])\"",
        )
    };
    let before = state(&world.base());
    run(
        &world.inside(),
        &format!(
            "python3 -c \"import os; os.setxattr('attribute', 'user.k', b'new'); os.removexattr('gone', 'user.k'); os.setxattr('twice', 'user.k', b'new')\"; \
             touch -d 2021-01-01 time; {}",
            list(0)
        ),
    );
    world.settle();
    fs::write(world.inside().join("twice"), "more").unwrap();
    world.settle();
    assert_ne!(state(&world.base()), before);
    let undone = world.trees.undo(&[], true);
    let what: Vec<(&str, &str, Option<&str>)> = undone
        .iter()
        .map(|one| (one.path.as_str(), one.what, one.kept.as_deref()))
        .collect();
    assert_eq!(undone.len(), 5, "{what:?}");
    assert!(what.iter().all(|one| one.2.is_none()), "{what:?}");
    assert_eq!(state(&world.base()), before);
    assert!(world.trees.undo(&[], false).is_empty(), "it is back");
    assert!(world.trees.has_committed("workspace", b"time"));
    assert!(!world.trees.has_committed("workspace", b"tim"));
}

/// Names of one file are names of one file again, also with one that the agent left alone and one in
/// another directory.
#[test]
fn names_of_one_file_are_one_file_again() {
    let disk = Disk::new();
    let base = disk.base();
    fs::create_dir(base.join("dir")).unwrap();
    for name in ["changed", "moved", "removed"] {
        fs::write(base.join(name), format!("old {name}")).unwrap();
        fs::hard_link(base.join(name), base.join("dir").join(name)).unwrap();
    }
    std::os::unix::fs::symlink("target", base.join("link")).unwrap();
    fs::hard_link(base.join("link"), base.join("dir/link")).unwrap();
    let same = |one: &str| {
        let ino = |path: &Path| path.symlink_metadata().unwrap().ino();
        ino(&base.join(one)) == ino(&base.join("dir").join(one))
    };
    let old = snapshot(&base);
    let world = World::on(Arc::clone(&disk), slow());
    let inside = world.inside();
    let _ = snapshot(&inside);
    fs::write(inside.join("changed"), "new").unwrap();
    fs::rename(inside.join("moved"), inside.join("elsewhere")).unwrap();
    fs::remove_file(inside.join("removed")).unwrap();
    fs::remove_file(inside.join("link")).unwrap();
    world.settle();
    assert_eq!(world.failed(), Vec::<String>::new());
    assert_eq!(kept(&world.trees.undo(&[], true)), Vec::<String>::new());
    assert_eq!(snapshot(&base), old);
    for name in ["changed", "moved", "removed", "link"] {
        assert!(same(name), "{name}");
    }
}
