//! The same random operations on a tree of ours and on a plain directory give the same answers and
//! the same tree; and after a settlement the owner's directory is that tree too.

use std::ffi::CString;
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::world::{Disk, World, snapshot};
use files::{CommitError, Options};
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
    Settle,
}

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
        2 => n.prop_map(Op::List),
        1 => Just(Op::Settle),
    ]
}

/// Does one operation and tells what came of it, comparably.
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
        Op::Settle => "ok".into(),
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
    fn like_a_plain_directory(ops in proptest::collection::vec(op(), 1..60)) {
        let world = World::new(fill);
        // A name that nobody has looked at is not known to be one of a file that is changed.
        let _ = snapshot(&world.inside());
        let plain = tempfile::tempdir().unwrap();
        fill(plain.path());
        for (number, op) in ops.iter().enumerate() {
            if matches!(op, Op::Settle) {
                world.settle();
            }
            let (ours, theirs) = (act(&world.inside(), op), act(plain.path(), op));
            prop_assert_eq!(ours, theirs, "operation {}: {:?}", number, op);
        }
        prop_assert_eq!(snapshot(&world.inside()), snapshot(plain.path()));
        world.settle();
        let seen = world.seen();
        prop_assert_eq!(snapshot(&world.inside()), snapshot(plain.path()), "after settling");
        prop_assert_eq!(snapshot(&world.base()), snapshot(plain.path()), "the host; {:?}", seen);
    }

    #[test]
    fn a_killed_session_comes_back(
        ops in proptest::collection::vec(op(), 1..40),
        last_step in prop_oneof![Just(usize::MAX), 0usize..80],
    ) {
        let disk = Disk::new();
        fill(&disk.base());
        let taken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&taken);
        let steps = move |step| {
            let go = count.fetch_add(1, Ordering::SeqCst) < last_step;
            if go { Ok(()) } else { Err(CommitError::Stopped(step)) }
        };
        let slow = || Options { quiet: Duration::from_secs(1000), ..Options::default() };
        let crashing = Options { steps: Some(Arc::new(steps)), ..slow() };
        let world = World::on(Arc::clone(&disk), crashing);
        let _ = snapshot(&world.inside());
        let plain = tempfile::tempdir().unwrap();
        fill(plain.path());
        for op in &ops {
            if matches!(op, Op::Settle) {
                world.settle();
            }
            if taken.load(Ordering::SeqCst) > last_step {
                break;
            }
            act(&world.inside(), op);
            act(plain.path(), op);
        }
        drop(world);
        let world = World::on(Arc::clone(&disk), slow());
        let ends = world.trees.interrupted();
        prop_assert_eq!(snapshot(&world.inside()), snapshot(plain.path()), "the view; {:?}", ends);
        world.settle();
        let seen = world.seen();
        prop_assert_eq!(snapshot(&world.base()), snapshot(plain.path()), "the host; {:?} {:?}", ends, seen);
        prop_assert_eq!(snapshot(&world.inside()), snapshot(plain.path()), "the view, settled");
    }
}
