//! What the owner, or another session, does in the workspace meanwhile: nothing of ours is left where they
//! moved it, what both sides want is no conflict, and no half of a move is made.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use crate::world::{Disk, World, run, slow, snapshot};
use files::{CommitError, Options};

/// With something that happens once, at the first step of a name.
fn once(at: &'static str, job: impl Fn() + Send + Sync + 'static) -> Options {
    let once = std::sync::Once::new();
    stepwise(move |step| {
        if step == at {
            once.call_once(&job);
        }
        Ok(())
    })
}

fn stepwise(
    steps: impl Fn(&'static str) -> Result<(), CommitError> + Send + Sync + 'static,
) -> Options {
    Options {
        steps: Some(Arc::new(steps)),
        ..slow()
    }
}

#[test]
fn nothing_of_ours_stays_in_a_directory_that_is_moved_away() {
    for then in ["true", "mkdir sub", "ln -s moved sub"] {
        let disk = Disk::new();
        fs::create_dir(disk.base().join("sub")).unwrap();
        let base = disk.base();
        let moves = once("sync all", move || {
            run(&base, &format!("mv sub moved; {then}"));
        });
        let world = World::on(Arc::clone(&disk), moves);
        run(
            &world.inside(),
            "for i in $(seq 20); do echo n > sub/new$i; done",
        );
        world.settle();
        let there = snapshot(&disk.base()).join("\n");
        assert!(!there.contains(".kairos"), "{then}: {there}");
        assert!(there.contains("moved 0755 dir"), "{then}: {there}");
        assert!(!there.contains("moved/new"), "{then}: {there}");
    }
}

#[test]
fn nor_after_a_crash() {
    let disk = Disk::new();
    fs::create_dir(disk.base().join("sub")).unwrap();
    fs::write(disk.base().join("sub/old"), "old").unwrap();
    for n in 0..20 {
        fs::write(disk.base().join(format!("sub/old{n}")), "old").unwrap();
    }
    let base = disk.base();
    let moves = stepwise(move |step| match step {
        "swapped" => {
            run(&base, "mv sub moved");
            Err(CommitError::Stopped(step))
        }
        _ => Ok(()),
    });
    let world = World::on(Arc::clone(&disk), moves);
    run(
        &world.inside(),
        "for i in $(seq 0 19); do echo n > sub/old$i; done",
    );
    world.settle();
    drop(world);
    let left = snapshot(&disk.base()).join("\n");
    assert!(left.contains(".kairos"), "the test left nothing: {left}");
    drop(World::on(Arc::clone(&disk), slow()));
    let there = snapshot(&disk.base()).join("\n");
    assert!(!there.contains(".kairos"), "{there}");
}

#[test]
fn what_both_sides_want_is_no_conflict() {
    let disk = Disk::new();
    run(
        &disk.base(),
        "for f in touched saved edited replaced gone; do echo old > $f; done; ln -s a link; mkdir d; echo x > d/in",
    );
    let world = World::on(Arc::clone(&disk), slow());
    let both = "mkdir target; echo same > edited; echo same > new; ln -s there sym; rm -rf gone d; \
                ln -sfn b link; mkfifo pipe; chmod 700 replaced";
    run(
        &world.inside(),
        &format!(
            "{both}; for f in touched saved; do echo agent > $f; done; mkdir target/of; echo t > target/of/t"
        ),
    );
    run(
        &disk.base(),
        &format!("{both}; touch -d '2020-01-01' touched; cp saved s; mv s saved"),
    );
    world.settle();
    assert_eq!(world.failed(), Vec::<String>::new());
    assert_eq!(world.trees.conflicts().len(), 0);
    assert_eq!(snapshot(&disk.base()), snapshot(&world.inside()));
    assert_eq!(fs::read(disk.base().join("touched")).unwrap(), b"agent\n");
    assert_eq!(fs::read(disk.base().join("saved")).unwrap(), b"agent\n");
    // What the owner made is not undone.
    let undone = world.trees.undo(&[], true);
    assert!(undone.iter().all(|one| one.kept.is_none()), "{undone:?}");
    let there = snapshot(&disk.base()).join("\n");
    for owns in [
        "target 0755 dir",
        "edited 0644 \"same",
        "new 0644",
        "sym -> there",
        "pipe 0644 fifo",
        "saved 0644 \"old",
    ] {
        assert!(there.contains(owns), "no {owns}: {there}");
    }
    assert!(!there.contains("target/of"), "{there}");
}

#[test]
fn another_content_or_mode_still_is_a_conflict() {
    let disk = Disk::new();
    run(
        &disk.base(),
        "for f in content mode; do echo old > $f; done",
    );
    let world = World::on(Arc::clone(&disk), slow());
    run(
        &world.inside(),
        "for f in content mode; do echo agent > $f; done; mkdir dir; ln -s a link; echo a > made",
    );
    run(
        &disk.base(),
        "echo ours > content; chmod 600 mode; mkdir -m 700 dir; ln -s b link; echo b > made",
    );
    let ours = snapshot(&disk.base());
    world.settle();
    assert_eq!(snapshot(&disk.base()), ours);
    let paths: Vec<String> = world
        .trees
        .conflicts()
        .into_iter()
        .map(|c| c.path)
        .collect();
    assert_eq!(paths, ["dir", "content", "mode", "link", "made"]);
}

#[test]
fn attributes_of_any_size_are_taken_or_refused_as_on_the_disk() {
    // On the real disk, whose file system may have a limit.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for name in ["base", "mnt", "session"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    let session = dir.path().join("session");
    let base = dir.path().join("base");
    let disk = Arc::new(Disk { dir, session, base });
    let plain = disk.dir.path().join("plain");
    fs::create_dir(&plain).unwrap();
    let world = World::on(Arc::clone(&disk), slow());
    let set = "import os\nfor n in [10, 3000, 5000, 60000]:\n f = 'f%d' % n\n open(f, 'w').close()\n \
               for key in ['user.a', 'user.b']:\n  try: os.setxattr(f, key, b'v' * n); print(n, key, 'ok')\n  \
               except OSError as e: print(n, key, e.errno)\n";
    fs::write(disk.dir.path().join("set.py"), set).unwrap();
    let script = format!("python3 {}", disk.dir.path().join("set.py").display());
    assert_eq!(run(&world.inside(), &script), run(&plain, &script));
    world.settle();
    assert_eq!(world.failed(), Vec::<String>::new());
    // Nothing was seen of the asking.
    assert_eq!(snapshot(&disk.base()), snapshot(&plain));
}

#[test]
fn links_and_pipes_with_two_names_are_one_on_the_host() {
    let world = World::on(Disk::new(), slow());
    run(
        &world.inside(),
        "ln -s x s1; ln -P s1 s2; mkfifo p1; ln p1 p2; ln -s y t1; ln -s y t2; mkdir d; ln p1 d/p3",
    );
    world.settle();
    assert_eq!(world.failed(), Vec::<String>::new());
    let meta = |name: &str| fs::symlink_metadata(world.base().join(name)).unwrap();
    for (one, others) in [("s1", vec!["s2"]), ("p1", vec!["p2", "d/p3"])] {
        for other in &others {
            assert_eq!(meta(one).ino(), meta(other).ino(), "{one} {other}");
        }
        assert_eq!(meta(one).nlink(), others.len() as u64 + 1);
    }
    assert_ne!(meta("t1").ino(), meta("t2").ino());
    // One more in a later commit, and one less.
    run(&world.inside(), "ln -P s1 s3; rm p2");
    world.settle();
    assert_eq!(world.failed(), Vec::<String>::new());
    assert_eq!(
        (meta("s3").ino(), meta("s1").nlink()),
        (meta("s1").ino(), 3)
    );
}

#[test]
fn a_move_of_what_the_owner_changed_since_is_not_half_made() {
    let disk = Disk::new();
    run(
        &disk.base(),
        "echo old > ren; mkdir dir; echo old > dir/deep; echo one > a; echo two > b",
    );
    let world = World::on(Arc::clone(&disk), slow());
    run(
        &world.inside(),
        "mv ren ren2; mv dir dir2; mv a c; mv b a; mv c b",
    );
    run(&disk.base(), "echo ours >> ren; echo ours >> dir/deep");
    world.settle();
    assert_eq!(fs::read(disk.base().join("ren")).unwrap(), b"old\nours\n");
    assert!(!disk.base().join("ren2").exists());
    // Nobody had looked at what lay in the directory: it is moved as it is.
    let deep = fs::read(disk.base().join("dir2/deep")).unwrap();
    assert_eq!(deep, b"old\nours\n");
    assert!(!disk.base().join("dir").exists());
    let told = world.failed().join("\n");
    assert!(
        told.contains("moved there from `ren`, which was changed"),
        "{told}"
    );
    // What nobody else changed is moved.
    assert_eq!(fs::read(disk.base().join("a")).unwrap(), b"two\n");
    assert_eq!(fs::read(disk.base().join("b")).unwrap(), b"one\n");
    let paths: Vec<String> = world
        .trees
        .conflicts()
        .into_iter()
        .map(|c| c.path)
        .collect();
    assert!(paths.contains(&"ren2".to_string()), "{paths:?}");
}

#[test]
fn what_takes_the_place_of_a_foreign_file_is_its_makers() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let disk = Disk::new();
    run(
        &disk.base(),
        "for f in saved written; do echo old > $f; chown 12345:12346 $f; done",
    );
    let world = World::on(Arc::clone(&disk), slow());
    run(
        &world.inside(),
        "echo new > tmp; mv tmp saved; echo new > written",
    );
    let owner = |path: std::path::PathBuf| {
        let meta = fs::metadata(path).unwrap();
        (meta.uid(), meta.gid())
    };
    let inside = ["saved", "written"].map(|name| owner(world.inside().join(name)));
    assert_eq!(inside, [(0, 0), (12345, 12346)]);
    world.settle();
    assert_eq!(world.failed(), Vec::<String>::new());
    assert_eq!(
        ["saved", "written"].map(|name| owner(disk.base().join(name))),
        inside
    );
}

#[test]
fn what_the_owner_makes_and_removes_is_seen_where_it_was_looked_before() {
    let disk = Disk::new();
    run(
        &disk.base(),
        "mkdir -p d/e gone full; echo x > d/e/x; echo g > file; echo f > full/f",
    );
    let world = World::on(
        Arc::clone(&disk),
        Options {
            quiet: Duration::from_millis(50),
            ..Options::default()
        },
    );
    let inside = world.inside();
    // Looked at, and looked for in vain; one directory is the agent's own.
    run(&inside, "mkdir own; echo o > own/o");
    world.settle();
    let old = snapshot(&inside);
    for name in ["late", "d/late", "d/e/late", "new/in", "own/late", "moved"] {
        assert!(!inside.join(name).exists(), "{name}");
    }
    run(
        &disk.base(),
        "for f in late d/late d/e/late own/late; do echo $f > $f; done; mkdir new; echo in > new/in; \
         rm file; rmdir gone; echo m > .m; mv .m moved; rm -r full; echo now-a-file > full",
    );
    let base = disk.base();
    world.wait_until("the view follows", || {
        let come = ["late", "d/late", "d/e/late", "own/late", "new/in", "moved"];
        let gone = ["file", "gone"];
        come.iter().all(|name| inside.join(name).exists())
            && !gone.iter().any(|name| inside.join(name).exists())
            && inside.join("full").is_file()
    });
    assert_eq!(snapshot(&inside), snapshot(&base));
    assert_ne!(snapshot(&inside), old);
    // What it has not changed is no effect of the agent's.
    world.settle();
    assert_eq!(snapshot(&inside), snapshot(&base));
    assert_eq!(world.failed(), Vec::<String>::new());
    // And the agent goes on with it.
    run(
        &inside,
        "echo more >> late; mv moved d/e; rm -r new; ls -la own | grep late",
    );
    world.settle();
    assert_eq!(world.failed(), Vec::<String>::new());
    assert_eq!(snapshot(&inside), snapshot(&base));
}

#[test]
fn what_the_agent_staged_stays_whatever_the_owner_makes() {
    let disk = Disk::new();
    run(
        &disk.base(),
        "mkdir d; echo old > removed; echo old > changed; echo d > d/in",
    );
    let options = Options {
        quiet: Duration::from_secs(3),
        ..Options::default()
    };
    let world = World::on(Arc::clone(&disk), options);
    let inside = world.inside();
    run(
        &inside,
        "rm removed; echo agent > changed; echo agent > made; mv d e; ls",
    );
    let view = snapshot(&inside);
    run(
        &disk.base(),
        "rm removed changed; echo ours > removed; echo ours > made; echo seen > mark",
    );
    world.wait_until("the mark is seen", || inside.join("mark").exists());
    let mut now = snapshot(&inside);
    now.retain(|line| !line.starts_with("mark"));
    assert_eq!(now, view);
    world.settle();
    let there = snapshot(&disk.base()).join("\n");
    for kept in ["removed 0644 \"ours", "made 0644 \"ours", "e/in"] {
        assert!(there.contains(kept), "no {kept}: {there}");
    }
}
