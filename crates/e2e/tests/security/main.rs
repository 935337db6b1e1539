//! Every known way round the boundary, one file each. Each probe runs twice: outside, where the witness must see it (the
//! control: a probe that cannot succeed proves nothing), and inside, where it must not. The witness is always outside.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

mod ground;

mod noproxy;
mod raw_addresses;
mod dns_tunnel;
mod udp;
mod unix_sockets;
mod dbus;
mod proc_root;
mod environ;
mod descriptors;
mod ptrace;
mod mounts;
mod setuid;
mod symlink;
mod hardlink;
mod devices;
mod tiocsti;
mod kill_monitor;
mod sni_and_host;
mod wrong_certificate;
mod outliving_fork;
mod kernel_interfaces;
