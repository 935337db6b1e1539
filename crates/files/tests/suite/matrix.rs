//! Every staged kind over every kind of base, whatever the owner did meanwhile, with a crash at every
//! write: the owner's version is never lost, what was staged is never lost, nothing of ours is left.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use files::{CommitError, Options};

use crate::world::{Disk, World, snapshot};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Nothing,
    File,
    Dir,
    Link,
    Fifo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Nothing,
    Changes,
    Removes,
    Replaces,
    Links,
}

const KINDS: [Kind; 5] = [Kind::Nothing, Kind::File, Kind::Dir, Kind::Link, Kind::Fifo];
const OWNERS: [Owner; 5] = [
    Owner::Nothing,
    Owner::Changes,
    Owner::Removes,
    Owner::Replaces,
    Owner::Links,
];

fn make(at: &Path, kind: Kind, words: &str) {
    match kind {
        Kind::Nothing => {}
        Kind::File => fs::write(at, words).unwrap(),
        Kind::Dir => {
            fs::create_dir(at).unwrap();
            fs::write(at.join("child"), words).unwrap();
        }
        Kind::Link => std::os::unix::fs::symlink(words, at).unwrap(),
        Kind::Fifo => rustix::fs::mknodat(
            rustix::fs::CWD,
            at,
            rustix::fs::FileType::Fifo,
            0o644.into(),
            0,
        )
        .unwrap(),
    }
}

fn clear(at: &Path) {
    match fs::symlink_metadata(at) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(at).unwrap(),
        Ok(_) => fs::remove_file(at).unwrap(),
        Err(_) => {}
    }
}

fn stage(at: &Path, base: Kind, staged: Kind) {
    if (base, staged) != (Kind::File, Kind::File) {
        clear(at);
    }
    make(at, staged, "the agent's");
}

fn own(at: &Path, base: Kind, owner: Owner) {
    match (owner, base) {
        (Owner::Nothing, _) => {}
        (Owner::Changes, Kind::Nothing) => make(at, Kind::File, "made by the owner"),
        (Owner::Changes, Kind::File) => fs::write(at, "changed by the owner").unwrap(),
        (Owner::Changes, Kind::Dir) => fs::write(at.join("owners"), "new").unwrap(),
        (Owner::Changes, Kind::Link) => {
            clear(at);
            make(at, Kind::Link, "where the owner wants");
        }
        (Owner::Changes, Kind::Fifo) => {
            fs::set_permissions(at, fs::Permissions::from_mode(0o600)).unwrap();
        }
        (Owner::Removes, _) => clear(at),
        (Owner::Replaces, base) => {
            clear(at);
            let other = if base == Kind::File {
                Kind::Dir
            } else {
                Kind::File
            };
            make(at, other, "put there by the owner");
        }
        (Owner::Links, _) => {
            clear(at);
            make(at, Kind::Link, "../outside");
        }
    }
}

/// What a file says, or where a link points.
fn words(at: &Path) -> String {
    match fs::symlink_metadata(at) {
        Ok(meta) if meta.is_file() => fs::read_to_string(at).unwrap(),
        _ => format!("{:?}", fs::read_link(at).ok()),
    }
}

fn host(disk: &Disk) -> Vec<String> {
    snapshot(&disk.base())
        .into_iter()
        .filter(|line| !line.contains(".kairos-"))
        .collect()
}

fn slow(
    steps: impl Fn(&'static str) -> Result<(), CommitError> + Send + Sync + 'static,
) -> Options {
    Options {
        quiet: Duration::from_secs(1000),
        steps: Some(Arc::new(steps)),
        ..Options::default()
    }
}

fn disk(base: Kind) -> Arc<Disk> {
    let disk = Disk::new();
    fs::create_dir(disk.dir.path().join("outside")).unwrap();
    fs::write(disk.dir.path().join("outside/child"), "untouched").unwrap();
    fs::write(disk.base().join("beside"), "beside").unwrap();
    make(&disk.base().join("p"), base, "the base");
    disk
}

/// What has to be on the host in the end.
fn check(case: &str, disk: &Disk, base: Kind, owner: Owner, owners: &[String], view: &[String]) {
    let now = host(disk);
    let expect = if owner == Owner::Nothing {
        view
    } else {
        owners
    };
    if (base, owner) == (Kind::Dir, Owner::Changes) {
        // What the agent removed from it may be gone; what the owner put there is not.
        assert!(
            now.iter().any(|line| line.starts_with("p/owners ")),
            "{case}: {now:?}"
        );
    } else {
        assert_eq!(now, expect, "{case}");
    }
    let outside = snapshot(&disk.dir.path().join("outside"));
    assert_eq!(outside, ["child 0644 \"untouched\""], "{case}");
    let left: Vec<_> = snapshot(&disk.base())
        .into_iter()
        .filter(|line| line.contains(".kairos-"))
        .collect();
    assert_eq!(left, Vec::<String>::new(), "{case}");
}

#[test]
fn whatever_is_staged_over_whatever_and_crashes_anywhere() {
    let mut cases = 0;
    for base in KINDS {
        for staged in KINDS {
            for owner in OWNERS {
                if (base, owner) == (Kind::Nothing, Owner::Removes) {
                    continue;
                }
                for stop in 0.. {
                    let disk = disk(base);
                    let count = Arc::new(AtomicUsize::new(0));
                    let taken = Arc::clone(&count);
                    let world = World::on(
                        Arc::clone(&disk),
                        slow(move |step| {
                            let go = count.fetch_add(1, Ordering::SeqCst) < stop;
                            if go {
                                Ok(())
                            } else {
                                Err(CommitError::Stopped(step))
                            }
                        }),
                    );
                    stage(&world.inside().join("p"), base, staged);
                    let view = snapshot(&world.inside());
                    own(&disk.base().join("p"), base, owner);
                    let owners = host(&disk);
                    world.settle();
                    drop(world);
                    let world = World::on(Arc::clone(&disk), slow(|_| Ok(())));
                    world.settle();
                    let case = format!("{staged:?} over {base:?}, owner {owner:?}, stop {stop}");
                    check(&case, &disk, base, owner, &owners, &view);
                    cases += 1;
                    if taken.load(Ordering::SeqCst) <= stop {
                        break;
                    }
                }
            }
        }
    }
    assert!(cases > 300, "{cases}");
}

#[test]
fn the_owner_may_come_at_any_step() {
    for base in KINDS {
        for staged in KINDS {
            for owner in [
                Owner::Changes,
                Owner::Removes,
                Owner::Replaces,
                Owner::Links,
            ] {
                if (base, owner) == (Kind::Nothing, Owner::Removes) {
                    continue;
                }
                for when in 0.. {
                    let disk = disk(base);
                    let count = Arc::new(AtomicUsize::new(0));
                    let taken = Arc::clone(&count);
                    let at = disk.base().join("p");
                    let world = World::on(
                        Arc::clone(&disk),
                        slow(move |_| {
                            if count.fetch_add(1, Ordering::SeqCst) == when {
                                // Whatever lies there at this moment.
                                let kind = match fs::symlink_metadata(&at) {
                                    Err(_) => Kind::Nothing,
                                    Ok(meta) if meta.is_dir() => Kind::Dir,
                                    Ok(meta) if meta.is_symlink() => Kind::Link,
                                    Ok(meta) if meta.is_file() => Kind::File,
                                    Ok(_) => Kind::Fifo,
                                };
                                own(&at, kind, owner);
                                let words = self::words(&at);
                                let told = at.parent().unwrap().parent().unwrap().join("told");
                                fs::write(told, format!("{kind:?} {words}")).unwrap();
                            }
                            Ok(())
                        }),
                    );
                    stage(&world.inside().join("p"), base, staged);
                    world.settle();
                    let done = taken.load(Ordering::SeqCst) <= when;
                    let case = format!("{staged:?} over {base:?}, owner {owner:?} at step {when}");
                    if !done {
                        // What the owner wrote is in place, or kept where people are told of it.
                        let told = fs::read_to_string(disk.dir.path().join("told")).unwrap();
                        let (kind, words) = told.split_once(' ').unwrap();
                        let at = disk.base().join("p");
                        let found = match owner {
                            Owner::Removes => true,
                            Owner::Links => fs::read_link(&at).is_ok(),
                            _ if kind == "Dir" && owner == Owner::Changes => {
                                at.join("owners").exists()
                            }
                            _ if kind == "Fifo" && owner == Owner::Changes => true,
                            Owner::Replaces if kind == "File" => at.join("child").exists(),
                            _ => self::words(&at) == words,
                        };
                        assert!(found, "{case}: {told}: {:?}", host(&disk));
                    }
                    let left: Vec<_> = snapshot(&disk.base())
                        .into_iter()
                        .filter(|line| line.contains(".kairos-"))
                        .collect();
                    assert_eq!(left, Vec::<String>::new(), "{case}");
                    assert_eq!(
                        snapshot(&disk.dir.path().join("outside")),
                        ["child 0644 \"untouched\""],
                        "{case}"
                    );
                    if done {
                        break;
                    }
                }
            }
        }
    }
}
