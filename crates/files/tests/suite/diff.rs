//! A diff is a patch: `git apply` makes the owner's directory what the agent sees.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::world::{Disk, World, run, slow, snapshot};

#[test]
fn git_applies_it() {
    let disk = Disk::new();
    let base = disk.base();
    fs::create_dir_all(base.join("dir/sub")).unwrap();
    let long: String = (0..40).map(|n| format!("line {n}\n")).collect();
    for name in [
        "modified",
        "deleted",
        "moved",
        "moved and changed",
        "mode",
        "dir/in",
        "dir/sub/x",
        "to link",
    ] {
        fs::write(base.join(name), format!("{name}\n{long}")).unwrap();
    }
    fs::write(base.join("no newline"), "old").unwrap();
    fs::write(base.join("binary"), b"\0old").unwrap();
    fs::write(base.join("latin"), b"caf\xe9\r\n\x1b[31mred\rline\n").unwrap();
    std::os::unix::fs::symlink("modified", base.join("link")).unwrap();
    let world = World::on(disk, slow());
    let inside = world.inside();
    fs::write(inside.join("modified"), format!("changed\n{long}end\n")).unwrap();
    fs::remove_file(inside.join("deleted")).unwrap();
    fs::rename(inside.join("moved"), inside.join("elsewhere")).unwrap();
    fs::rename(
        inside.join("moved and changed"),
        inside.join("changed and moved"),
    )
    .unwrap();
    run(&inside, "echo tail >> 'changed and moved'");
    fs::set_permissions(inside.join("mode"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(inside.join("dir"), inside.join("renamed")).unwrap();
    fs::write(inside.join("no newline"), "new").unwrap();
    fs::write(
        inside.join("latin"),
        "caf\u{e9}\r\n\u{202e}\x1b[32mred\rline\n",
    )
    .unwrap();
    fs::write(inside.join("new latin"), b"\xe9\r\n\x07\xff\r").unwrap();
    fs::write(inside.join("created\twith tab"), "c\n").unwrap();
    fs::write(inside.join("empty"), "").unwrap();
    fs::remove_file(inside.join("link")).unwrap();
    std::os::unix::fs::symlink("elsewhere", inside.join("link")).unwrap();
    fs::remove_file(inside.join("to link")).unwrap();
    std::os::unix::fs::symlink("mode", inside.join("to link")).unwrap();
    std::os::unix::fs::symlink("mode", inside.join("new link")).unwrap();
    fs::create_dir(inside.join("scripts")).unwrap();
    fs::write(
        inside.join("package.json"),
        "{\"scripts\": {\"postinstall\": \"node evil.js\"}}\n",
    )
    .unwrap();
    let view = snapshot(&inside);
    let changes = world.trees.changes();
    let bytes: Vec<u8> = changes.iter().flat_map(files::Change::patch).collect();
    let patch = String::from_utf8_lossy(&bytes);
    for line in [
        "rename from moved\n",
        "rename from dir/sub/x\n",
        "similarity index 100%\n",
        "# runs: scripts.postinstall: node evil.js\n",
        "# rename dir dir to renamed\n",
        "deleted file mode 100644\n",
        "new file mode 120000\n",
    ] {
        assert!(patch.contains(line), "{line} is not in\n{patch}");
    }
    let renames = changes.iter().filter(|c| c.operation == "rename").count();
    assert_eq!(renames, 6, "{patch}");
    let as_json = serde_json::to_string(&changes).unwrap();
    assert!(
        as_json.contains("\"runs\":[{\"entry\":\"scripts.postinstall\""),
        "{as_json}"
    );
    fs::write(world.disk.dir.path().join("patch"), &bytes).unwrap();
    run(&world.base(), "git apply -v ../patch");
    let files = |lines: Vec<String>| -> Vec<String> {
        lines
            .into_iter()
            .filter(|line| !line.ends_with(" dir"))
            .collect()
    };
    assert_eq!(files(snapshot(&world.base())), files(view));
}

#[test]
fn what_is_no_text_and_what_the_owner_changed_is_said() {
    let world = World::on(
        {
            let disk = Disk::new();
            fs::write(disk.base().join("binary"), b"\0old").unwrap();
            fs::write(disk.base().join("both"), "old\n").unwrap();
            disk
        },
        slow(),
    );
    fs::write(world.inside().join("binary"), b"\0new1").unwrap();
    fs::write(world.inside().join("both"), "the agent's\n").unwrap();
    fs::write(world.base().join("both"), "the owner's, longer\n").unwrap();
    run(&world.inside(), "mkfifo pipe; ln both other");
    let changes = world.trees.changes();
    let text: String = changes.iter().map(ToString::to_string).collect();
    assert!(
        text.contains("Binary files a/binary and b/binary differ (4 to 5 bytes)\n"),
        "{text}"
    );
    assert!(
        text.contains("# conflict: both was changed by its owner, too\n"),
        "{text}"
    );
    // Against what the agent began with, not against what the owner has made of it.
    assert!(text.contains("-old\n+the agent's\n"), "{text}");
    assert!(text.contains("# new fifo pipe, mode 010644\n"), "{text}");
    assert!(text.contains("# same file as: both\n"), "{text}");
}

#[test]
fn attributes_are_said_and_git_applies_the_rest() {
    let disk = Disk::new();
    for name in ["list", "both", "gone", "time"] {
        fs::write(disk.base().join(name), "text\n").unwrap();
    }
    run(
        &disk.base(),
        "python3 -c \"import os; os.setxattr('gone', 'user.k', b'old')\"",
    );
    let world = World::on(disk, slow());
    // What `setfacl -m u:65534:rw,m::rw list` does.
    run(
        &world.inside(),
        "python3 -c \"import os, struct; n = 2**32-1; os.setxattr('list', 'system.posix_acl_access', struct.pack('<I', 2) + \
         b''.join(struct.pack('<HHI', *one) for one in [(1, 6, n), (2, 6, 65534), (4, 4, n), (16, 6, n), (32, 4, n)])); \
         os.setxattr('both', 'user.k', b'a\\nb\\x1b[31m'); os.removexattr('gone', 'user.k')\"; \
         echo more >> both; touch -d 2001-01-01 time",
    );
    let changes = world.trees.changes();
    let patch: String = changes.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(patch, @r#"
    # access list of list: user::rw-,user:65534:rw-,group::r--,mask::rw-,other::r-- (before: none)
    # mode of list: 100664 (before: 100644)
    # user.k of gone: none (before: "old")
    # user.k of both: "a\nb\u{1b}[31m" (before: none)
    diff --git a/both b/both
    --- a/both
    +++ b/both
    @@ -1 +1,2 @@
     text
    +more
    # attributes or times of time
    "#);
    let attributes: Vec<_> = changes
        .iter()
        .map(|one| (&one.path, &one.attributes))
        .collect();
    insta::assert_snapshot!(serde_json::to_string(&attributes).unwrap(), @r#"[["list",[{"name":"access list","after":"user::rw-,user:65534:rw-,group::r--,mask::rw-,other::r--"}]],["gone",[{"name":"user.k","before":"old"}]],["both",[{"name":"user.k","after":"a\nb\u001b[31m"}]],["time",[]]]"#);
    fs::write(world.disk.dir.path().join("patch"), &patch).unwrap();
    run(&world.base(), "git apply ../patch");
    assert_eq!(
        fs::read_to_string(world.base().join("both")).unwrap(),
        "text\nmore\n"
    );
}
