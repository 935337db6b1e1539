//! An agent's own sandbox works inside ours, and gets it no further out.

use super::{Check, Outcome, expect, prints, try_call};
use crate::runner::User;

pub(crate) const CHECKS: &[Check] = &[
    ("bubblewrap_works_inside", bubblewrap),
    ("a_nested_root_is_no_way_out", nested_root),
    ("nesting_can_be_forbidden", forbidden),
];

fn bubblewrap(user: &User) -> Outcome {
    let seen = user.confine(user.plan_with_tree(
        "bwrap --unshare-all --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --die-with-parent \
         --new-session /bin/sh -c 'cat /srv/work/hello; ls /proc | grep -c ^1$; id -u'; \
         bwrap --unshare-user --unshare-net --unshare-pid --ro-bind /usr /usr --bind /tmp /tmp \
         --symlink usr/bin /bin --symlink usr/lib64 /lib64 --symlink usr/lib /lib --proc /proc \
         --dev /dev /bin/sh -c 'echo second > /tmp/made; (exec 3<>/dev/tcp/1.1.1.1/1) 2>/dev/null || \
         echo no net'; cat /tmp/made; \
         bwrap --bind / / --dev /dev --proc /proc /bin/echo shared net",
    ));
    let said = format!(
        "{}1\n{}\nno net\nsecond\nshared net\n",
        crate::tree::CONTENT,
        user.uid()
    );
    expect(seen.stdout == said, (said, &seen))
}

fn nested_root(user: &User) -> Outcome {
    let script = "unshare -Urmpf --mount-proc sh -c '\
        umount /etc/shadow 2>/dev/null && echo unmasked; \
        umount -l /usr 2>/dev/null && echo unmounted; \
        mount -o remount,rw,bind /usr 2>/dev/null && echo writable; \
        mount -o remount,rw,bind / 2>/dev/null && echo writable; \
        mknod /tmp/sda b 254 0 2>/dev/null && head -c1 /tmp/sda 2>/dev/null | wc -c; \
        (echo x > /proc/sys/kernel/core_pattern) 2>/dev/null && echo core; \
        ls /proc/1/root/root/.ssh 2>/dev/null; \
        nft list ruleset 2>/dev/null; ip link set lo down 2>/dev/null && echo down; \
        mount -t fuse x /mnt 2>/dev/null && echo fuse; \
        mount -t tmpfs x /mnt && echo own mounts'; ls -A /mnt";
    prints(user, script, &["own mounts"])
}

fn forbidden(user: &User) -> Outcome {
    let home = user.home();
    let mut plan = user.plan_with_tree(&format!(
        "unshare -U true 2>/dev/null || echo no namespace; {} \
         (echo 5 > /proc/sys/user/max_user_namespaces) 2>/dev/null || echo limit kept; \
         echo x > {}/x && echo home; echo x > /tmp/x && echo tmp; echo x > /dev/null && echo null; \
         cat /srv/work/hello; ls -A /proc/acpi 2>/dev/null | wc -l",
        try_call(libc::SYS_clone3, ", 0, 0"),
        home.display()
    ));
    plan.nested_namespaces = false;
    let seen = user.confine(plan);
    let said = format!(
        "no namespace\nENOSYS\nlimit kept\nhome\ntmp\nnull\n{}0\n",
        crate::tree::CONTENT
    );
    expect(seen.stdout == said, (said, &seen))
}
