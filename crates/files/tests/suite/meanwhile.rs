//! The agent goes on while its changes are decided and carried out: names that move to and fro, and
//! what is open when another takes its place. Each test changes the view between two given steps.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::world::{Disk, World, run, snapshot};
use files::{Options, Reads};

/// A step, the how manyeth time, and what the agent does then.
type Then = (&'static str, usize, &'static str);

/// A world whose agent does something at some steps; `quiet` is so long that only `settle` decides.
fn meanwhile(fill: &str, then: &[Then]) -> World {
    let disk = Disk::new();
    run(&disk.base(), fill);
    let inside: PathBuf = disk.dir.path().join("mnt/workspace");
    let then = then.to_vec();
    let count: Mutex<BTreeMap<&'static str, usize>> = Mutex::default();
    let steps = move |step: &'static str| {
        let mut count = count.lock().unwrap();
        let number = count.entry(step).or_default();
        *number += 1;
        for (at, times, command) in &then {
            if (*at, *times) == (step, *number) {
                run(&inside, command);
            }
        }
        Ok(())
    };
    let options = Options {
        steps: Some(Arc::new(steps)),
        quiet: std::time::Duration::from_secs(1000),
        ..Options::default()
    };
    World::on(disk, options)
}

/// The host has what the view has, that is `wanted`, and nobody made a conflict.
fn as_wanted(world: &World, wanted: &[String], when: &str) {
    world.settle();
    assert_eq!(world.failed(), Vec::<String>::new(), "{when}");
    assert_eq!(snapshot(&world.inside()), wanted, "the view, {when}");
    assert_eq!(snapshot(&world.base()), wanted, "the host, {when}");
}

const TREE: &str = "mkdir -p a/b/c; echo one > a/f; echo two > a/b/f; ln -s f a/l; mkfifo a/p; \
    echo three > a/h; ln a/h a/i; chmod 711 a/b; chmod 600 a/f";

/// What is below `a`, as if it lay at another place.
fn moved_to(tree: &[String], place: &str) -> Vec<String> {
    tree.iter()
        .map(|line| format!("{place}{}", line.strip_prefix('a').unwrap()))
        .collect()
}

#[test]
fn a_directory_comes_back_after_its_old_place_went() {
    let world = meanwhile(
        TREE,
        &[
            ("settled", 1, "mv a5 a6"),
            // The old place is gone from the host by then, and nothing has arrived elsewhere.
            ("settled", 2, "mv a6 a"),
        ],
    );
    let tree = snapshot(&world.base());
    run(&world.inside(), "mv a a5");
    as_wanted(&world, &tree, "back at its place");
    run(&world.inside(), "mv a z");
    as_wanted(&world, &moved_to(&tree, "z"), "moved for good");
}

#[test]
fn a_directory_is_away_whenever_it_is_looked_at_but_once() {
    for last in ["a7", "a5", "z"] {
        let away = format!("mv a {last}").leak();
        let world = meanwhile(TREE, &[("settled", 1, "mv a5 a"), ("decide", 1, away)]);
        let tree = snapshot(&world.base());
        run(&world.inside(), "mv a a5");
        as_wanted(&world, &moved_to(&tree, last), last);
    }
}

#[test]
fn a_directory_comes_back_while_its_old_place_goes() {
    for (step, number) in [("move away", 1), ("move away", 2), ("remove directory", 1)] {
        let world = meanwhile(
            TREE,
            &[("decide", 1, "mv a5 a6"), (step, number, "mv a6 a")],
        );
        let tree = snapshot(&world.base());
        run(&world.inside(), "mv a a5");
        as_wanted(&world, &tree, step);
    }
}

#[test]
fn what_is_moved_over_another_while_that_comes_back() {
    let fill = "echo one > p; echo two > x; ln -s one l; ln -s two m; mkdir d e; chmod 700 d";
    let away = "mv p r; mv x p; mv l k; mv m l; mv d c; mv e d";
    let back = "mv p x; mv r p; mv l m; mv k l; mv d e; mv c d";
    let wanted = |world: &World| {
        let plain = tempfile::tempdir().unwrap();
        run(plain.path(), fill);
        run(plain.path(), away);
        assert!(!snapshot(&world.base()).is_empty());
        snapshot(plain.path())
    };
    let world = meanwhile(fill, &[("settled", 1, back), ("decide", 1, away)]);
    run(&world.inside(), away);
    let wanted = wanted(&world);
    as_wanted(&world, &wanted, "moved, back, and moved again");
    // The other way: what is decided over them is gone when it is carried out.
    let world = meanwhile(fill, &[("swap in", 1, back), ("decide", 2, away)]);
    run(&world.inside(), away);
    as_wanted(&world, &wanted, "back while it is carried out");
}

/// Reads what the kernel does not know any more.
fn read_anew(file: &mut File) -> String {
    rustix::fs::fadvise(&*file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    text
}

fn open_goes_on(make: impl Fn(&World, &Path), handleless: bool) {
    for command in [
        "mv other file",
        "rm file; echo new > file",
        "rm file",
        "mv file away; mv other file; rm away",
        "ln other file2; mv file2 file",
    ] {
        let options = Options {
            quiet: std::time::Duration::from_secs(1000),
            reads: if handleless {
                Reads::First
            } else {
                Reads::Open
            },
            ..Options::default()
        };
        let world = World::on(Disk::new(), options);
        make(&world, &world.inside());
        run(&world.inside(), "echo new > other");
        world.settle();
        let mut open = File::open(world.inside().join("file")).unwrap();
        run(&world.inside(), command);
        world.settle();
        assert_eq!(read_anew(&mut open), "old\n", "{command}, {handleless}");
        drop(open);
        assert_eq!(world.failed(), Vec::<String>::new());
        assert_eq!(snapshot(&world.base()), snapshot(&world.inside()));
    }
}

#[test]
fn an_open_file_is_the_same_after_its_name_was_replaced() {
    for handleless in [false, true] {
        // Written by the agent, so that reading it is no news.
        open_goes_on(
            |world, inside| {
                run(inside, "echo old > file");
                world.settle();
            },
            handleless,
        );
        // The owner's, and read before.
        open_goes_on(
            |world, inside| {
                run(&world.base(), "echo old > file");
                run(inside, "cat file");
            },
            handleless,
        );
    }
}
