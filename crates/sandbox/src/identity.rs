//! Whose rights the agent has: the user and group ids of the two user namespaces.
//!
//! An ordinary user's agent has the same ids inside and outside. Root's agent is root inside, but
//! outside it is an id that owns nothing: the kernel lets host id 0 write `/proc/sys` from any
//! user namespace, and a mask over `/proc` would stop every nested sandbox from mounting its own.

use std::fmt::Write as _;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Uid};
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};

use crate::SandboxError;
use crate::doctor::CheckName;
use crate::error::During;

/// Decided once by the monitor and told to its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Identity {
    /// One id, the same at every level.
    Same { uid: u32, gid: u32 },
    /// Host root: the ids from 0 and those from [`SHIFT_BASE`] change places in N0.
    Shifted,
}

/// First host id that root's agents have. No id range of Linux distributions, systemd or
/// container engines reaches up here.
pub(crate) const SHIFT_BASE: u32 = 1_900_000_000;

/// As many ids as programs that change users expect.
pub(crate) const SHIFT_COUNT: u32 = 65_536;

impl Identity {
    /// Of this process. Root that can give its agent no other ids is refused.
    pub(crate) fn current() -> Result<Self, SandboxError> {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        if uid != 0 {
            return Ok(Self::Same { uid, gid });
        }
        let map = std::fs::read_to_string("/proc/self/uid_map").during("read the user map")?;
        let capable = rustix::thread::capabilities(None).is_ok_and(|sets| {
            let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::SETFCAP;
            sets.effective.contains(needed)
        });
        match root_outside(&map) {
            Some(0) if capable && has_every_id(&map) => Ok(Self::Shifted),
            Some(outside) if outside != 0 => Ok(Self::Same { uid, gid }),
            _ => Err(SandboxError::Host {
                check: CheckName::Ids.missing("this root can give its agent no ids but its own"),
            }),
        }
    }

    /// The uid and gid inside, and in the requests of the FUSE mount.
    pub(crate) fn inside(self) -> (u32, u32) {
        match self {
            Self::Same { uid, gid } => (uid, gid),
            Self::Shifted => (0, 0),
        }
    }

    /// `uid_map` and `gid_map` of N0, written by the monitor.
    pub(crate) fn outer_maps(self) -> (String, String) {
        match self {
            Self::Same { uid, gid } => (format!("{uid} {uid} 1\n"), format!("{gid} {gid} 1\n")),
            Self::Shifted => {
                let top = SHIFT_BASE + SHIFT_COUNT;
                let between = SHIFT_BASE - SHIFT_COUNT;
                let mut map = String::new();
                for (inside, outside, count) in [
                    (0, SHIFT_BASE, SHIFT_COUNT),
                    (SHIFT_COUNT, SHIFT_COUNT, between),
                    (SHIFT_BASE, 0, SHIFT_COUNT),
                    (top, top, u32::MAX - top),
                ] {
                    let _ = writeln!(map, "{inside} {outside} {count}");
                }
                (map.clone(), map)
            }
        }
    }

    /// `uid_map` and `gid_map` of N1, written by init: never a host id of [`Self::Shifted`].
    pub(crate) fn inner_maps(self) -> (String, String) {
        match self {
            Self::Same { .. } => self.outer_maps(),
            Self::Shifted => {
                let map = format!("0 0 {SHIFT_COUNT}\n");
                (map.clone(), map)
            }
        }
    }
}

impl Identity {
    /// Lets the agent open its own standard streams again (`/dev/stderr`, `/dev/stdout`): that
    /// checks the owner of the pipe or pty, which so far is the monitor's user. Files are left
    /// alone: they have a place on the host.
    pub(crate) fn give(self, streams: &[&OwnedFd]) -> Result<(), SandboxError> {
        if self != Self::Shifted {
            return Ok(());
        }
        for stream in streams {
            let stat = rustix::fs::fstat(stream).during("look at a standard stream")?;
            let pty = (136..144).contains(&rustix::fs::major(stat.st_rdev));
            let ours = match FileType::from_raw_mode(stat.st_mode) {
                FileType::Fifo => rustix::fs::fstatfs(stream).is_ok_and(|fs| fs.f_type == PIPEFS),
                FileType::CharacterDevice => pty,
                _ => false,
            };
            if ours {
                let owner = Some(Uid::from_raw(SHIFT_BASE));
                rustix::fs::fchown(stream, owner, None).during("hand over a standard stream")?;
            }
        }
        Ok(())
    }
}

/// File system of unnamed pipes.
const PIPEFS: rustix::fs::FsWord = 0x5049_5045;

/// True in the host's first user namespace: there, root can hand out any id.
fn has_every_id(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// What id 0 of this namespace is one level up: in a container that maps its ids, an ordinary
/// one, whose rights over the kernel an agent may have.
fn root_outside(map: &str) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(0)), Some(Ok(outside))) => Some(outside),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shifted_map_is_a_permutation_of_every_id() {
        let (uids, gids) = Identity::Shifted.outer_maps();
        assert_eq!(uids, gids);
        let mut inside = Vec::new();
        let mut outside = Vec::new();
        for line in uids.lines() {
            let numbers: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
            inside.push((numbers[0], numbers[0] + numbers[2]));
            outside.push((numbers[1], numbers[1] + numbers[2]));
        }
        for mut ranges in [inside, outside] {
            ranges.sort_unstable();
            let mut next = 0;
            for (start, end) in ranges {
                assert_eq!(start, next);
                next = end;
            }
            assert_eq!(next, u64::from(u32::MAX));
        }
    }

    #[test]
    fn root_is_known_by_what_it_is_outside() {
        let whole = "         0          0 4294967295\n";
        let container = "         0     100000      65536\n";
        assert!(has_every_id(whole) && !has_every_id(container) && !has_every_id("0 0 1\n"));
        assert_eq!(root_outside(whole), Some(0));
        assert_eq!(root_outside(container), Some(100_000));
        assert_eq!(root_outside("1 100000 10\n0 1000 1\n"), Some(1000));
        assert_eq!(root_outside("1000 1000 1\n"), None);
    }

    #[test]
    fn no_host_id_of_root_is_mapped_below() {
        let (uids, _) = Identity::Shifted.inner_maps();
        assert_eq!(uids, "0 0 65536\n");
    }
}
