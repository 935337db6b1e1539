//! Mounting over, below or around what the agent is shown, also from a user namespace of its own.

use std::path::Path;

use crate::ground::{Cleared, Ground};

#[test]
fn mounting_and_unmounting_directly() {
    let ground = Ground::new();
    let outcome = ground.inside(
        "mount -t tmpfs none /mnt && echo mounted; mount --bind / /mnt && echo bound; umount \"$PWD\" && echo unmounted; \
         umount -l / && echo unmounted root; mount -o remount,rw / && echo remounted; mount -o remount,rw /usr && echo remounted; \
         true",
    );
    for word in ["mounted", "bound", "unmounted", "remounted"] {
        assert!(!outcome.stdout.contains(word), "{outcome}");
    }
}

#[test]
fn what_lies_below_the_workspace_from_a_namespace_of_its_own() {
    let ground = Ground::new();
    let _cleared = Cleared("/usr/kairos-probe".into());
    ground.workspace.write("victim.txt", "host\n");
    let path = ground.workspace.path();
    let script = format!(
        "umount -l '{path}'; cd /; echo taken over > '{path}/victim.txt'; mkdir -p /tmp/x; mount --bind / /tmp/x; \
         echo taken over > '/tmp/x{path}/victim.txt'; mount -t proc none /proc; mount -t sysfs none /sys; \
         echo taken over > /usr/kairos-probe",
        path = path.display()
    );
    let outcome = ground.inside(&format!("unshare -Urmpf sh -c \"{script}\"; true"));
    assert!(!Path::new("/usr/kairos-probe").exists(), "{outcome}");
    // What it changed in its own view is an ordinary effect; what matters is that it came through the monitor.
    let told = outcome.summary.to_string();
    let host = ground.workspace.read("victim.txt").unwrap();
    assert!(
        host == "host\n" || told.contains("victim.txt"),
        "changed behind the monitor's back\n{outcome}"
    );
}

#[test]
fn the_new_mount_calls_outside_a_namespace_of_its_own() {
    let ground = Ground::new();
    let outcome = ground.inside(&crate::ground::python(
        "
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for name, number in [('open_tree', 428), ('move_mount', 429), ('fsopen', 430), ('mount_setattr', 442), ('open_tree_attr', 467)]:
    result = libc.syscall(number, -100, b'/', 1, 0, 0, 0)
    print('allowed' if result >= 0 else 'refused', name, ctypes.get_errno())
",
    ));
    assert!(!outcome.stdout.contains("allowed"), "{outcome}");
}

#[test]
fn an_agents_own_sandbox_still_works() {
    // The other side of the promise: bubblewrap, as agents use it for their tools.
    let ground = Ground::new();
    let outcome =
        ground.inside("bwrap --ro-bind / / --dev /dev --proc /proc --unshare-all --die-with-parent echo from bubblewrap");
    assert!(outcome.stdout.contains("from bubblewrap"), "{outcome}");
}
