//! Directories that their own owner may not write, as an ordinary user meets them: what the agent may
//! do there is done, and the modes are as they were or as the agent wants them, whatever happens.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::world::{Disk, World, run, slow, snapshot, stopped_after};
use files::Choice;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Runs it in a thread for which modes count, as they do for anybody but root.
fn ordinary(job: impl FnOnce() + Send) {
    let job = || {
        let mut sets = capabilities(None).unwrap();
        let all = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        sets.effective -= all;
        sets.permitted -= all;
        sets.inheritable -= all;
        set_capabilities(None, sets).unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o555)).unwrap();
        assert!(
            fs::write(dir.path().join("f"), "").is_err(),
            "modes mean nothing here"
        );
        job();
    };
    std::thread::scope(|scope| scope.spawn(job).join().unwrap());
}

fn fill(base: &Path) {
    run(
        base,
        "mkdir -p ro/sub gone; echo y > ro/y; echo s > ro/sub/s; echo g > gone/g; \
         chmod 644 ro/y; chmod 555 ro/sub ro gone",
    );
}

/// New ones as Go's module cache has them, changes in old ones, and one that goes.
fn change(inside: &Path) {
    run(
        inside,
        "mkdir -p m/p/q; echo x > m/p/q/f; chmod 555 m/p/q m/p m; \
         echo z >> ro/y; chmod 755 ro/sub; echo n > ro/sub/n; chmod 555 ro/sub; \
         chmod 700 gone; rm -r gone; mkdir dark; echo d > dark/f; chmod 111 dark",
    );
}

/// Everything, also what may not be listed.
fn look(dir: &Path) -> Vec<String> {
    let dark = dir.join("dark");
    let mode = fs::metadata(&dark).map(|meta| meta.permissions().mode() & 0o7777);
    let Ok(mode) = mode else {
        return snapshot(dir);
    };
    fs::set_permissions(&dark, fs::Permissions::from_mode(0o755)).unwrap();
    let mut lines = snapshot(dir);
    fs::set_permissions(&dark, fs::Permissions::from_mode(mode)).unwrap();
    lines.push(format!("dark is {mode:o}"));
    lines
}

#[test]
fn directories_without_write_permission_are_committed() {
    ordinary(|| {
        let disk = Disk::new();
        fill(&disk.base());
        let world = World::on(Arc::clone(&disk), slow());
        change(&world.inside());
        world.settle();
        assert_eq!(world.failed(), Vec::<String>::new());
        let there = look(&disk.base());
        let wanted = [
            "dark 0755 dir",
            "dark/f 0644 \"d\\n\"",
            "m 0555 dir",
            "m/p 0555 dir",
            "m/p/q 0555 dir",
            "m/p/q/f 0644 \"x\\n\"",
            "ro 0555 dir",
            "ro/sub 0555 dir",
            "ro/sub/n 0644 \"n\\n\"",
            "ro/sub/s 0644 \"s\\n\"",
            "ro/y 0644 \"y\\nz\\n\"",
            "dark is 111",
        ];
        assert_eq!(there, wanted);
        assert_eq!(world.trees.conflicts().len(), 0);
        // And back.
        let undone = world.trees.undo(&[], true);
        assert!(undone.iter().all(|one| one.kept.is_none()), "{undone:?}");
        let old = Disk::new();
        fill(&old.base());
        assert_eq!(snapshot(&disk.base()), snapshot(&old.base()));
    });
}

#[test]
fn a_crash_leaves_no_directory_more_open_than_it_was() {
    ordinary(|| {
        let mut after = 0;
        loop {
            let disk = Disk::new();
            fill(&disk.base());
            let count = Arc::new(AtomicUsize::new(0));
            let options = stopped_after(after, Arc::clone(&count), slow());
            let world = World::on(Arc::clone(&disk), options);
            change(&world.inside());
            world.settle();
            drop(world);
            let world = World::on(Arc::clone(&disk), slow());
            world.settle();
            let there = look(&disk.base());
            let text = there.join("\n");
            for line in [
                "m 0555",
                "m/p/q 0555",
                "ro 0555",
                "ro/sub 0555",
                "dark is 111",
            ] {
                assert!(text.contains(line), "step {after}: no {line} in {text}");
            }
            assert!(!text.contains(".kairos"), "step {after}: {text}");
            assert!(
                text.contains("m/p/q/f 0644") && !text.contains("gone"),
                "step {after}: {text}"
            );
            if count.load(Ordering::SeqCst) <= after {
                assert!(after > 30, "only {after} steps were tried");
                return;
            }
            after += 1;
        }
    });
}

#[test]
fn what_is_in_a_directory_that_cannot_be_made_is_told_so() {
    ordinary(|| {
        let disk = Disk::new();
        fs::create_dir(disk.base().join("foreign")).unwrap();
        let world = World::on(Arc::clone(&disk), slow());
        run(
            &world.inside(),
            "mkdir -p foreign/m/p; echo x > foreign/m/p/f",
        );
        rustix::fs::chown(
            disk.base().join("foreign"),
            Some(rustix::fs::Uid::from_raw(12345)),
            None,
        )
        .unwrap();
        world.settle();
        let told = world.failed().join("\n");
        assert!(told.contains("its directory could not be made"), "{told}");
        assert!(!told.contains("conflict:"), "{told}");
        let paths: Vec<String> = world
            .trees
            .conflicts()
            .into_iter()
            .map(|c| c.path)
            .collect();
        assert_eq!(paths, ["foreign/m", "foreign/m/p", "foreign/m/p/f"]);
        rustix::fs::chown(
            disk.base().join("foreign"),
            Some(rustix::process::geteuid()),
            None,
        )
        .unwrap();
        for one in world.trees.conflicts() {
            world.trees.resolve(&one, Choice::Agent).unwrap();
        }
        assert_eq!(fs::read(disk.base().join("foreign/m/p/f")).unwrap(), b"x\n");
    });
}
