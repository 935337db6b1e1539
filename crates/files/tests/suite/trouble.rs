//! Workspaces in trouble: a full disk, one that may not be written, another file system than the
//! state's. Nothing is lost, and what was not done is told with what to do.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::world::{Disk, World, run, slow, snapshot};
use files::{Choice, Options};

/// A file system of a given size, in memory.
struct Small(PathBuf);

impl Small {
    fn on(dir: &Path, options: &str) -> Self {
        let target = dir.display();
        run(
            dir,
            &format!("mount -t tmpfs -o {options} kairos-test '{target}'"),
        );
        Self(dir.to_path_buf())
    }

    fn remount(&self, options: &str) {
        let target = self.0.display();
        run(
            Path::new("/"),
            &format!("mount -o remount,{options} '{target}'"),
        );
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

fn fill(base: &Path) {
    fs::create_dir_all(base.join("dir")).unwrap();
    for name in ["changed", "removed", "dir/moved", "stays"] {
        fs::write(base.join(name), format!("old {name}")).unwrap();
    }
}

/// What was not carried out, by the log.
fn told(world: &World) -> String {
    world.failed().join("\n")
}

#[test]
fn a_workspace_on_a_full_disk_keeps_what_it_has_and_takes_the_rest_later() {
    let disk = Disk::new();
    let small = Small::on(&disk.base(), "size=1m");
    fill(&disk.base());
    let old = snapshot(&disk.base());
    let world = World::on(Arc::clone(&disk), Options::default());
    let inside = world.inside();
    // Larger than the disk: it can be staged, which happens elsewhere.
    fs::write(inside.join("changed"), vec![7; 4 << 20]).unwrap();
    fs::write(inside.join("new"), vec![8; 4 << 20]).unwrap();
    let view = snapshot(&inside);
    world.settle();
    assert_eq!(
        snapshot(&disk.base()),
        old,
        "the owner's files stay as they are"
    );
    assert_eq!(snapshot(&inside), view, "the agent's view, too");
    let told = told(&world);
    assert!(told.contains("No space left on device"), "{told}");
    assert!(
        told.contains("kairos conflicts session changed --take agent"),
        "{told}"
    );
    // Small changes go on meanwhile.
    fs::write(inside.join("stays"), "small").unwrap();
    world.settle();
    assert_eq!(fs::read(disk.base().join("stays")).unwrap(), b"small");
    // The owner made room and does as they were told; another process does it.
    drop(world);
    small.remount("size=64m");
    // Nothing is decided beside what is chosen here.
    let world = World::on(Arc::clone(&disk), slow());
    let left = world.trees.conflicts();
    let paths: Vec<(&str, &str)> = left.iter().map(|c| (&*c.path, c.owner)).collect();
    assert_eq!(paths, [("changed", "left"), ("new", "left")]);
    for one in &left {
        world.trees.resolve(one, Choice::Agent).unwrap();
    }
    assert_eq!(
        fs::read(disk.base().join("changed")).unwrap(),
        vec![7; 4 << 20]
    );
    assert_eq!(fs::read(disk.base().join("new")).unwrap(), vec![8; 4 << 20]);
    assert_eq!(world.trees.conflicts().len(), 0);
    drop(world);
    drop(small);
}

#[test]
fn a_full_state_disk_is_told_to_the_program_that_fills_it() {
    let disk = Disk::new();
    fill(&disk.base());
    let small = Small::on(&disk.session, "size=4m");
    // Nothing is decided meanwhile: a session whose log cannot be written stops.
    let world = World::on(Arc::clone(&disk), slow());
    let inside = world.inside();
    let full = |error: std::io::Error| assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    let mut large = fs::File::create(inside.join("large")).unwrap();
    while large.write_all(&[1; 65536]).map_err(full).is_ok() {}
    // A change that cannot be noted is not made; what is there can be read.
    let mut refused = 0;
    for n in 0..2000 {
        if let Err(error) = fs::write(inside.join(format!("f{n}")), [2; 4096]) {
            full(error);
            refused += 1;
        }
    }
    assert!(refused > 0, "the disk was never full");
    assert_eq!(fs::read(inside.join("changed")).unwrap(), b"old changed");
    // The program makes room again and goes on.
    drop(large);
    fs::remove_file(inside.join("large")).unwrap();
    run(&inside, "rm -f f*");
    // What it removed goes when the kernel has forgotten it.
    world.wait_until("room again", || {
        rustix::fs::statvfs(&disk.session)
            .is_ok_and(|small| small.f_bavail * small.f_frsize > 1 << 20)
    });
    fs::write(inside.join("changed"), "after all").unwrap();
    world.settle();
    assert_eq!(world.failed(), Vec::<String>::new());
    assert_eq!(fs::read(disk.base().join("changed")).unwrap(), b"after all");
    assert_eq!(snapshot(&disk.base()), snapshot(&inside));
    drop(world);
    drop(small);
}

#[test]
fn a_workspace_that_may_not_be_written_stays_as_it_is() {
    let disk = Disk::new();
    let small = Small::on(&disk.base(), "size=8m");
    fill(&disk.base());
    let old = snapshot(&disk.base());
    small.remount("ro");
    let world = World::on(Arc::clone(&disk), Options::default());
    let inside = world.inside();
    fs::write(inside.join("changed"), "anew").unwrap();
    fs::remove_file(inside.join("removed")).unwrap();
    fs::rename(inside.join("dir"), inside.join("folder")).unwrap();
    let view = snapshot(&inside);
    world.settle();
    assert_eq!(snapshot(&disk.base()), old);
    assert_eq!(snapshot(&inside), view);
    let told = told(&world);
    assert!(told.contains("Read-only file system"), "{told}");
    assert!(told.contains("--take agent"), "{told}");
    drop(world);
    small.remount("rw");
    let world = World::on(Arc::clone(&disk), Options::default());
    assert_eq!(snapshot(&world.inside()), view, "staged as before");
    for _ in 0..10 {
        for one in world.trees.conflicts() {
            // A directory that is not empty yet comes in another round.
            let _ = world.trees.resolve(&one, Choice::Agent);
        }
    }
    assert_eq!(snapshot(&disk.base()), view);
    drop(world);
    drop(small);
}

#[test]
fn a_workspace_on_another_file_system_than_the_state() {
    let disk = Disk::new();
    let small = Small::on(&disk.base(), "size=64m");
    fill(&disk.base());
    fs::hard_link(disk.base().join("stays"), disk.base().join("hard")).unwrap();
    let old = snapshot(&disk.base());
    let world = World::on(Arc::clone(&disk), Options::default());
    let inside = world.inside();
    fs::write(inside.join("changed"), vec![3; 1 << 20]).unwrap();
    fs::remove_file(inside.join("removed")).unwrap();
    fs::rename(inside.join("dir"), inside.join("folder")).unwrap();
    fs::write(inside.join("hard"), "through one name").unwrap();
    run(
        &inside,
        "mkfifo pipe; ln -s changed link; cp changed copy; chmod 600 copy; mkdir -p a/b/c; echo x > a/b/c/d",
    );
    world.settle();
    assert_eq!(
        snapshot(&disk.base()),
        snapshot(&inside),
        "{}",
        told(&world)
    );
    drop(world);
    // What was replaced was copied to the other file system, and comes back from there.
    let world = World::on(Arc::clone(&disk), Options::default());
    let undone = world.trees.undo(&[], true);
    assert!(undone.iter().all(|one| one.kept.is_none()), "{undone:?}");
    assert_eq!(snapshot(&disk.base()), old);
    drop(world);
    drop(small);
}
