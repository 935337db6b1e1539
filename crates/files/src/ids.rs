//! Owner ids on both sides: the agent's user namespace and the host.

/// Shown inside for owners that the agent's user namespace does not know.
const NOBODY: u32 = 65534;

/// Ranges of ids: `(inside, host, count)`, as in `/proc/PID/uid_map`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    /// Users.
    pub users: Vec<(u32, u32, u32)>,
    /// Groups.
    pub groups: Vec<(u32, u32, u32)>,
}

impl Default for Ids {
    /// The same ids on both sides.
    fn default() -> Self {
        let all = vec![(0, 0, u32::MAX)];
        Self {
            users: all.clone(),
            groups: all,
        }
    }
}

impl Ids {
    /// One user and one group, all others unknown inside.
    pub fn one(user: (u32, u32), group: (u32, u32)) -> Self {
        Self {
            users: vec![(user.0, user.1, 1)],
            groups: vec![(group.0, group.1, 1)],
        }
    }

    pub(crate) fn user_inside(&self, host: u32) -> u32 {
        inside(&self.users, host)
    }

    /// The group that a file of a user is shown with. The kernel lets nobody change what has an owner or a
    /// group that it does not know, so a file of a known user with a group that is not known inside has
    /// theirs: its owner's rights count for them in any case.
    pub(crate) fn group_shown(&self, user: u32, group: u32) -> u32 {
        let own = || self.groups.first().map(|(inside, _, _)| *inside);
        match (self.known_group(group), self.known_user(user)) {
            (Some(group), _) => group,
            (None, Some(_)) => own().unwrap_or(NOBODY),
            (None, None) => NOBODY,
        }
    }

    /// The user inside, if there is one.
    pub(crate) fn known_user(&self, host: u32) -> Option<u32> {
        known_inside(&self.users, host)
    }

    /// The group inside, if there is one.
    pub(crate) fn known_group(&self, host: u32) -> Option<u32> {
        known_inside(&self.groups, host)
    }

    pub(crate) fn user_on_host(&self, inside: u32) -> u32 {
        on_host(&self.users, inside)
    }

    pub(crate) fn group_on_host(&self, inside: u32) -> u32 {
        on_host(&self.groups, inside)
    }
}

fn inside(ranges: &[(u32, u32, u32)], host: u32) -> u32 {
    known_inside(ranges, host).unwrap_or(NOBODY)
}

fn known_inside(ranges: &[(u32, u32, u32)], host: u32) -> Option<u32> {
    ranges.iter().find_map(|(inside, start, count)| {
        host.checked_sub(*start)
            .filter(|n| n < count)
            .and_then(|n| inside.checked_add(n))
    })
}

fn on_host(ranges: &[(u32, u32, u32)], id: u32) -> u32 {
    ranges
        .iter()
        .find_map(|(inside, start, count)| {
            id.checked_sub(*inside)
                .filter(|n| n < count)
                .and_then(|n| start.checked_add(n))
        })
        .unwrap_or(NOBODY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways() {
        let ids = Ids::one((1000, 0), (1000, 0));
        assert_eq!(ids.user_inside(0), 1000);
        assert_eq!(ids.user_on_host(1000), 0);
        assert_eq!(ids.user_inside(1000), NOBODY);
        assert_eq!(ids.user_on_host(0), NOBODY);
        assert_eq!(Ids::default().user_inside(7), 7);
        assert_eq!(ids.group_shown(0, 0), 1000);
        assert_eq!(ids.group_shown(0, 27), 1000);
        assert_eq!(ids.group_shown(5, 0), 1000);
        assert_eq!(ids.group_shown(5, 27), NOBODY);
    }
}
