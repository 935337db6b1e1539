//! Cases of the design, by their numbers.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::world::{World, run, snapshot};

/// Names, times and sizes of everything.
fn details(dir: &Path) -> String {
    run(
        dir,
        "find . -printf '%P %y %m %u:%g %s %A@ %T@ %C@ %l\\n' | sort",
    )
}

#[test]
fn f1_git_moves_directories_between_branches() {
    let world = World::new(|base| {
        run(
            base,
            "git init -q -b main . && git config user.email a@b.c && git config user.name n && git config gc.auto 0 \
             && mkdir -p src/deep && echo a > src/a && echo b > src/deep/b && git add . && git commit -qm one \
             && git switch -q -c moved && git mv src lib && git mv lib/deep top && git commit -qm two && git switch -q main",
        );
    });
    let inside = world.inside();
    run(
        &inside,
        "python3 -c \"import os; os.rename('src', 'elsewhere'); os.rename('elsewhere', 'src')\" \
         && git switch -q moved && test -e lib/a -a -e top/b -a ! -e src && git switch -q main && git switch -q moved",
    );
    world.settle();
    assert_eq!(
        run(&world.base(), "git status --porcelain; git ls-files"),
        "lib/a\ntop/b\n"
    );
    assert!(!world.base().join("src").exists());
}

#[test]
fn f6_kinds_replace_each_other() {
    let world = World::new(|base| {
        fs::create_dir_all(base.join("again/old")).unwrap();
        fs::write(base.join("again/x"), "old").unwrap();
        fs::write(base.join("file"), "a file").unwrap();
        fs::create_dir_all(base.join("dir/sub")).unwrap();
        fs::write(base.join("dir/sub/y"), "y").unwrap();
        std::os::unix::fs::symlink("file", base.join("link")).unwrap();
    });
    let (inside, base) = (world.inside(), world.base());
    // A directory that is removed and made again shows nothing of the old one.
    fs::remove_dir_all(inside.join("again")).unwrap();
    fs::create_dir(inside.join("again")).unwrap();
    fs::write(inside.join("again/new"), "new").unwrap();
    // File by directory, directory by link, link by FIFO.
    fs::remove_file(inside.join("file")).unwrap();
    fs::create_dir(inside.join("file")).unwrap();
    fs::write(inside.join("file/in"), "in").unwrap();
    fs::remove_dir_all(inside.join("dir")).unwrap();
    std::os::unix::fs::symlink("again", inside.join("dir")).unwrap();
    fs::remove_file(inside.join("link")).unwrap();
    run(&inside, "mkfifo -m 600 link");
    let view = snapshot(&inside);
    assert_eq!(
        view,
        [
            "again 0755 dir",
            "again/new 0644 \"new\"",
            "dir -> again",
            "file 0755 dir",
            "file/in 0644 \"in\"",
            "link 0600 fifo",
        ]
    );
    // Neither the diff nor the commit waits at the FIFO.
    assert_eq!(world.trees.changes().len(), 9);
    world.settle();
    assert_eq!(snapshot(&base), view);
    assert_eq!(snapshot(&inside), view);
}

#[test]
fn f7_reading_leaves_no_trace() {
    let world = World::new(|base| {
        run(
            base,
            "git init -q . && git config user.email a@b.c && git config user.name n && mkdir d && echo x > d/x && ln -s d/x l \
             && touch -d 2001-02-03 d/x d && git add . && git commit -qm one && touch -a -d 2001-02-03 d/x d .git/HEAD",
        );
    });
    // Looking at a directory is an access, too; the second look is none.
    let _ = details(&world.base());
    let before = details(&world.base());
    run(
        &world.inside(),
        "ls -laR . > /dev/null; grep -r x . > /dev/null; find . -type f -exec stat {} + > /dev/null; cat l; git log > /dev/null; \
         test -w d/x; touch -c nothing; true",
    );
    world.settle();
    assert_eq!(world.trees.changes().len(), 0);
    assert_eq!(details(&world.base()), before);
}

#[test]
fn f8_attributes_go_where_their_file_goes() {
    let set = |path: &Path, name: &str| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(path, "user.note", name.as_bytes(), flags).unwrap();
    };
    let world = World::new(|base| {
        fs::create_dir_all(base.join("dir/in")).unwrap();
        for name in ["moved", "changed", "replaced", "dir/in/file"] {
            fs::write(base.join(name), name).unwrap();
            set(&base.join(name), name);
        }
        set(&base.join("dir"), "dir");
    });
    let (inside, base) = (world.inside(), world.base());
    fs::rename(inside.join("moved"), inside.join("arrived")).unwrap();
    fs::write(inside.join("changed"), "anew").unwrap();
    fs::rename(inside.join("changed"), inside.join("changed and moved")).unwrap();
    fs::rename(inside.join("dir"), inside.join("folder")).unwrap();
    fs::write(inside.join("new"), "new").unwrap();
    fs::rename(inside.join("new"), inside.join("replaced")).unwrap();
    let seen = |dir: &Path| -> Vec<String> {
        let names = [
            "arrived",
            "changed and moved",
            "folder",
            "folder/in/file",
            "replaced",
        ];
        let note = |name: &&str| {
            let mut value = [0; 32];
            match rustix::fs::getxattr(dir.join(name), "user.note", &mut value[..]) {
                Ok(length) => String::from_utf8_lossy(&value[..length]).into_owned(),
                Err(error) => format!("error {}", error.raw_os_error()),
            }
        };
        names.iter().map(note).collect()
    };
    let view = seen(&inside);
    assert_eq!(view, ["moved", "changed", "dir", "dir/in/file", "error 61"]);
    world.settle();
    assert_eq!(seen(&base), view);
    assert_eq!(seen(&inside), view);
}

#[test]
fn f8_an_access_list_survives_a_commit() {
    // user::rw- user:1001:r-- group::r-- mask::rw- other::---
    let list: Vec<u8> = [
        (1u16, 6u16, u32::MAX),
        (2, 4, 1001),
        (4, 4, u32::MAX),
        (16, 6, u32::MAX),
        (32, 0, u32::MAX),
    ]
    .iter()
    .fold(
        2u32.to_le_bytes().to_vec(),
        |mut bytes, (tag, rights, id)| {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(rights.to_le_bytes());
            bytes.extend(id.to_le_bytes());
            bytes
        },
    );
    let name = "system.posix_acl_access";
    let world = World::new(|base| {
        fs::write(base.join("f"), "old").unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(base.join("f"), name, &list, flags).unwrap();
    });
    fs::write(world.inside().join("f"), "new").unwrap();
    world.settle();
    let mut found = vec![0; 256];
    let length = rustix::fs::getxattr(world.base().join("f"), name, &mut found[..]).unwrap();
    assert_eq!(found[..length], list);
    assert_eq!(fs::read_to_string(world.base().join("f")).unwrap(), "new");
    let mode = fs::metadata(world.base().join("f")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o660);
}

#[test]
fn f10_nothing_staged_is_ever_run() {
    let world = World::new(|base| {
        run(
            base,
            "git init -q . && git config user.email a@b.c && git config user.name n && echo x > x.c && git add . && git commit -qm one",
        );
    });
    let (inside, base) = (world.inside(), world.base());
    let mark = world.disk.dir.path().join("ran");
    let program = world.disk.dir.path().join("program");
    fs::write(
        &program,
        format!("#!/bin/sh\ntouch {}\ncat\n", mark.display()),
    )
    .unwrap();
    run(world.disk.dir.path(), "chmod +x program");
    let config = format!(
        "{}[filter \"x\"]\n\tclean = {program}\n\tsmudge = {program}\n\trequired = true\n[diff \"x\"]\n\ttextconv = {program}\n\
         [core]\n\tfsmonitor = {program}\n\tpager = {program}\n\tsshCommand = {program}\n",
        fs::read_to_string(inside.join(".git/config")).unwrap(),
        program = program.display()
    );
    fs::write(inside.join(".git/config"), config).unwrap();
    fs::write(inside.join(".gitattributes"), "*.c filter=x diff=x\n").unwrap();
    fs::write(inside.join("x.c"), "changed").unwrap();
    fs::write(inside.join("y.c"), "new").unwrap();
    let told: String = world
        .trees
        .changes()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(told.contains("+changed"), "{told}");
    world.settle();
    assert_eq!(fs::read_to_string(base.join("x.c")).unwrap(), "changed");
    assert!(
        fs::read_to_string(base.join(".git/config"))
            .unwrap()
            .contains("fsmonitor")
    );
    assert!(!mark.exists(), "something staged was run");
    // The witness works: git itself would have.
    run(&base, "git status > /dev/null 2>&1; true");
    assert!(mark.exists());
}
