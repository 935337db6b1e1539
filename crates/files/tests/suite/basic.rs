//! The life of changes: staged, settled, released, held, refused.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::world::{self, World, run, snapshot};
use kernel::Verdict;

fn filled(base: &std::path::Path) {
    fs::create_dir_all(base.join("src/deep")).unwrap();
    fs::write(base.join("a.txt"), "alpha").unwrap();
    fs::write(base.join("src/main.rs"), "fn main() {}\n").unwrap();
    fs::write(base.join("src/deep/x"), "x").unwrap();
    fs::write(base.join(".env"), "KEY=sk-very-secret-value\n").unwrap();
    std::os::unix::fs::symlink("a.txt", base.join("link")).unwrap();
    run(base, "find . -exec touch -h -d '2020-01-01' {} +");
}

#[test]
fn the_base_is_seen_and_not_touched() {
    let world = World::new(filled);
    // Named, not found: `find` would move the directories' own times of access. Reading a link
    // moves the link's, which cannot be helped.
    let times = |dir: &std::path::Path| {
        run(
            dir,
            "stat -c '%n %Y %Z %X %a %i' . src src/deep src/deep/x src/main.rs a.txt .env",
        )
    };
    let before = times(&world.base());
    let inside = snapshot(&world.inside());
    assert_eq!(
        fs::read_to_string(world.inside().join("link")).unwrap(),
        "alpha"
    );
    world.settle();
    assert_eq!(times(&world.base()), before);
    assert_eq!(world.seen(), Vec::<String>::new());
    assert_eq!(inside, snapshot(&world.base()));
}

#[test]
fn plain_changes_are_released_and_nothing_flickers() {
    let world = World::new(filled);
    let inside = world.inside();
    fs::write(inside.join("new.txt"), "fresh").unwrap();
    fs::write(inside.join("a.txt"), "beta").unwrap();
    fs::create_dir(inside.join("d")).unwrap();
    fs::write(inside.join("d/y"), "y").unwrap();
    fs::remove_file(inside.join("src/deep/x")).unwrap();
    fs::remove_dir(inside.join("src/deep")).unwrap();
    fs::set_permissions(
        inside.join("src/main.rs"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    std::os::unix::fs::symlink("d/y", inside.join("l2")).unwrap();
    assert_eq!(
        fs::read_to_string(world.base().join("a.txt")).unwrap(),
        "alpha",
        "staged only"
    );
    world.settle();
    assert_eq!(snapshot(&world.base()), snapshot(&inside));
    assert_eq!(
        fs::read_to_string(world.base().join("a.txt")).unwrap(),
        "beta"
    );
    assert!(!world.base().join("src/deep").exists());
    let mut seen = world.seen();
    seen.sort();
    assert_eq!(
        seen,
        [
            "released attributes src/main.rs",
            "released create d",
            "released create d/y",
            "released create l2",
            "released create new.txt",
            "released delete src/deep",
            "released delete src/deep/x",
            "released modify a.txt",
        ]
    );
    let leftovers: Vec<_> = snapshot(&world.base())
        .into_iter()
        .filter(|l| l.contains(".kairos-"))
        .collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
    // And again over what was committed.
    fs::write(inside.join("a.txt"), "gamma").unwrap();
    world.settle();
    assert_eq!(
        fs::read_to_string(world.base().join("a.txt")).unwrap(),
        "gamma"
    );
    assert_eq!(world.seen(), ["released modify a.txt"]);
    world.settle();
    assert_eq!(
        world.seen(),
        Vec::<String>::new(),
        "a settled change is not decided twice"
    );
}

#[test]
fn changes_settle_by_themselves_when_quiet() {
    let world = World::new(filled);
    fs::write(world.inside().join("new.txt"), "fresh").unwrap();
    world.wait_until("commit", || world.base().join("new.txt").exists());
    assert_eq!(
        fs::read_to_string(world.base().join("new.txt")).unwrap(),
        "fresh"
    );
}

#[test]
fn what_vanishes_before_it_settles_is_no_effect() {
    let world = World::new(filled);
    let inside = world.inside();
    fs::write(inside.join("tmp"), "t").unwrap();
    fs::remove_file(inside.join("tmp")).unwrap();
    fs::write(inside.join("a.txt"), "other").unwrap();
    fs::write(inside.join("a.txt"), "alpha").unwrap();
    fs::rename(inside.join("src"), inside.join("src2")).unwrap();
    fs::rename(inside.join("src2"), inside.join("src")).unwrap();
    world.settle();
    assert_eq!(world.seen(), Vec::<String>::new());
}

#[test]
fn a_hold_is_seen_inside_only_and_committed_on_approval() {
    let world = World::new(filled);
    let inside = world.inside();
    fs::write(inside.join("held1"), "run me").unwrap();
    world.settle();
    assert_eq!(world.seen(), ["held create held1"]);
    assert_eq!(fs::read_to_string(inside.join("held1")).unwrap(), "run me");
    assert!(!world.base().join("held1").exists());
    // Another version voids the hold.
    fs::write(inside.join("held1"), "run me twice").unwrap();
    world.settle();
    assert_eq!(world.seen(), ["withdrawn", "held create held1"]);
    let held = world.session.held();
    assert_eq!(held.len(), 1);
    world
        .session
        .verdict(
            held[0].hold,
            held[0].manifest,
            Verdict::Release,
            "test",
            "ok",
        )
        .unwrap();
    assert_eq!(
        fs::read_to_string(world.base().join("held1")).unwrap(),
        "run me twice"
    );
    assert_eq!(world.seen(), ["committed held1 Ok(\"12 bytes written\")"]);
    world.settle();
    assert_eq!(world.seen(), Vec::<String>::new());
    // A hold that is taken back.
    fs::write(inside.join("held2"), "x").unwrap();
    world.settle();
    fs::remove_file(inside.join("held2")).unwrap();
    world.settle();
    assert_eq!(world.seen(), ["held create held2", "withdrawn"]);
}

#[test]
fn a_refused_hold_is_undone_in_the_view() {
    let world = World::new(|base| {
        filled(base);
        fs::write(base.join("held-there"), "old").unwrap();
    });
    let inside = world.inside();
    fs::write(inside.join("held-new"), "n").unwrap();
    fs::write(inside.join("held-there"), "changed").unwrap();
    fs::create_dir(inside.join("held-dir")).unwrap();
    fs::write(inside.join("held-dir/child"), "c").unwrap();
    world.settle();
    let open = fs::File::open(inside.join("held-there")).unwrap();
    for held in world.session.held() {
        let _ = world
            .session
            .verdict(held.hold, held.manifest, Verdict::Refuse, "test", "no");
    }
    assert!(!inside.join("held-new").exists());
    assert!(!inside.join("held-dir").exists());
    assert_eq!(
        fs::read_to_string(inside.join("held-there")).unwrap(),
        "old"
    );
    assert_eq!(
        std::io::read_to_string(open).unwrap(),
        "changed",
        "open handles go on"
    );
    assert_eq!(world.session.held().len(), 0);
    world.settle();
    assert_eq!(snapshot(&world.base()), snapshot(&inside));
}

#[test]
fn a_refused_change_is_taken_back_and_told_early_when_asked() {
    let world = World::new(|base| {
        filled(base);
        fs::write(base.join("refused-there"), "old").unwrap();
    });
    let inside = world.inside();
    fs::write(inside.join("refused-new"), "n").unwrap();
    fs::write(inside.join("refused-there"), "changed").unwrap();
    fs::create_dir(inside.join("d")).unwrap();
    fs::rename(inside.join("refused-there"), inside.join("moved")).unwrap();
    world.settle();
    assert!(!inside.join("refused-new").exists());
    assert_eq!(
        fs::read_to_string(inside.join("refused-there")).unwrap(),
        "old"
    );
    assert_eq!(
        fs::read_to_string(world.base().join("refused-there")).unwrap(),
        "old"
    );
    let session = world.session.clone();
    world
        .trees
        .set_precheck(Box::new(move |effect| session.precheck(effect)));
    let error = fs::write(inside.join("refused-new"), "n").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EACCES));
    let error = fs::write(inside.join("refused-there"), "n").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EACCES));
    assert!(fs::remove_file(inside.join("refused-there")).is_err());
    assert_eq!(
        fs::read_to_string(inside.join("refused-there")).unwrap(),
        "old"
    );
}

#[test]
fn f1_directories_of_the_base_are_renamed() {
    let world = World::new(filled);
    let inside = world.inside();
    let ino = fs::metadata(inside.join("src/main.rs")).unwrap().ino();
    fs::rename(inside.join("src"), inside.join("lib")).unwrap();
    assert_eq!(fs::metadata(inside.join("lib/main.rs")).unwrap().ino(), ino);
    assert_eq!(fs::read_to_string(inside.join("lib/deep/x")).unwrap(), "x");
    assert!(!inside.join("src").exists());
    world.settle();
    assert_eq!(snapshot(&world.base()), snapshot(&inside));
    assert!(!world.base().join("src").exists());
    assert_eq!(fs::metadata(inside.join("lib/main.rs")).unwrap().ino(), ino);
    // Kinds that replace each other.
    fs::remove_file(inside.join("a.txt")).unwrap();
    fs::create_dir(inside.join("a.txt")).unwrap();
    fs::write(inside.join("a.txt/in"), "in").unwrap();
    fs::remove_dir_all(inside.join("lib/deep")).unwrap();
    std::os::unix::fs::symlink("main.rs", inside.join("lib/deep")).unwrap();
    run(&inside, "mkfifo pipe");
    world.settle();
    assert_eq!(snapshot(&world.base()), snapshot(&inside));
    fs::remove_dir_all(inside.join("a.txt")).unwrap();
    fs::write(inside.join("a.txt"), "a file again").unwrap();
    world.settle();
    assert_eq!(snapshot(&world.base()), snapshot(&inside));
}

#[test]
fn f2_the_owners_change_is_never_overwritten() {
    let world = World::new(filled);
    let (inside, base) = (world.inside(), world.base());
    fs::write(inside.join("a.txt"), "the agent's").unwrap();
    fs::write(base.join("a.txt"), "the owner's").unwrap();
    fs::write(inside.join("both"), "the agent's").unwrap();
    fs::write(base.join("both"), "the owner's").unwrap();
    fs::remove_file(inside.join("src/deep/x")).unwrap();
    fs::write(base.join("src/deep/x"), "the owner's x").unwrap();
    // Read, then changed outside, then written inside: the agent wrote over what it had read.
    assert_eq!(
        fs::read_to_string(inside.join("src/main.rs")).unwrap(),
        "fn main() {}\n"
    );
    fs::write(base.join("src/main.rs"), "owner edit").unwrap();
    fs::write(inside.join("src/main.rs"), "agent edit").unwrap();
    world.settle();
    assert_eq!(
        fs::read_to_string(base.join("a.txt")).unwrap(),
        "the owner's"
    );
    assert_eq!(
        fs::read_to_string(base.join("both")).unwrap(),
        "the owner's"
    );
    assert_eq!(
        fs::read_to_string(base.join("src/deep/x")).unwrap(),
        "the owner's x"
    );
    assert_eq!(
        fs::read_to_string(base.join("src/main.rs")).unwrap(),
        "owner edit"
    );
    assert_eq!(
        fs::read_to_string(inside.join("a.txt")).unwrap(),
        "the agent's"
    );
    let kept = world.disk.upper().join("conflicts/a.txt");
    assert_eq!(fs::read_to_string(kept).unwrap(), "the agent's");
    let log = fs::read_to_string(world.session.dir().log()).unwrap();
    assert!(
        log.contains("conflict: `a.txt` was changed on the host meanwhile"),
        "{log}"
    );
    let leftovers: Vec<_> = snapshot(&base)
        .into_iter()
        .filter(|l| l.contains(".kairos-"))
        .collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
}

#[test]
fn f11_privileged_nodes_are_refused() {
    let world = World::new(filled);
    let inside = world.inside();
    for command in [
        "mknod n c 1 3",
        "mknod n b 7 0",
        "chmod u+s a.txt",
        "chmod 2755 a.txt",
    ] {
        let out = std::process::Command::new("sh")
            .arg("-c")
            .arg(command)
            .current_dir(&inside)
            .output()
            .unwrap();
        assert!(!out.status.success(), "{command}");
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(text.contains("not permitted"), "{command}: {text}");
    }
}

#[test]
fn what_is_read_is_reported_once() {
    for reads in [files::Reads::Open, files::Reads::First] {
        is_reported_once(reads);
    }
}

fn is_reported_once(reads: files::Reads) {
    let disk = world::Disk::new();
    filled(&disk.base());
    let options = files::Options {
        reads,
        ..Default::default()
    };
    let world = World::on(disk, options);
    for _ in 0..3 {
        let _ = fs::read(world.inside().join("a.txt")).unwrap();
        let _ = fs::read(world.inside().join(".env")).unwrap();
    }
    world.trees.drain();
    let log = fs::read_to_string(world.session.dir().log()).unwrap();
    let incoming = |path: &str| log.matches(&format!("[\"workspace\",\"{path}\"]")).count();
    assert_eq!((incoming("a.txt"), incoming(".env")), (1, 1), "{log}");
    // What the agent wrote itself is no news to it.
    fs::write(world.inside().join("own"), "own words").unwrap();
    world.settle();
    let _ = fs::read(world.inside().join("own")).unwrap();
    world.trees.drain();
    let log = fs::read_to_string(world.session.dir().log()).unwrap();
    assert!(
        !log.lines()
            .any(|l| l.contains("\"incoming\"") && l.contains("\"own\"")),
        "{log}"
    );
}

#[test]
fn what_is_copied_unread_is_reported_when_it_is_read() {
    for reads in [files::Reads::Open, files::Reads::First] {
        let disk = world::Disk::new();
        filled(&disk.base());
        let length = fs::metadata(disk.base().join(".env")).unwrap().len();
        let options = files::Options {
            reads,
            ..Default::default()
        };
        let world = World::on(disk, options);
        let path = world.inside().join(".env");
        let incoming = || {
            world.trees.drain();
            let log = fs::read_to_string(world.session.dir().log()).unwrap();
            log.matches("[\"workspace\",\".env\"]").count()
        };
        // By its path, so that nothing is opened for it; the file is a copy from now on.
        let truncate = format!("python3 -c \"import os; os.truncate('.env', {length})\"");
        world::run(&world.inside(), &truncate);
        assert_eq!(incoming(), 0, "{reads:?}");
        fs::rename(&path, world.inside().join("moved")).unwrap();
        let _ = fs::read(world.inside().join("moved")).unwrap();
        assert_eq!(incoming(), 1, "{reads:?}");
    }
}

#[test]
fn what_its_owner_changes_is_reported_again() {
    let world = World::new(filled);
    let path = world.inside().join("a.txt");
    let mut open = fs::File::open(&path).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "alpha");
    // In place, while the agent has it open; then as editors do it.
    fs::write(world.base().join("a.txt"), "alpha, and then more").unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut open, &mut text).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "alpha, and then more");
    drop(open);
    fs::write(world.base().join("a.new"), "third").unwrap();
    fs::rename(world.base().join("a.new"), world.base().join("a.txt")).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "third");
    world.trees.drain();
    let log = fs::read_to_string(world.session.dir().log()).unwrap();
    for text in ["alpha", "alpha, and then more", "third"] {
        let digest = kernel::Digest::of(text.as_bytes()).hex();
        assert!(log.contains(&digest), "{text} was not reported: {log}");
    }
}

#[test]
fn f11_a_commit_is_not_led_astray_by_a_link() {
    let disk = world::Disk::new();
    filled(&disk.base());
    let outside = disk.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let (base, target) = (disk.base(), outside.clone());
    // While the commit is under way the directory is swapped for a link that leads out.
    let steps = move |step: &'static str| {
        if step == "make" && base.join("src").is_dir() && !base.join("src").is_symlink() {
            fs::rename(base.join("src"), base.join("src-moved")).unwrap();
            std::os::unix::fs::symlink(&target, base.join("src")).unwrap();
        }
        Ok(())
    };
    let options = files::Options {
        steps: Some(std::sync::Arc::new(steps)),
        ..Default::default()
    };
    let world = World::on(disk, options);
    fs::write(world.inside().join("src/one"), "1").unwrap();
    fs::write(world.inside().join("src/two"), "2").unwrap();
    world.settle();
    assert_eq!(snapshot(&outside), Vec::<String>::new());
    let log = fs::read_to_string(world.session.dir().log()).unwrap();
    assert!(log.contains("has no directory to lie in any more"), "{log}");
    assert_eq!(
        fs::read_to_string(world.inside().join("src/two")).unwrap(),
        "2"
    );
}

#[test]
fn the_monitors_own_state_is_out_of_reach() {
    let disk = world::Disk::with_session_inside();
    filled(&disk.base());
    let world = World::on(disk, files::Options::default());
    let (inside, own) = (world.inside(), world.base().join(".state/kairos"));
    assert_eq!(fs::read_dir(inside.join(".state")).unwrap().count(), 0);
    for place in [".state/kairos", ".state/kairos/sessions"] {
        assert!(fs::create_dir(inside.join(place)).is_err(), "{place}");
    }
    assert!(fs::rename(inside.join("src"), inside.join(".state/kairos")).is_err());
    fs::rename(inside.join(".state"), inside.join(".moved")).unwrap();
    fs::write(inside.join(".moved/x"), "x").unwrap();
    world.settle();
    assert!(own.join("sessions/s1/log.jsonl").exists());
    assert_eq!(
        fs::read_to_string(world.base().join(".moved/x")).unwrap(),
        "x"
    );
    assert!(!world.base().join(".moved/kairos").exists());
}

fn with_held_children(base: &std::path::Path) {
    fs::create_dir(base.join("d")).unwrap();
    fs::write(base.join("d/held1"), "1").unwrap();
    fs::write(base.join("d/x"), "x").unwrap();
}

#[test]
fn a_moved_directory_waits_for_what_is_held_in_it() {
    let world = World::new(with_held_children);
    let inside = world.inside();
    fs::rename(inside.join("d"), inside.join("e")).unwrap();
    world.settle();
    let view = snapshot(&inside);
    assert_eq!(
        snapshot(&world.base()),
        [
            "d 0755 dir",
            "d/held1 0644 \"1\"",
            "e 0755 dir",
            "e/x 0644 \"x\""
        ],
        "{:?}",
        world.seen()
    );
    // Whatever happens at its old place, what was approved is what comes.
    fs::create_dir_all(inside.join("d")).unwrap();
    fs::write(inside.join("d/held1"), "something else").unwrap();
    world.settle();
    fs::remove_dir_all(inside.join("d")).unwrap();
    world.settle();
    for _ in 0..3 {
        for held in world.session.held() {
            let _ = world
                .session
                .verdict(held.hold, held.manifest, Verdict::Release, "test", "ok");
        }
        world.settle();
    }
    assert_eq!(snapshot(&world.base()), view, "{:?}", world.seen());
    assert_eq!(snapshot(&inside), view);
}

#[test]
fn a_refused_move_leaves_the_file_where_it_was() {
    let world = World::new(with_held_children);
    let inside = world.inside();
    fs::rename(inside.join("d"), inside.join("e")).unwrap();
    world.settle();
    for held in world.session.held() {
        let _ = world
            .session
            .verdict(held.hold, held.manifest, Verdict::Refuse, "test", "no");
    }
    world.settle();
    let expect = [
        "d 0755 dir",
        "d/held1 0644 \"1\"",
        "e 0755 dir",
        "e/x 0644 \"x\"",
    ];
    assert_eq!(snapshot(&inside), expect, "{:?}", world.seen());
    assert_eq!(snapshot(&world.base()), expect);
    assert_eq!(world.session.held().len(), 0);
}

/// Moves a file and does something to it while the move is put in place.
fn moved_and_meanwhile(
    meanwhile: impl Fn(&std::path::Path) + Send + Sync + 'static,
) -> (World, Vec<String>) {
    edited_moved_and_meanwhile(None, "swap in", meanwhile)
}

/// A world that decides nothing by itself, and in which something happens inside at a step of the first commit.
fn world_with_step(
    disk: std::sync::Arc<world::Disk>,
    at: &'static str,
    meanwhile: impl Fn(&std::path::Path) + Send + Sync + 'static,
) -> World {
    let inside = disk.dir.path().join("mnt/workspace");
    let once = std::sync::Once::new();
    let steps = move |step: &'static str| {
        if step == at {
            once.call_once(|| meanwhile(&inside));
        }
        Ok(())
    };
    let options = files::Options {
        steps: Some(std::sync::Arc::new(steps)),
        quiet: std::time::Duration::from_secs(1000),
        ..Default::default()
    };
    World::on(disk, options)
}

/// The same with other content, and at another step.
fn edited_moved_and_meanwhile(
    edited: Option<&str>,
    at: &'static str,
    meanwhile: impl Fn(&std::path::Path) + Send + Sync + 'static,
) -> (World, Vec<String>) {
    let disk = world::Disk::new();
    fs::write(disk.base().join("from"), "content").unwrap();
    let world = world_with_step(disk, at, meanwhile);
    if let Some(content) = edited {
        fs::write(world.inside().join("from"), content).unwrap();
    }
    fs::rename(world.inside().join("from"), world.inside().join("to")).unwrap();
    world.settle();
    let view = snapshot(&world.inside());
    assert_eq!(snapshot(&world.base()), view, "{:?}", world.seen());
    (world, view)
}

#[test]
fn a_move_goes_well_whatever_happens_meanwhile() {
    let chmod = |inside: &std::path::Path| {
        fs::set_permissions(inside.join("to"), fs::Permissions::from_mode(0o600)).unwrap();
    };
    assert_eq!(moved_and_meanwhile(chmod).1, ["to 0600 \"content\""]);
    let again =
        |inside: &std::path::Path| fs::rename(inside.join("to"), inside.join("on")).unwrap();
    assert_eq!(moved_and_meanwhile(again).1, ["on 0644 \"content\""]);
    let removed = |inside: &std::path::Path| fs::remove_file(inside.join("to")).unwrap();
    assert_eq!(moved_and_meanwhile(removed).1, Vec::<String>::new());
    let replaced = |inside: &std::path::Path| {
        fs::rename(inside.join("to"), inside.join("on")).unwrap();
        fs::write(inside.join("to"), "another").unwrap();
    };
    assert_eq!(
        moved_and_meanwhile(replaced).1,
        ["on 0644 \"content\"", "to 0644 \"another\""]
    );
}

/// The old place goes although the move had to be made anew.
#[test]
fn a_move_of_what_is_written_meanwhile_is_made_anew() {
    let written =
        |inside: &std::path::Path| fs::write(inside.join("to"), "written meanwhile").unwrap();
    let (_, view) = edited_moved_and_meanwhile(Some("edited"), "copy", written);
    assert_eq!(view, ["to 0644 \"written meanwhile\""]);
}

/// The same with the directories around it.
#[test]
fn a_moved_directory_goes_although_something_in_it_is_written_meanwhile() {
    let disk = world::Disk::new();
    fs::create_dir_all(disk.base().join("from/in")).unwrap();
    fs::write(disk.base().join("from/in/file"), "content").unwrap();
    fs::write(disk.base().join("from/other"), "other").unwrap();
    let written = |inside: &std::path::Path| {
        fs::write(inside.join("to/in/file"), "written meanwhile").unwrap();
    };
    let world = world_with_step(disk, "copy", written);
    let inside = world.inside();
    fs::write(inside.join("from/in/file"), "edited").unwrap();
    fs::rename(inside.join("from"), inside.join("to")).unwrap();
    world.settle();
    let view = snapshot(&inside);
    assert_eq!(
        view,
        [
            "to 0755 dir",
            "to/in 0755 dir",
            "to/in/file 0644 \"written meanwhile\"",
            "to/other 0644 \"other\"",
        ]
    );
    let seen = (world.seen(), world.failed());
    assert_eq!(snapshot(&world.base()), view, "{seen:?}");
}

#[test]
fn f9_a_place_that_runs_later_is_held_under_whatever_name() {
    let world = World::new(|base| {
        filled(base);
        fs::create_dir_all(base.join("sub/.git/hooks")).unwrap();
        fs::create_dir_all(base.join("scripts")).unwrap();
        fs::write(base.join("scripts/check.sh"), "#!/bin/sh\n").unwrap();
        std::os::unix::fs::symlink(
            "../../../scripts/check.sh",
            base.join("sub/.git/hooks/pre-push"),
        )
        .unwrap();
    });
    let inside = world.inside();
    // A hook at any depth.
    fs::create_dir_all(inside.join("a/b/.git/hooks")).unwrap();
    fs::write(inside.join("a/b/.git/hooks/post-checkout"), "x").unwrap();
    // Hooks where the configuration says, now and in the base.
    fs::write(
        inside.join("sub/.git/config"),
        "[core]\n\thooksPath = ../my hooks\n",
    )
    .unwrap();
    fs::create_dir(inside.join("my hooks")).unwrap();
    fs::write(inside.join("my hooks/pre-commit"), "x").unwrap();
    // What a hook is a link to.
    fs::write(inside.join("scripts/check.sh"), "#!/bin/sh\nevil\n").unwrap();
    fs::write(inside.join("scripts/other.sh"), "other").unwrap();
    // A link that stands for the directory of hooks; a directory moved there.
    fs::create_dir_all(inside.join("c/.git")).unwrap();
    std::os::unix::fs::symlink("../../src", inside.join("c/.git/hooks")).unwrap();
    fs::create_dir_all(inside.join("d/.git")).unwrap();
    fs::create_dir(inside.join("prepared")).unwrap();
    fs::write(inside.join("prepared/post-merge"), "x").unwrap();
    fs::rename(inside.join("prepared"), inside.join("d/.git/hooks")).unwrap();
    world.settle();
    let mut held: Vec<String> = world
        .seen()
        .into_iter()
        .filter_map(|line| line.strip_prefix("held ").map(str::to_string))
        .collect();
    held.sort();
    assert_eq!(
        held,
        [
            "create a/b/.git/hooks",
            "create a/b/.git/hooks/post-checkout",
            "create c/.git/hooks",
            "create d/.git/hooks",
            "create d/.git/hooks/post-merge",
            "create my hooks",
            "create my hooks/pre-commit",
            "modify scripts/check.sh",
        ]
    );
    assert!(world.base().join("scripts/other.sh").exists());
    // And each is committed when it is approved.
    while let Some(held) = world.session.held().first().cloned() {
        world
            .session
            .verdict(held.hold, held.manifest, Verdict::Release, "test", "ok")
            .unwrap();
    }
    assert_eq!(snapshot(&world.base()), snapshot(&inside));
}
