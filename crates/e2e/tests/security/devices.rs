//! Device nodes: those that are there, and those that could be made.

use kairos_e2e::place::is_root;

use crate::ground::Ground;

#[test]
fn only_harmless_ones_are_there() {
    let ground = Ground::new();
    let harmless = [
        "null", "zero", "full", "random", "urandom", "tty", "ptmx", "console",
    ];
    let outcome = ground.inside("cd /dev; find . \\( -type b -o -type c \\) | sed 's#^./##'");
    for node in outcome
        .stdout
        .lines()
        .take_while(|line| *line != "probe ran")
    {
        assert!(
            harmless.contains(&node) || node.starts_with("pts/"),
            "/dev/{node}\n{outcome}"
        );
    }
    let opened = ground.inside(
        "for n in mem kmem kmsg port fuse kvm sda vda loop0 loop-control net/tun vhost-vsock uinput mapper/control; do \
         ( : < /dev/$n ) 2>/dev/null && echo opened $n; done; true",
    );
    assert!(!opened.stdout.contains("opened"), "{opened}");
}

#[test]
fn none_can_be_made() {
    let ground = Ground::new();
    // The numbers of /dev/null: harmless should it be made.
    let probe = "mknod here c 1 3 && echo made here; mknod /tmp/$$.node c 1 3 && echo made in tmp && rm /tmp/$$.node; \
                 mknod block b 7 0 && echo made block; rm -f here block; true";
    if is_root() {
        let control = ground.outside(probe);
        assert!(control.stdout.contains("made here"), "{control:?}");
    }
    let outcome = ground.inside(probe);
    assert!(!outcome.stdout.contains("made"), "{outcome}");
    let nested = ground.inside(&format!("unshare -Ur sh -c '{probe}'"));
    assert!(!nested.stdout.contains("made"), "{nested}");
}
