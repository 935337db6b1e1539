//! Access lists: their form in extended attributes, and how they go with a file's mode. Kept lists have no
//! rights for owner, mask (or group) and others: those are the mode's.

use crate::attr::Xattrs;
use crate::ids::Ids;

/// The list that counts for who opens something.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The list that a directory passes on to what is made in it.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: [u8; 4] = [2, 0, 0, 0];
const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;
const ENTRY_BYTES: usize = 8;

/// Whether an extended attribute is an access list.
pub(crate) fn is_list(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

/// A list, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl(Vec<Entry>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    rights: u16,
    id: u32,
}

impl Acl {
    /// Reads the kernel's form; `None` for anything else.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let entries = value.strip_prefix(&VERSION)?;
        let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
        if !rest.is_empty() {
            return None;
        }
        let entry = |bytes: &[u8; ENTRY_BYTES]| {
            let [t0, t1, r0, r1, i0, i1, i2, i3] = *bytes;
            Entry {
                tag: u16::from_le_bytes([t0, t1]),
                rights: u16::from_le_bytes([r0, r1]),
                id: u32::from_le_bytes([i0, i1, i2, i3]),
            }
        };
        Some(Self(entries.iter().map(entry).collect()))
    }

    /// The kernel's form.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut value = VERSION.to_vec();
        for Entry { tag, rights, id } in &self.0 {
            value.extend(tag.to_le_bytes());
            value.extend(rights.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    /// The permission bits that it stands for.
    pub(crate) fn mode(&self) -> u32 {
        let rights = |tag| self.0.iter().find(|e| e.tag == tag).map(|e| e.rights);
        let bits = |rights: Option<u16>| u32::from(rights.unwrap_or(0) & 7);
        let group = rights(MASK).or(rights(GROUP_OBJ));
        bits(rights(USER_OBJ)) << 6 | bits(group) << 3 | bits(rights(OTHER))
    }

    /// The short text form of `setfacl`, with numbers of users and groups as the host has them.
    pub(crate) fn text(&self) -> String {
        let entry = |entry: &Entry| {
            let who = match entry.tag {
                USER_OBJ => "user:".to_string(),
                USER => format!("user:{}", entry.id),
                GROUP_OBJ => "group:".to_string(),
                GROUP => format!("group:{}", entry.id),
                MASK => "mask:".to_string(),
                OTHER => "other:".to_string(),
                tag => format!("tag {tag}:{}", entry.id),
            };
            let right = |bit: u16, letter| if entry.rights & bit == 0 { '-' } else { letter };
            format!("{who}:{}{}{}", right(4, 'r'), right(2, 'w'), right(1, 'x'))
        };
        self.0.iter().map(entry).collect::<Vec<_>>().join(",")
    }

    /// Whether it says nothing that a mode does not.
    pub(crate) fn is_mode(&self) -> bool {
        self.0
            .iter()
            .all(|e| matches!(e.tag, USER_OBJ | GROUP_OBJ | OTHER))
    }

    /// The list with the rights that a mode gives.
    #[must_use]
    pub(crate) fn with_mode(mut self, mode: u32) -> Self {
        let masked = self.0.iter().any(|e| e.tag == MASK);
        for entry in &mut self.0 {
            let bits = match entry.tag {
                USER_OBJ => mode >> 6,
                MASK => mode >> 3,
                GROUP_OBJ if !masked => mode >> 3,
                OTHER => mode,
                _ => continue,
            };
            entry.rights = u16::try_from(bits & 7).unwrap_or(0);
        }
        self
    }

    /// What something new gets in a directory that passes this list on: its mode, and its own list
    /// if that says more.
    pub(crate) fn pass_on(&self, mode: u32) -> (u32, Option<Self>) {
        let granted = mode & (self.mode() | !0o777);
        let own = Some(self.clone()).filter(|own| !own.is_mode());
        (granted, own.map(|own| own.with_mode(0)))
    }

    /// With ids of the host. A list of the agent's names nobody that it cannot name.
    #[must_use]
    pub(crate) fn on_host(mut self, ids: &Ids) -> Self {
        for entry in &mut self.0 {
            entry.id = match entry.tag {
                USER => ids.user_on_host(entry.id),
                GROUP => ids.group_on_host(entry.id),
                _ => continue,
            };
        }
        self
    }

    /// With ids inside. Who is not known there is nobody there, and left out.
    #[must_use]
    pub(crate) fn inside(mut self, ids: &Ids) -> Self {
        self.0.retain_mut(|entry| {
            let known = match entry.tag {
                USER => ids.known_user(entry.id),
                GROUP => ids.known_group(entry.id),
                _ => return true,
            };
            entry.id = known.unwrap_or(entry.id);
            known.is_some()
        });
        self
    }
}

/// The form in which an attribute is kept and compared.
pub(crate) fn kept(name: &[u8], value: Vec<u8>) -> Vec<u8> {
    if name != ACCESS {
        return value;
    }
    match Acl::read(&value) {
        Some(list) => list.with_mode(0).write(),
        None => value,
    }
}

/// The form in which a kept attribute is given to a file of some mode.
pub(crate) fn given(name: &[u8], value: &[u8], mode: u32) -> Vec<u8> {
    match Acl::read(value).filter(|_| name == ACCESS) {
        Some(list) => list.with_mode(mode).write(),
        None => value.to_vec(),
    }
}

/// A kept attribute of something of some mode, for people: the name and the value.
pub(crate) fn shown(name: &[u8], value: &[u8], mode: u32) -> (String, String) {
    let list = Acl::read(value);
    match (name, list) {
        (ACCESS, Some(list)) => ("access list".to_string(), list.with_mode(mode).text()),
        (DEFAULT, Some(list)) => ("default access list".to_string(), list.text()),
        _ => (
            String::from_utf8_lossy(name).into_owned(),
            String::from_utf8_lossy(value).into_owned(),
        ),
    }
}

/// What a directory with these attributes passes on.
pub(crate) fn passed_on(xattrs: &Xattrs) -> Option<Acl> {
    xattrs.get(DEFAULT).and_then(|value| Acl::read(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> Acl {
        let entry = |&(tag, rights, id)| Entry { tag, rights, id };
        Acl(entries.iter().map(entry).collect())
    }

    #[test]
    fn a_list_goes_with_a_mode() {
        let named = list(&[
            (USER_OBJ, 6, u32::MAX),
            (USER, 4, 1000),
            (GROUP_OBJ, 4, u32::MAX),
            (MASK, 6, u32::MAX),
            (OTHER, 0, u32::MAX),
        ]);
        assert_eq!(Acl::read(&named.write()), Some(named.clone()));
        assert_eq!((named.mode(), named.is_mode()), (0o660, false));
        assert_eq!(
            named.text(),
            "user::rw-,user:1000:r--,group::r--,mask::rw-,other::---"
        );
        let narrow = named.clone().with_mode(0o700);
        assert_eq!(narrow.mode(), 0o700);
        assert_eq!(narrow.with_mode(0o660), named);
        let (mode, own) = named.pass_on(0o640);
        assert_eq!(mode, 0o640);
        assert_eq!(own.map(|own| own.with_mode(0o660)), Some(named.clone()));
        let plain = list(&[(USER_OBJ, 7, 0), (GROUP_OBJ, 5, 0), (OTHER, 1, 0)]);
        assert_eq!((plain.mode(), plain.is_mode()), (0o751, true));
        assert_eq!(plain.pass_on(0o666), (0o640, None));
        assert_eq!(Acl::read(b"\x02\0\0\0short"), None);
        assert_eq!(Acl::read(b"\x01\0\0\0"), None);
    }

    #[test]
    fn who_is_not_known_inside_is_left_out() {
        let both = list(&[
            (USER_OBJ, 6, 0),
            (USER, 4, 1000),
            (USER, 4, 7),
            (OTHER, 0, 0),
        ]);
        let ids = Ids::one((0, 1000), (0, 1000));
        let inside = both.inside(&ids);
        assert_eq!(
            inside,
            list(&[(USER_OBJ, 6, 0), (USER, 4, 0), (OTHER, 0, 0)])
        );
        assert_eq!(
            inside.on_host(&ids),
            list(&[(USER_OBJ, 6, 0), (USER, 4, 1000), (OTHER, 0, 0)])
        );
    }
}
