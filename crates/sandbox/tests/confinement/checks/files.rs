//! The agent sees the system read-only, its trees, and nothing else of the host.

use std::os::unix::net::UnixListener;
use std::path::Path;

use sandbox::{Bind, SyntheticFile, tools::Tools};

use super::{Check, Outcome, expect, prints};
use crate::runner::User;

pub(crate) const CHECKS: &[Check] = &[
    ("a_tree_is_served_from_outside", tree),
    ("a_tree_cannot_be_unmounted_or_looked_behind", tree_stays),
    ("the_system_is_read_only", read_only),
    ("private_folders_are_private_and_writable", private),
    ("host_folders_are_not_there", host_folders),
    ("secrets_of_the_system_are_hidden", secrets),
    ("synthetic_files_replace_and_add", synthetic),
    ("a_synthetic_file_follows_a_dangling_link", dangling),
    ("a_home_can_be_a_tree", home_tree),
    ("host_sockets_in_view_are_masked", sockets),
    ("device_nodes_and_mounts_cannot_be_made", nodes),
    ("setuid_programs_gain_nothing", setuid),
    ("tools_outside_the_system_are_shown", tools),
    ("the_old_root_is_gone", old_root),
];

fn tree(user: &User) -> Outcome {
    let seen = user.confine(user.plan_with_tree("cat /srv/work/hello; stat -c %u /srv/work"));
    expect(
        seen.stdout == format!("{}{}\n", crate::tree::CONTENT, user.uid()),
        &seen,
    )
}

fn tree_stays(user: &User) -> Outcome {
    let seen = user.confine(user.plan_with_tree(
        "umount /srv/work 2>/dev/null || echo stays; umount -l /srv/work 2>/dev/null || echo stays; \
         mount --bind /tmp /srv/work 2>/dev/null || echo stays; \
         ls -a / | grep -c kairos; test -e /dev/fuse || echo no device",
    ));
    expect(seen.stdout == "stays\nstays\nstays\n0\nno device\n", &seen)
}

fn read_only(user: &User) -> Outcome {
    let mut script = String::new();
    for path in [
        "/usr/x", "/etc/x", "/x", "/bin/x", "/lib/x", "/dev/x", "/var/x", "/opt/x",
    ] {
        script.push_str(&format!("(: > {path}) 2>/dev/null && echo wrote {path}; "));
    }
    script.push_str("(: >> /etc/passwd) 2>/dev/null && echo wrote; ");
    script.push_str("chmod 777 /usr 2>/dev/null && echo changed; ");
    script.push_str("(echo 1 > /proc/sys/kernel/panic) 2>/dev/null && echo sysctl; ");
    script.push_str("(echo x > /proc/sys/kernel/core_pattern) 2>/dev/null && echo core; ");
    script.push_str("(echo h > /proc/sysrq-trigger) 2>/dev/null && echo sysrq; ");
    script.push_str("head -c1 /proc/kcore 2>/dev/null; echo end");
    prints(user, &script, &["end"])
}

fn private(user: &User) -> Outcome {
    let mut script = String::new();
    let name = format!("kairos-private-{}", std::process::id());
    let home = user.home();
    let folders = ["/tmp", "/var/tmp", "/dev/shm", home.to_str().unwrap()];
    for folder in folders {
        script.push_str(&format!(
            "ls -A {folder} | wc -l; echo x > {folder}/{name}; "
        ));
    }
    prints(user, &script, &["0"; 4])?;
    for folder in folders {
        expect(!Path::new(folder).join(&name).exists(), folder)?;
    }
    Ok(())
}

fn host_folders(user: &User) -> Outcome {
    let marker = tempfile::Builder::new()
        .prefix("kairos-marker")
        .tempdir_in("/tmp")
        .unwrap();
    let path = marker.path().display();
    prints(
        user,
        &format!(
            "test -e {path} && echo tmp; ls -A /run | wc -l; ls -A /var/run/ | wc -l; \
             ls -d /work /boot /media /lost+found /var/spool /sys/fs /sys/kernel 2>/dev/null; \
             ls /dev | tr '\\n' ' '"
        ),
        &[
            "0",
            "0",
            "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero ",
        ],
    )
}

fn secrets(user: &User) -> Outcome {
    prints(
        user,
        "cat /etc/shadow /etc/gshadow /etc/ssh/ssh_host_*_key 2>/dev/null | wc -c",
        &["0"],
    )
}

fn synthetic(user: &User) -> Outcome {
    let mut plan = user.plan("");
    let home = user.home();
    plan.files = vec![
        SyntheticFile::read_only("/etc/resolv.conf", "nameserver 127.0.0.53\n"),
        SyntheticFile::read_only("/etc/passwd", "me:x:1:1::/:/bin/sh\n"),
        SyntheticFile::read_only("/etc/ssl/certs/ffffffff.0", "added\n"),
        SyntheticFile::read_only("/etc/kairos-new/deep/file", "deep\n"),
        SyntheticFile::seed(home.join(".tool/settings.json"), "{}\n"),
        SyntheticFile {
            writable: false,
            ..SyntheticFile::seed(home.join("fixed"), "fixed\n")
        },
    ];
    plan.command[2] = "cat /etc/resolv.conf /etc/passwd /etc/ssl/certs/ffffffff.0 \
        /etc/kairos-new/deep/file ~/.tool/settings.json ~/fixed; \
        echo '{1}' > ~/.tool/settings.json; cat ~/.tool/settings.json; \
        (echo x > /etc/resolv.conf) 2>/dev/null || echo kept; \
        (echo x > /etc/ssl/certs/x) 2>/dev/null || echo kept; \
        (echo x > ~/fixed) 2>/dev/null || echo kept; rm -f ~/fixed 2>/dev/null || echo kept; \
        (echo x > /etc/x) 2>/dev/null || echo kept; ls -A /etc/ssl/certs | wc -l; ls -A /etc | wc -l"
        .into();
    let seen = user.confine(plan);
    let count = |path: &str| std::fs::read_dir(path).unwrap().count() + 1;
    let said = format!(
        "nameserver 127.0.0.53\nme:x:1:1::/:/bin/sh\nadded\ndeep\n{{}}\nfixed\n{{1}}\nkept\nkept\n\
         kept\nkept\nkept\n{}\n{}\n",
        count("/etc/ssl/certs"),
        count("/etc"),
    );
    expect(seen.stdout == said, (said, &seen))
}

/// As where `/etc/resolv.conf` leads into `/run`.
fn dangling(user: &User) -> Outcome {
    let folder = tempfile::Builder::new()
        .prefix("kairos-link-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir_in("/tmp")
        .unwrap();
    let link = folder.path().join("resolv.conf");
    std::os::unix::fs::symlink("../../run/resolver/stub.conf", &link).unwrap();
    let mut plan = user.plan(&format!("cat {} /run/resolver/stub.conf", link.display()));
    plan.read_only.push(Bind::same(folder.path()));
    plan.files
        .push(SyntheticFile::read_only(&link, "nameserver 127.0.0.53\n"));
    let seen = user.confine(plan);
    expect(seen.stdout == "nameserver 127.0.0.53\n".repeat(2), &seen)
}

fn home_tree(user: &User) -> Outcome {
    let mut plan = user.plan_with_tree("ls -A ~; cat ~/hello");
    plan.trees[0].target = user.home();
    let seen = user.confine(plan);
    expect(
        seen.stdout == format!("hello\n{}", crate::tree::CONTENT),
        &seen,
    )
}

fn sockets(user: &User) -> Outcome {
    let folder = tempfile::Builder::new()
        .prefix("kairos-tool-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir_in("/tmp")
        .unwrap();
    std::fs::create_dir(folder.path().join("bin")).unwrap();
    let path = folder.path().join("control");
    let listener = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let script = format!(
        "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); \
         print connect(S, pack_sockaddr_un(\"{}\")) ? \"ok\" : \"refused\", \"\\n\"'",
        path.display()
    );
    // The way round that the mask is for: without it the connection succeeds.
    let mut bare = user.plan(&script);
    bare.read_only.push(Bind::same(folder.path()));
    expect(
        user.confine(bare).stdout == "ok\n",
        "a socket on a read-only bind was out of reach",
    )?;
    listener.accept().unwrap();

    let mut plan = user.plan(&script);
    let search = format!(
        "{}:{}",
        folder.path().join("bin").display(),
        "/usr/bin:/bin"
    );
    plan.env.insert("PATH".into(), search.into());
    Tools::discover(&plan).add_to(&mut plan);
    expect(plan.masked.contains(&path), &plan.masked)?;
    let seen = user.confine(plan);
    expect(seen.stdout == "refused\n", &seen)
}

fn nodes(user: &User) -> Outcome {
    prints(
        user,
        "mknod /tmp/d b 8 0 2>/dev/null || echo no node; \
         mount -t tmpfs x /tmp 2>/dev/null || echo no mount; \
         mount -o remount,rw / 2>/dev/null || echo no remount; \
         mount -o remount,rw,bind /usr 2>/dev/null || echo no remount; \
         umount /proc 2>/dev/null || echo no umount; mkfifo /tmp/f && echo fifo",
        &[
            "no node",
            "no mount",
            "no remount",
            "no remount",
            "no umount",
            "fifo",
        ],
    )
}

fn setuid(user: &User) -> Outcome {
    prints(
        user,
        "grep NoNewPrivs /proc/self/status | tr -s '\\t' ' '; \
         cp /usr/bin/id /tmp/id; chmod 4755 /tmp/id; /tmp/id -u | grep -c .",
        &["NoNewPrivs: 1", "1"],
    )
}

fn tools(user: &User) -> Outcome {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::Builder::new()
        .prefix("kairos-tool-")
        .permissions(std::fs::Permissions::from_mode(0o755))
        .tempdir_in("/tmp")
        .unwrap();
    let at = |path: &str| folder.path().join(path);
    std::fs::create_dir_all(at("prefix/lib/node_modules/agent")).unwrap();
    std::fs::create_dir_all(at("prefix/bin")).unwrap();
    let script = at("prefix/lib/node_modules/agent/agent.sh");
    std::fs::write(
        &script,
        "#!/bin/sh\ncat $(dirname $(readlink -f $0))/data\n",
    )
    .unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(
        at("prefix/lib/node_modules/agent/data"),
        "the tool's data\n",
    )
    .unwrap();
    symlink("../lib/node_modules/agent/agent.sh", at("prefix/bin/agent")).unwrap();
    let mut plan = user.plan("");
    let search = format!("{}:{}", at("prefix/bin").display(), "/usr/bin:/bin");
    plan.env.insert("PATH".into(), search.into());
    plan.command = vec!["agent".into()];
    Tools::discover(&plan).add_to(&mut plan);
    let seen = user.confine(plan);
    expect(seen.stdout == "the tool's data\n", &seen)
}

fn old_root(user: &User) -> Outcome {
    // What is mounted is what the plan says; nothing of the host's table is left.
    let seen = user.run("cut -d' ' -f5 /proc/self/mountinfo | sort -u");
    let mounted: Vec<_> = seen.stdout.lines().collect();
    let strange: Vec<_> = mounted
        .iter()
        .filter(|path| {
            let known = [
                "/",
                "/bin",
                "/dev",
                "/etc",
                "/lib",
                "/opt",
                "/proc",
                "/run",
                "/sbin",
                "/sys/devices",
                "/tmp",
                "/usr",
                "/var/tmp",
                "/var/lib/dpkg",
                "/nix",
            ];
            let home = user.home();
            !known
                .iter()
                .copied()
                .chain(home.to_str())
                .any(|root| **path == root || (root != "/" && path.starts_with(root)))
        })
        .collect();
    expect(
        mounted.contains(&"/usr") && strange.is_empty(),
        (strange, &seen),
    )
}
