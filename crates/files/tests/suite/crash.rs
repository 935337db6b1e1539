//! A crash at any step of a commit, and a kill of the process: every path is old or new, nothing
//! of ours is left in the owner's directory, and what was staged can still be decided.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::world::{Disk, World, run, slow, snapshot, stopped_after};
use files::{CommitError, Options};

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
    run(inside, "mkfifo pipe");
}

fn stopping(after: usize, count: Arc<AtomicUsize>) -> Options {
    let options = slow();
    stopped_after(after, count, options)
}

#[test]
fn f14_every_step_can_be_the_last() {
    let mut steps = 0;
    loop {
        let disk = Disk::new();
        fill(&disk.base());
        let old = snapshot(&disk.base());
        let count = Arc::new(AtomicUsize::new(0));
        let world = World::on(Arc::clone(&disk), stopping(steps, Arc::clone(&count)));
        change(&world.inside());
        let new = snapshot(&world.inside());
        world.settle();
        drop(world);
        let taken = count.load(Ordering::SeqCst);
        for line in snapshot(&disk.base())
            .iter()
            .filter(|l| !l.contains(".kairos-"))
        {
            assert!(
                old.contains(line) || new.contains(line),
                "step {steps}: neither old nor new: {line}"
            );
        }
        // Another process finishes what was decided.
        let world = World::on(Arc::clone(&disk), Options::default());
        world.settle();
        let after = snapshot(&disk.base());
        assert_eq!(
            after,
            new,
            "step {steps}; undecided {:?}, interrupted {:?}, log {}",
            world.trees.undecided(),
            world.trees.interrupted(),
            fs::read_to_string(disk.session_dir().log()).unwrap()
        );
        assert_eq!(snapshot(&world.inside()), new, "step {steps}");
        if taken <= steps {
            assert!(steps > 20, "only {steps} steps were tried");
            return;
        }
        steps += 1;
    }
}

#[test]
fn the_owners_version_survives_a_crash_in_the_middle() {
    // The owner writes between our look and our swap; we crash before we can swap back.
    let disk = Disk::new();
    fs::write(disk.base().join("f"), "old").unwrap();
    let base = disk.base();
    let crashed = AtomicBool::new(false);
    let steps = move |step: &'static str| match step {
        _ if crashed.load(Ordering::SeqCst) => Err(CommitError::Stopped(step)),
        "swap in" => {
            fs::write(base.join("f"), "the owner's").unwrap();
            Ok(())
        }
        "swapped" => {
            crashed.store(true, Ordering::SeqCst);
            Err(CommitError::Stopped(step))
        }
        _ => Ok(()),
    };
    let quiet = std::time::Duration::from_secs(1000);
    let world = World::on(
        Arc::clone(&disk),
        Options {
            steps: Some(Arc::new(steps)),
            quiet,
            ..Options::default()
        },
    );
    fs::write(world.inside().join("f"), "the agent's").unwrap();
    world.settle();
    drop(world);
    let world = World::on(Arc::clone(&disk), Options::default());
    assert_eq!(snapshot(&disk.base()), ["f 0644 \"the owner's\""]);
    assert_eq!(
        fs::read_to_string(world.inside().join("f")).unwrap(),
        "the agent's"
    );
    let (_, end) = &world.trees.interrupted()[0];
    assert!(
        end.as_ref()
            .unwrap_err()
            .contains("was changed on the host meanwhile"),
        "{end:?}"
    );
}

#[test]
fn what_was_staged_is_there_after_a_kill() {
    let disk = Disk::new();
    fill(&disk.base());
    let old = snapshot(&disk.base());
    let quiet = std::time::Duration::from_secs(1000);
    let world = World::on(
        Arc::clone(&disk),
        Options {
            quiet,
            ..Options::default()
        },
    );
    change(&world.inside());
    run(
        &world.inside(),
        "python3 -c \"import os; os.setxattr('modify', 'user.k', b'v')\"",
    );
    let new = snapshot(&world.inside());
    // Nothing is said to the trees: as if the process were killed.
    drop(world);
    assert_eq!(snapshot(&disk.base()), old);
    let changes = files::staged_changes(&[disk.upper()]).unwrap();
    let text: String = changes.iter().map(ToString::to_string).collect();
    assert!(text.contains("-old modify"), "{text}");
    let world = World::on(
        Arc::clone(&disk),
        Options {
            quiet,
            ..Options::default()
        },
    );
    assert_eq!(snapshot(&world.inside()), new);
    world.trees.hold_undecided();
    // What was moved is one change to people, and two to the host.
    let paths = |c: &files::Change| if c.operation == "rename" { 2 } else { 1 };
    let paths: usize = changes.iter().map(paths).sum();
    assert_eq!(world.session.held().len(), paths);
    assert_eq!(
        snapshot(&disk.base()),
        old,
        "nothing is released that nobody decided"
    );
    let mut holds = world.session.held();
    while let Some(held) = holds.pop() {
        let _ = world.session.verdict(
            held.hold,
            held.manifest,
            kernel::Verdict::Release,
            "test",
            "ok",
        );
    }
    assert_eq!(world.session.held().len(), 0);
    assert_eq!(snapshot(&disk.base()), new);
}

/// They are made ahead and removed later, by others than whoever asks for them.
#[test]
fn many_files_in_a_row_are_there_after_a_kill_and_nothing_else() {
    const MADE: usize = 400;
    const STAYING: usize = MADE / 2;
    // As many are made ahead and wait to be removed, at most.
    const BESIDES: usize = 100;
    for durable in [false, true] {
        let slow = || Options {
            quiet: std::time::Duration::from_secs(1000),
            durable,
            ..Options::default()
        };
        let disk = Disk::new();
        let contents = || fs::read_dir(disk.upper().join("data")).unwrap().count();
        let world = World::on(Arc::clone(&disk), slow());
        let inside = world.inside();
        for n in 0..MADE {
            fs::write(inside.join(format!("f{n}")), format!("content {n}")).unwrap();
        }
        for n in (0..MADE).step_by(2) {
            fs::remove_file(inside.join(format!("f{n}"))).unwrap();
        }
        let new = snapshot(&inside);
        world.wait_until("contents go", || contents() <= STAYING + BESIDES);
        drop(world);
        let world = World::on(Arc::clone(&disk), slow());
        assert_eq!(snapshot(&world.inside()), new);
        fs::write(world.inside().join("later"), "one more").unwrap();
        world.trees.sweep();
        assert_eq!(contents(), STAYING + 1);
        world.settle();
        let committed = snapshot(&disk.base());
        assert_eq!(committed.len(), STAYING + 1);
        assert_eq!(committed, snapshot(&world.inside()));
    }
}
