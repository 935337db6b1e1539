//! The same random operations on a tree of ours and on a plain directory give the same answers and
//! the same tree; and after a settlement the owner's directory is that tree too.

use std::ffi::CString;
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::world::{Disk, World, scratch, slow, snapshot};
use files::{CommitError, Options, Reads};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Write(usize, u8, u16),
    Append(usize, u8),
    Truncate(usize, u16),
    Create(usize),
    Remove(usize),
    Mkdir(usize),
    Rmdir(usize),
    Rename(usize, usize),
    Exchange(usize, usize),
    NoReplace(usize, usize),
    Link(usize, usize),
    Symlink(usize, usize),
    Chmod(usize, u16),
    Fifo(usize),
    Stat(usize),
    Read(usize),
    List(usize),
    /// An open file stays what it is, whatever becomes of its name.
    Open(usize, usize),
    WriteOpen(usize, u8, u16),
    ReadOpen(usize),
    Close(usize),
    Attribute(usize, u8),
    Times(usize, u16),
    Punch(usize, u16, u16),
    CopyRange(usize, usize, u16),
    MapWrite(usize, u8),
    Settle,
}

const HANDLES: usize = 3;

const NAMES: [&str; 14] = [
    "a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/f", "g", "g/a", "g/h", "g/h/i", "base", "base/x",
];

fn op() -> impl Strategy<Value = Op> {
    let n = 0..NAMES.len();
    prop_oneof![
        4 => (n.clone(), any::<u8>(), 0u16..9000).prop_map(|(a, b, c)| Op::Write(a, b, c)),
        2 => (n.clone(), any::<u8>()).prop_map(|(a, b)| Op::Append(a, b)),
        1 => (n.clone(), 0u16..9000).prop_map(|(a, b)| Op::Truncate(a, b)),
        2 => n.clone().prop_map(Op::Create),
        3 => n.clone().prop_map(Op::Remove),
        3 => n.clone().prop_map(Op::Mkdir),
        2 => n.clone().prop_map(Op::Rmdir),
        5 => (n.clone(), n.clone()).prop_map(|(a, b)| Op::Rename(a, b)),
        2 => (n.clone(), n.clone()).prop_map(|(a, b)| Op::Exchange(a, b)),
        1 => (n.clone(), n.clone()).prop_map(|(a, b)| Op::NoReplace(a, b)),
        2 => (n.clone(), n.clone()).prop_map(|(a, b)| Op::Link(a, b)),
        1 => (n.clone(), n.clone()).prop_map(|(a, b)| Op::Symlink(a, b)),
        2 => (n.clone(), 0u16..0o1000).prop_map(|(a, b)| Op::Chmod(a, b)),
        1 => n.clone().prop_map(Op::Fifo),
        2 => n.clone().prop_map(Op::Stat),
        2 => n.clone().prop_map(Op::Read),
        2 => n.clone().prop_map(Op::List),
        3 => (0..HANDLES, n.clone()).prop_map(|(a, b)| Op::Open(a, b)),
        3 => (0..HANDLES, any::<u8>(), 0u16..9000).prop_map(|(a, b, c)| Op::WriteOpen(a, b, c)),
        2 => (0..HANDLES).prop_map(Op::ReadOpen),
        2 => (0..HANDLES).prop_map(Op::Close),
        1 => (n.clone(), any::<u8>()).prop_map(|(a, b)| Op::Attribute(a, b)),
        1 => (n.clone(), any::<u16>()).prop_map(|(a, b)| Op::Times(a, b)),
        1 => (n.clone(), 0u16..9000, 1u16..9000).prop_map(|(a, b, c)| Op::Punch(a, b, c)),
        1 => (n.clone(), n.clone(), 0u16..9000).prop_map(|(a, b, c)| Op::CopyRange(a, b, c)),
        1 => (n, any::<u8>()).prop_map(|(a, b)| Op::MapWrite(a, b)),
        1 => Just(Op::Settle),
    ]
}

/// Somebody who works in a directory.
struct Actor {
    root: PathBuf,
    open: [Option<fs::File>; HANDLES],
}

impl Actor {
    fn new(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
            open: [const { None }; HANDLES],
        }
    }

    /// Does one operation and tells what came of it, comparably.
    fn act(&mut self, op: &Op) -> String {
        let error = |error: std::io::Error| format!("{:?}", error.raw_os_error());
        match op {
            Op::Open(slot, n) => {
                let path = self.root.join(NAMES[*n]);
                if !fs::symlink_metadata(&path).is_ok_and(|m| m.is_file() || m.is_dir()) {
                    return "skipped".into();
                }
                match fs::OpenOptions::new().read(true).write(true).open(path) {
                    Ok(file) => {
                        self.open[*slot] = Some(file);
                        "ok".into()
                    }
                    Err(e) => error(e),
                }
            }
            Op::WriteOpen(slot, byte, offset) => match &self.open[*slot] {
                Some(file) => match file.write_all_at(&[*byte; 100], u64::from(*offset)) {
                    Ok(()) => "ok".into(),
                    Err(e) => error(e),
                },
                None => "skipped".into(),
            },
            Op::ReadOpen(slot) => match &self.open[*slot] {
                Some(file) => {
                    let mut bytes = vec![0; 20_000];
                    match file.read_at(&mut bytes, 0) {
                        Ok(read) => format!(
                            "{read} {} {}",
                            kernel::Digest::of(&bytes[..read]).hex(),
                            file.metadata().unwrap().nlink()
                        ),
                        Err(e) => error(e),
                    }
                }
                None => "skipped".into(),
            },
            Op::Close(slot) => {
                self.open[*slot] = None;
                "ok".into()
            }
            _ => act(&self.root, op),
        }
    }
}

fn act(root: &Path, op: &Op) -> String {
    let at = |n: &usize| root.join(NAMES[*n]);
    let told = |result: std::io::Result<()>| match result {
        Ok(()) => "ok".to_string(),
        Err(error) => format!("{:?}", error.raw_os_error()),
    };
    // A FIFO would wait.
    let plain =
        |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|m| m.is_file() || m.is_dir());
    let rename2 = |a: &usize, b: &usize, flags| {
        rustix::fs::renameat_with(rustix::fs::CWD, at(a), rustix::fs::CWD, at(b), flags)
            .map_err(Into::into)
    };
    match op {
        Op::Write(n, byte, size) => {
            if fs::symlink_metadata(at(n)).is_ok() && !plain(&at(n)) {
                return "skipped".into();
            }
            told(fs::write(at(n), vec![*byte; usize::from(*size)]))
        }
        Op::Append(n, byte) => {
            if !plain(&at(n)) {
                return "skipped".into();
            }
            told(
                fs::OpenOptions::new()
                    .append(true)
                    .open(at(n))
                    .and_then(|mut f| f.write_all(&[*byte; 10])),
            )
        }
        Op::Truncate(n, size) => {
            if !plain(&at(n)) {
                return "skipped".into();
            }
            told(
                fs::OpenOptions::new()
                    .write(true)
                    .open(at(n))
                    .and_then(|f| f.set_len(u64::from(*size))),
            )
        }
        Op::Create(n) => told(
            fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o640)
                .open(at(n))
                .map(drop),
        ),
        Op::Remove(n) => told(fs::remove_file(at(n))),
        Op::Mkdir(n) => told(fs::create_dir(at(n))),
        Op::Rmdir(n) => told(fs::remove_dir(at(n))),
        Op::Rename(a, b) => told(fs::rename(at(a), at(b))),
        Op::Exchange(a, b) => told(rename2(a, b, rustix::fs::RenameFlags::EXCHANGE)),
        Op::NoReplace(a, b) => told(rename2(a, b, rustix::fs::RenameFlags::NOREPLACE)),
        Op::Link(a, b) => told(fs::hard_link(at(a), at(b))),
        Op::Symlink(a, b) => told(std::os::unix::fs::symlink(NAMES[*a], at(b))),
        Op::Chmod(n, mode) => {
            if !plain(&at(n)) {
                return "skipped".into();
            }
            told(fs::set_permissions(
                at(n),
                fs::Permissions::from_mode(u32::from(*mode)),
            ))
        }
        Op::Fifo(n) => {
            use std::os::unix::ffi::OsStrExt;
            let path = CString::new(at(n).as_os_str().as_bytes()).unwrap();
            let made = rustix::fs::mknodat(
                rustix::fs::CWD,
                path.as_c_str(),
                rustix::fs::FileType::Fifo,
                0o644.into(),
                0,
            );
            told(made.map_err(Into::into))
        }
        Op::Stat(n) => match fs::symlink_metadata(at(n)) {
            Ok(m) => {
                let size = if m.is_dir() { 0 } else { m.len() };
                // A plain directory on tmpfs counts its entries; only files' links are compared.
                let links = if m.is_dir() { 0 } else { m.nlink() };
                format!("{:o} {size} {links}", m.mode())
            }
            Err(error) => format!("{:?}", error.raw_os_error()),
        },
        Op::Read(n) => {
            if !plain(&at(n)) {
                return "skipped".into();
            }
            let read = fs::File::open(at(n)).and_then(|mut f| {
                let mut bytes = Vec::new();
                f.seek(SeekFrom::Start(3))?;
                f.read_to_end(&mut bytes)?;
                Ok(bytes)
            });
            match read {
                Ok(bytes) => kernel::Digest::of(&bytes).hex(),
                Err(error) => format!("{:?}", error.raw_os_error()),
            }
        }
        Op::List(n) => match fs::read_dir(at(n)) {
            Ok(entries) => {
                let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name()).collect();
                names.sort();
                format!("{names:?}")
            }
            Err(error) => format!("{:?}", error.raw_os_error()),
        },
        Op::Attribute(n, value) => {
            if !plain(&at(n)) {
                return "skipped".into();
            }
            let flags = rustix::fs::XattrFlags::empty();
            let set = rustix::fs::setxattr(at(n), "user.k", &[*value], flags);
            let mut back = [0; 10];
            let got = rustix::fs::getxattr(at(n), "user.k", &mut back[..]);
            format!("{set:?} {got:?} {back:?}")
        }
        Op::Times(n, secs) => {
            if !plain(&at(n)) {
                return "skipped".into();
            }
            let time = |secs: i64| rustix::fs::Timespec {
                tv_sec: secs,
                tv_nsec: 5,
            };
            let times = rustix::fs::Timestamps {
                last_access: time(1),
                last_modification: time(i64::from(*secs)),
            };
            let none = rustix::fs::AtFlags::empty();
            let set = rustix::fs::utimensat(rustix::fs::CWD, at(n), &times, none);
            let now = fs::metadata(at(n)).unwrap();
            format!("{set:?} {} {}", now.mtime(), now.mtime_nsec())
        }
        Op::Punch(n, offset, length) => {
            if !fs::symlink_metadata(at(n)).is_ok_and(|m| m.is_file()) {
                return "skipped".into();
            }
            use rustix::fs::FallocateFlags as F;
            told(
                fs::OpenOptions::new()
                    .write(true)
                    .open(at(n))
                    .and_then(|file| {
                        let flags = F::PUNCH_HOLE | F::KEEP_SIZE;
                        let (offset, length) = (u64::from(*offset), u64::from(*length));
                        rustix::fs::fallocate(&file, flags, offset, length)?;
                        Ok(rustix::fs::fallocate(&file, F::empty(), 0, length)?)
                    }),
            )
        }
        Op::CopyRange(a, b, length) => {
            let is_file = |n| fs::symlink_metadata(at(n)).is_ok_and(|m| m.is_file());
            if !is_file(a) || !is_file(b) {
                return "skipped".into();
            }
            let (from, to) = (
                fs::File::open(at(a)).unwrap(),
                fs::OpenOptions::new().write(true).open(at(b)),
            );
            match to {
                Ok(to) => {
                    let mut offset = 10_000;
                    let length = usize::from(*length);
                    let copied =
                        rustix::fs::copy_file_range(&from, None, &to, Some(&mut offset), length);
                    format!("{copied:?}")
                }
                Err(error) => format!("{:?}", error.raw_os_error()),
            }
        }
        Op::MapWrite(n, byte) => {
            if !fs::symlink_metadata(at(n)).is_ok_and(|m| m.is_file()) {
                return "skipped".into();
            }
            told(mapped(&at(n), *byte))
        }
        Op::Settle => "ok".into(),
        Op::Open(..) | Op::WriteOpen(..) | Op::ReadOpen(_) | Op::Close(_) => unreachable!(),
    }
}

/// Writes one byte through a shared mapping. Another program does it, because mapping is unsafe.
fn mapped(path: &Path, byte: u8) -> std::io::Result<()> {
    let program = "import mmap, os, sys\nf = open(sys.argv[1], 'r+b')\nn = os.path.getsize(sys.argv[1])\nif n:\n m = mmap.mmap(f.fileno(), n)\n m[n // 2] = int(sys.argv[2])\n m.flush()\n";
    let status = std::process::Command::new("python3")
        .args(["-c", program])
        .arg(path)
        .arg(byte.to_string())
        .stderr(std::process::Stdio::null())
        .status()?;
    if status.success() {
        Ok(())
    } else {
        Err(std::io::Error::from_raw_os_error(libc::EACCES))
    }
}

fn fill(base: &Path) {
    fs::create_dir_all(base.join("base")).unwrap();
    fs::create_dir_all(base.join("d/e")).unwrap();
    for name in ["base/x", "base/y", "d/a", "d/e/f", "d/e/z", "b"] {
        fs::write(base.join(name), format!("base {name}")).unwrap();
    }
    // Other names of what the operations know.
    fs::hard_link(base.join("b"), base.join("base/other")).unwrap();
    fs::hard_link(base.join("d/a"), base.join("other")).unwrap();
}

/// How many sequences are tried: `KAIROS_FILES_CASES`, or a hundred.
fn cases() -> u32 {
    let asked = std::env::var("KAIROS_FILES_CASES").ok();
    asked.map_or(100, |cases| {
        cases.parse().expect("KAIROS_FILES_CASES is a number")
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn like_a_plain_directory(
        ops in proptest::collection::vec(op(), 1..60),
        quiet in prop_oneof![Just(1u32), Just(250), Just(1_000_000)],
        reads in prop_oneof![Just(Reads::Open), Just(Reads::First)],
    ) {
        let disk = Disk::new();
        fill(&disk.base());
        let world = World::on(disk, Options { quiet: Duration::from_millis(u64::from(quiet)), reads, ..Options::default() });
        // What of names that nobody has looked at is still open is in docs/files.md; those that are known by then have a test of their own.
        let _ = snapshot(&world.inside());
        let plain = scratch();
        fill(plain.path());
        let (mut ours, mut theirs) = (Actor::new(&world.inside()), Actor::new(plain.path()));
        for (number, op) in ops.iter().enumerate() {
            if matches!(op, Op::Settle) {
                world.settle();
            }
            prop_assert_eq!(ours.act(op), theirs.act(op), "operation {}: {:?}", number, op);
        }
        drop((ours, theirs));
        prop_assert_eq!(snapshot(&world.inside()), snapshot(plain.path()));
        world.settle();
        let seen = (world.seen(), world.failed());
        prop_assert_eq!(snapshot(&world.inside()), snapshot(plain.path()), "after settling");
        prop_assert_eq!(snapshot(&world.base()), snapshot(plain.path()), "the host; {:?}", seen);
    }

    #[test]
    fn a_killed_session_comes_back(
        ops in proptest::collection::vec(op(), 1..40),
        last_step in prop_oneof![Just(usize::MAX), 0usize..80],
        reads in prop_oneof![Just(Reads::Open), Just(Reads::First)],
        durable in proptest::bool::ANY,
    ) {
        let disk = Disk::new();
        fill(&disk.base());
        let taken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&taken);
        let steps = move |step| {
            let go = count.fetch_add(1, Ordering::SeqCst) < last_step;
            if go { Ok(()) } else { Err(CommitError::Stopped(step)) }
        };
        let slow = || Options { reads, durable, ..slow() };
        let crashing = Options { steps: Some(Arc::new(steps)), ..slow() };
        let world = World::on(Arc::clone(&disk), crashing);
        let _ = snapshot(&world.inside());
        let plain = scratch();
        fill(plain.path());
        let (mut ours, mut theirs) = (Actor::new(&world.inside()), Actor::new(plain.path()));
        for op in &ops {
            if matches!(op, Op::Settle) {
                world.settle();
            }
            if taken.load(Ordering::SeqCst) > last_step {
                break;
            }
            ours.act(op);
            theirs.act(op);
        }
        drop((ours, theirs, world));
        let world = World::on(Arc::clone(&disk), slow());
        let ends = world.trees.interrupted();
        prop_assert_eq!(snapshot(&world.inside()), snapshot(plain.path()), "the view; {:?}", ends);
        world.settle();
        let seen = world.seen();
        prop_assert_eq!(snapshot(&world.base()), snapshot(plain.path()), "the host; {:?} {:?}", ends, seen);
        prop_assert_eq!(snapshot(&world.inside()), snapshot(plain.path()), "the view, settled");
    }
}

/// What a settlement meets while the kernel has not told yet that a file was closed stays staged; a later change of it is
/// over what was put in place then, under every name. When that is told is the kernel's affair, so it is tried often.
#[test]
fn two_names_are_changed_again_after_a_settlement() {
    for _ in 0..20 {
        let disk = Disk::new();
        fill(&disk.base());
        let world = World::on(disk, slow());
        let _ = snapshot(&world.inside());
        let mut actor = Actor::new(&world.inside());
        for op in [
            Op::Truncate(4, 6911),
            Op::Settle,
            Op::Open(1, 13),
            Op::Settle,
        ] {
            if matches!(op, Op::Settle) {
                world.settle();
            }
            assert_eq!(actor.act(&op), "ok");
        }
        assert_eq!(actor.act(&Op::Append(4, 212)), "ok");
        actor.act(&Op::Times(4, 2352));
        drop(actor);
        world.settle();
        assert_eq!(world.failed(), Vec::<String>::new());
        assert_eq!(world.base().join("other").metadata().unwrap().len(), 6921);
        assert_eq!(snapshot(&world.base()), snapshot(&world.inside()));
    }
}

/// What is done inside and in a plain directory, and decided where it says so and at last, is the same everywhere.
fn decided_where_it_says_so(ops: &[Op]) {
    let disk = Disk::new();
    fill(&disk.base());
    // An agent that is faster than the decision is in docs/files.md.
    let world = World::on(disk, slow());
    let plain = scratch();
    fill(plain.path());
    let (mut ours, mut theirs) = (Actor::new(&world.inside()), Actor::new(plain.path()));
    for op in ops {
        if matches!(op, Op::Settle) {
            world.settle();
        }
        assert_eq!(ours.act(op), theirs.act(op), "{op:?} of {ops:?}");
    }
    drop((ours, theirs));
    assert_eq!(snapshot(&world.inside()), snapshot(plain.path()), "{ops:?}");
    world.settle();
    assert_eq!(world.failed(), Vec::<String>::new(), "{ops:?}");
    assert_eq!(snapshot(&world.inside()), snapshot(plain.path()), "{ops:?}");
    assert_eq!(snapshot(&world.base()), snapshot(plain.path()), "{ops:?}");
}

/// What this commit did itself to one name of a file is no change of the owner's when another name of it
/// is put in its place.
#[test]
fn a_name_moves_whose_file_gets_another_time_under_another_name() {
    for (one, other) in [(1, 4), (4, 1)] {
        for at in [1, 4] {
            decided_where_it_says_so(&[
                Op::Exchange(one, other),
                Op::Times(at, 0),
                Op::Chmod(at, 0o600),
            ]);
        }
    }
}

/// A name that nobody has looked at is another name of what is changed under a first one, whatever becomes of that.
#[test]
fn names_that_nobody_has_looked_at_change_too() {
    for ops in [
        &[Op::Times(4, 4), Op::Settle, Op::Remove(4)][..],
        &[Op::Times(4, 4), Op::Remove(4)],
        &[Op::Link(4, 0), Op::Write(0, 0, 0), Op::Settle],
        &[Op::Append(1, 7), Op::Settle, Op::Append(1, 8)],
        &[Op::Rename(4, 0), Op::Append(0, 7), Op::Settle],
        &[Op::Rename(3, 8), Op::Append(9, 7), Op::Settle],
        &[Op::Rename(12, 0), Op::Append(1, 7), Op::Settle],
        &[Op::Chmod(1, 0o600), Op::Settle, Op::Rename(1, 0)],
        &[Op::Attribute(1, 1), Op::Settle],
        &[Op::Remove(1), Op::Write(1, 3, 3), Op::Settle],
        &[
            Op::Exchange(1, 4),
            Op::Append(1, 1),
            Op::Settle,
            Op::Append(4, 1),
        ],
    ] {
        decided_where_it_says_so(ops);
    }
}
