//! Confines: runs one agent inside namespaces whose only ways out are the descriptors that
//! [`prepare`] hands to the monitor.
//!
//! Three processes of ours stand between the monitor and the agent:
//!
//! ```text
//! monitor ── outer (N0: user, mount, net, ipc, uts, cgroup) ── init (pid 1, N0) ── agent (N1)
//! ```
//!
//! `outer` and `init` are this same program, started again with a hidden first argument, because
//! namespaces can only be entered by a process with one thread. `init` owns network and mounts
//! through the user namespace N0; the agent lives in N1 below it, so it holds no capability over
//! either, whatever it does. When `init` ends, the kernel ends everything in the pid namespace;
//! `init` ends when the agent's main process does or when the monitor's socket closes, which a
//! killed monitor cannot prevent.

pub mod plan;
pub mod tools;
mod error;
mod prepare;
mod doctor;
mod control;
mod identity;
mod child;
mod init;
mod network;
mod netlink;
mod view;
mod agent;
mod seccomp;
mod landlock;
mod sys;

pub use child::child_main_if_requested;
pub use doctor::{Check, CheckName, CheckStatus, doctor, doctor_with};
pub use error::SandboxError;
pub use plan::{Bind, Plan, SyntheticFile, Tree};
pub use prepare::{
    Agent, Ahead, Door, Exit, Launcher, Prepared, Preparing, Stdio, ahead, prepare, prepare_with,
};
