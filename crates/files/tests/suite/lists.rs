//! Access lists: what is set inside, passed on and kept is what the host has afterwards.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::XattrFlags;

use crate::world::World;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// A list in the kernel's form: owner, one user, group, mask, others.
fn list(owner: u16, user: (u32, u16), group: u16, mask: u16, others: u16) -> Vec<u8> {
    let none = u32::MAX;
    let entries = [
        (1, owner, none),
        (2, user.1, user.0),
        (4, group, none),
        (16, mask, none),
        (32, others, none),
    ];
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        value.extend(u16::to_le_bytes(tag));
        value.extend(u16::to_le_bytes(rights));
        value.extend(u32::to_le_bytes(id));
    }
    value
}

fn set(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

/// Names, modes and lists of everything below a directory.
fn lists(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut ahead = vec![dir.to_path_buf()];
    while let Some(at) = ahead.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
            let shown = [ACCESS, DEFAULT].map(|name| {
                let mut value = vec![0; 4096];
                match rustix::fs::getxattr(&path, name, &mut value[..]) {
                    Ok(len) => format!("{:?}", &value[4..len]),
                    Err(error) => format!("{error:?}"),
                }
            });
            let name = path.strip_prefix(dir).unwrap().display().to_string();
            found.push(format!("{name} {mode:o} {}", shown.join(" ")));
            if path.is_dir() {
                ahead.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn lists_arrive_on_the_host_as_they_are_inside() {
    let named = list(6, (1000, 4), 4, 6, 0);
    let passed = list(7, (1000, 5), 5, 7, 0);
    let world = World::new(|base| {
        for name in ["kept", "narrowed", "edited", "taken"] {
            fs::write(base.join(name), "x").unwrap();
            set(&base.join(name), ACCESS, &named);
        }
        fs::create_dir(base.join("old")).unwrap();
        fs::write(base.join("old/there"), "x").unwrap();
        set(&base.join("old"), DEFAULT, &passed);
    });
    let (inside, base) = (world.inside(), world.base());
    assert_eq!(lists(&inside), lists(&base));
    // The owner's lists: left alone, narrowed by a mode, under new content, taken away.
    fs::set_permissions(inside.join("narrowed"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(inside.join("edited"), "other").unwrap();
    rustix::fs::removexattr(inside.join("taken"), ACCESS).unwrap();
    fs::rename(inside.join("kept"), inside.join("moved")).unwrap();
    // The agent's own, on what is new and on what is old.
    fs::write(inside.join("new"), "x").unwrap();
    set(&inside.join("new"), ACCESS, &named);
    set(
        &inside.join("old/there"),
        ACCESS,
        &list(7, (2000, 7), 0, 5, 1),
    );
    fs::create_dir(inside.join("dir")).unwrap();
    set(&inside.join("dir"), DEFAULT, &passed);
    // Passed on, by the agent's directory and by the owner's; and refused what was passed on.
    for dir in ["dir", "old"] {
        fs::write(inside.join(dir).join("made"), "x").unwrap();
        fs::create_dir(inside.join(dir).join("sub")).unwrap();
        fs::write(inside.join(dir).join("sub/deep"), "x").unwrap();
        fs::write(inside.join(dir).join("plain"), "x").unwrap();
        rustix::fs::removexattr(inside.join(dir).join("plain"), ACCESS).unwrap();
    }
    let seen = lists(&inside);
    assert!(
        seen.iter().filter(|line| line.contains("232, 3")).count() > 8,
        "{seen:#?}"
    );
    world.settle();
    assert_eq!(lists(&base), seen, "{:?}", world.failed());
    assert_eq!(lists(&inside), seen);
    world.settle();
    assert_eq!(world.session.held().len(), 0);
}
