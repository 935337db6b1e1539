//! What real programs do: git, hard links, atomic saves, special files, odd names.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use crate::world::{World, run, snapshot};

#[test]
fn f4_git_works_and_what_it_did_is_what_the_host_gets() {
    let world = World::new(|base| {
        run(
            base,
            "git init -q -b main . && git config user.email a@b.c && git config maintenance.auto false && git config gc.auto 0 && git config user.name n \
             && mkdir d && echo one > d/f && echo top > top && git add . && git commit -qm one \
             && git switch -q -c other && git mv d e && echo two >> e/f && git commit -qam two && git switch -q main",
        );
    });
    let inside = world.inside();
    assert_eq!(run(&inside, "git status --porcelain"), "");
    run(
        &inside,
        "for i in $(seq 25); do git switch -q other; echo $i >> e/f; git commit -qam $i; \
         git switch -q main; echo $i >> top; git commit -qam m$i; done; git fsck --strict",
    );
    let status = run(&inside, "git status --porcelain");
    let tree = run(
        &inside,
        "ls -laR . --ignore=.git; git log --oneline | head -3",
    );
    assert_eq!(status, "", "{tree} {:?}", world.seen());
    world.settle();
    assert_eq!(
        run(&world.base(), "git fsck --strict && git status --porcelain"),
        ""
    );
    assert_eq!(
        run(&world.base(), "git rev-list --all --count").trim(),
        "52"
    );
    let tree = |lines: Vec<String>| -> Vec<String> {
        lines
            .into_iter()
            .filter(|l| !l.starts_with(".git/index "))
            .collect()
    };
    let (host, view) = (tree(snapshot(&world.base())), tree(snapshot(&inside)));
    let only = |a: &[String], b: &[String]| -> Vec<String> {
        a.iter().filter(|line| !b.contains(line)).cloned().collect()
    };
    assert_eq!(
        (only(&host, &view), only(&view, &host)),
        (vec![], vec![]),
        "{:?}",
        world.seen()
    );
    // And on, over what was committed.
    run(
        &inside,
        "git merge -q other -m merge && git gc -q && git fsck --strict",
    );
    world.settle();
    run(&world.base(), "git fsck --strict");
}

#[test]
fn f5_the_index_dance_never_misses() {
    let world = World::new(|base| fs::write(base.join("index"), "0").unwrap());
    let inside = world.inside();
    for n in 1..=1000 {
        let mut lock = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(inside.join("index.lock"))
            .unwrap();
        lock.write_all(n.to_string().as_bytes()).unwrap();
        drop(lock);
        fs::rename(inside.join("index.lock"), inside.join("index")).unwrap();
        assert_eq!(
            fs::read_to_string(inside.join("index")).unwrap(),
            n.to_string()
        );
        if n % 100 == 0 {
            world.settle();
            assert_eq!(
                fs::read_to_string(world.base().join("index")).unwrap(),
                n.to_string()
            );
        }
    }
}

#[test]
fn f3_hard_links_keep_their_identity_through_copy_up() {
    let world = World::new(|base| {
        fs::write(base.join("a"), "shared").unwrap();
        fs::hard_link(base.join("a"), base.join("b")).unwrap();
    });
    let inside = world.inside();
    let before = fs::metadata(inside.join("a")).unwrap();
    assert_eq!(
        (before.nlink(), before.ino()),
        (2, fs::metadata(inside.join("b")).unwrap().ino())
    );
    fs::OpenOptions::new()
        .append(true)
        .open(inside.join("a"))
        .unwrap()
        .write_all(b"!")
        .unwrap();
    assert_eq!(fs::read_to_string(inside.join("b")).unwrap(), "shared!");
    fs::hard_link(inside.join("b"), inside.join("c")).unwrap();
    let after: Vec<u64> = ["a", "b", "c"]
        .iter()
        .map(|n| fs::metadata(inside.join(n)).unwrap().ino())
        .collect();
    assert_eq!(after, [before.ino(); 3]);
    assert_eq!(fs::metadata(inside.join("a")).unwrap().nlink(), 3);
    world.settle();
    for name in ["a", "b", "c"] {
        assert_eq!(
            fs::read_to_string(world.base().join(name)).unwrap(),
            "shared!",
            "{name}"
        );
    }
    fs::remove_file(inside.join("a")).unwrap();
    world.settle();
    assert_eq!(fs::read_to_string(inside.join("b")).unwrap(), "shared!");
    fs::write(inside.join("c"), "other").unwrap();
    assert_eq!(fs::read_to_string(inside.join("b")).unwrap(), "other");
}

#[test]
fn open_unlinked_truncated_sparse_and_mapped_files() {
    let world = World::new(|base| fs::write(base.join("f"), vec![7; 10_000]).unwrap());
    let inside = world.inside();
    let mut open = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(inside.join("f"))
        .unwrap();
    fs::remove_file(inside.join("f")).unwrap();
    open.write_all_at(b"still here", 100).unwrap();
    let mut text = [0; 10];
    open.read_exact_at(&mut text, 100).unwrap();
    assert_eq!(&text, b"still here");
    open.set_len(5).unwrap();
    let mut rest = Vec::new();
    open.seek(SeekFrom::Start(0)).unwrap();
    open.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, [7; 5]);
    drop(open);
    let sparse = fs::File::create(inside.join("sparse")).unwrap();
    sparse.set_len(1 << 20).unwrap();
    sparse.write_all_at(b"end", (1 << 20) - 3).unwrap();
    assert!(rustix::fs::seek(&sparse, rustix::fs::SeekFrom::Data(0)).unwrap() > 0);
    rustix::fs::fallocate(&sparse, rustix::fs::FallocateFlags::empty(), 1 << 20, 4096).unwrap();
    assert_eq!(sparse.metadata().unwrap().len(), (1 << 20) + 4096);
    run(&inside, "python3 -c \"
import mmap, os
f = open('map', 'w+b'); f.write(b'a' * 8192); f.flush()
m = mmap.mmap(f.fileno(), 8192); m[4096:4101] = b'hello'; m.flush(); m.close(); f.close()
assert open('map', 'rb').read()[4096:4101] == b'hello'
a = os.open('log', os.O_CREAT | os.O_APPEND | os.O_WRONLY); b = os.open('log', os.O_APPEND | os.O_WRONLY)
os.write(a, b'1'); os.write(b, b'2'); os.write(a, b'3')
assert open('log').read() == '123'
os.setxattr('log', 'user.k', b'v'); assert os.getxattr('log', 'user.k') == b'v'; assert os.listxattr('log') == ['user.k']
import fcntl
fcntl.lockf(a, fcntl.LOCK_EX | fcntl.LOCK_NB); fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)
os.copy_file_range(os.open('map', os.O_RDONLY), os.open('copy', os.O_CREAT | os.O_RDWR), 8192)
assert os.path.getsize('copy') == 8192
\"");
    world.settle();
    assert!(!world.base().join("f").exists());
    assert_eq!(snapshot(&world.base()), snapshot(&inside));
    assert_eq!(
        run(
            &world.base(),
            "getfattr --only-values -n user.k log 2>/dev/null || python3 -c \"import os; print(os.getxattr('log','user.k').decode(), end='')\""
        ),
        "v"
    );
}

#[test]
fn special_files_and_odd_names() {
    let world = World::new(|base| {
        fs::write(
            base.join(std::ffi::OsStr::from_bytes(b"bad\xff\xfename")),
            "x",
        )
        .unwrap();
    });
    let inside = world.inside();
    let odd = inside.join(std::ffi::OsStr::from_bytes(b"bad\xff\xfename"));
    assert_eq!(fs::read_to_string(&odd).unwrap(), "x");
    fs::write(&odd, "changed").unwrap();
    fs::write(inside.join("new\nline"), "n").unwrap();
    fs::write(inside.join("n".repeat(255)), "long").unwrap();
    assert_eq!(
        fs::write(inside.join("n".repeat(256)), "too long")
            .unwrap_err()
            .raw_os_error(),
        Some(libc::ENAMETOOLONG)
    );
    run(
        &inside,
        "mkfifo -m 640 pipe && (echo through > pipe &) && test \"$(cat pipe)\" = through",
    );
    let _socket = std::os::unix::net::UnixListener::bind(inside.join("socket")).unwrap();
    std::os::unix::net::UnixStream::connect(inside.join("socket")).unwrap();
    fs::write(inside.join("A"), "upper").unwrap();
    fs::write(inside.join("a"), "lower").unwrap();
    world.settle();
    let seen = world.seen();
    assert!(
        seen.contains(&"released modify bad\\xff\\xfename".to_string()),
        "{seen:?}"
    );
    let without_socket: Vec<String> = snapshot(&inside)
        .into_iter()
        .filter(|l| !l.starts_with("socket"))
        .collect();
    assert_eq!(snapshot(&world.base()), without_socket);
    let exclusive = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o640)
        .open(inside.join("A"));
    assert_eq!(exclusive.unwrap_err().raw_os_error(), Some(libc::EEXIST));
}

#[test]
fn f8_owner_mode_and_attributes_survive_a_commit() {
    let world = World::new(|base| {
        fs::write(base.join("f"), "old").unwrap();
        run(
            base,
            "(chown 1001:1002 f || true) && chmod 640 f && python3 -c \"import os; os.setxattr('f','user.note',b'kept')\"",
        );
    });
    let owner = run(&world.base(), "stat -c '%u:%g %a' f");
    fs::write(world.inside().join("f"), "new").unwrap();
    run(&world.inside(), "umask 027 && echo x > made && mkdir dir");
    world.settle();
    let me = run(&world.base(), "echo $(id -u):$(id -g)")
        .trim()
        .to_string();
    assert_eq!(
        run(&world.base(), "stat -c '%u:%g %a' f made dir"),
        format!(
            "{owner}{me} 640
{me} 750
"
        )
    );
    assert_eq!(
        run(
            &world.base(),
            "python3 -c \"import os; print(os.getxattr('f','user.note').decode())\""
        ),
        "kept\n"
    );
    assert_eq!(fs::read_to_string(world.base().join("f")).unwrap(), "new");
}

#[test]
fn listings_are_stable_while_names_change() {
    let world = World::new(|base| {
        for n in 0..2000 {
            fs::write(base.join(format!("f{n}")), "").unwrap();
        }
    });
    let inside = world.inside();
    let mut seen = std::collections::BTreeSet::new();
    for (count, entry) in fs::read_dir(&inside).unwrap().enumerate() {
        let name = entry.unwrap().file_name();
        assert!(seen.insert(name.clone()), "{name:?} came twice");
        if count % 3 == 0 {
            fs::remove_file(inside.join(&name)).unwrap();
            fs::write(inside.join(format!("new{count}")), "").unwrap();
        }
    }
    let missing = (0..2000)
        .filter(|n| !seen.contains(std::ffi::OsStr::new(&format!("f{n}"))))
        .count();
    assert_eq!(missing, 0, "names that were there all the time are listed");
}

#[test]
fn exchange_and_no_replace() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let world = World::new(|base| {
        fs::create_dir(base.join("d")).unwrap();
        fs::write(base.join("d/x"), "in d").unwrap();
        fs::write(base.join("f"), "f").unwrap();
    });
    let inside = world.inside();
    let swap = |flags| renameat_with(CWD, inside.join("d"), CWD, inside.join("f"), flags);
    assert_eq!(swap(RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
    swap(RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read_to_string(inside.join("f/x")).unwrap(), "in d");
    assert_eq!(fs::read_to_string(inside.join("d")).unwrap(), "f");
    world.settle();
    assert_eq!(snapshot(&world.base()), snapshot(&inside));
}

#[test]
fn a_writer_is_never_cut_off_by_a_commit() {
    let world = World::new(|_| {});
    let inside = world.inside();
    let mut file = fs::File::create(inside.join("f")).unwrap();
    file.write_all(b"one ").unwrap();
    world.settle();
    let mut reader = fs::File::open(inside.join("f")).unwrap();
    file.write_all(b"two ").unwrap();
    world.settle();
    file.write_all(b"three").unwrap();
    drop(file);
    world.wait_until("the rest", || {
        fs::read_to_string(world.base().join("f")).unwrap() == "one two three"
    });
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "one two three");
    fs::write(inside.join("f"), "four").unwrap();
    reader.seek(SeekFrom::Start(0)).unwrap();
    text.clear();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "four");
    world.settle();
    assert_eq!(fs::read_to_string(world.base().join("f")).unwrap(), "four");
    let log = fs::read_to_string(world.session.dir().log()).unwrap();
    assert!(!log.contains("conflict"), "{log}");
}

#[test]
fn a_reader_of_what_was_given_another_mode_does_not_bring_the_old_one_back() {
    let world = World::new(|base| {
        fs::write(base.join("a"), "shared").unwrap();
        fs::hard_link(base.join("a"), base.join("b")).unwrap();
    });
    let inside = world.inside();
    let _ = snapshot(&inside);
    let mut open = fs::File::open(inside.join("a")).unwrap();
    let mut read = || {
        // Not from the kernel's memory, so that we are asked.
        let all = std::num::NonZeroU64::new(4096);
        rustix::fs::fadvise(&open, 0, all, rustix::fs::Advice::DontNeed).unwrap();
        let mut text = String::new();
        open.seek(SeekFrom::Start(0)).unwrap();
        open.read_to_string(&mut text).unwrap();
        text
    };
    assert_eq!(read(), "shared");
    run(&inside, "chmod 600 a");
    world.settle();
    assert_eq!(read(), "shared");
    // Attributes are asked for anew after a change.
    run(&inside, "touch -a a");
    let wanted = ["a 0600 \"shared\"", "b 0600 \"shared\""];
    assert_eq!(snapshot(&inside), wanted);
    world.settle();
    assert_eq!(snapshot(&world.base()), wanted);
}
