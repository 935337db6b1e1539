//! Synthetic addresses. Every name that is looked up gets an address of its own, so that the name
//! is known again when a connection arrives, whatever the client says later.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

/// `198.18.0.0/15` is set aside for tests of network devices; nobody is reached there.
const V4_BASE: u32 = u32::from_be_bytes([198, 18, 0, 0]);
/// As many names as fit, without the first address.
const NAMES_MAX: u32 = (1 << 17) - 2;
/// A unique local prefix of our own: `fd6b:6169:726f:7300::/64`.
const V6_BASE: u128 = 0xfd6b_6169_726f_7300 << 64;

/// Which name an address stands for.
#[derive(Debug, Default)]
pub(crate) struct Names {
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    number_of: HashMap<String, u32>,
    name_of: HashMap<u32, String>,
    next: u32,
}

impl Names {
    /// The address of a canonical name. When all are given out the oldest is given again; who
    /// still connects to it under its former name is refused, since the names then disagree.
    pub(crate) fn number(&self, name: &str) -> u32 {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = book.number_of.get(name) {
            return *number;
        }
        let number = book.next % NAMES_MAX + 1;
        book.next = (book.next + 1) % NAMES_MAX;
        if let Some(former) = book.name_of.insert(number, name.to_string()) {
            book.number_of.remove(&former);
        }
        book.number_of.insert(name.to_string(), number);
        number
    }

    /// The name an address was given to.
    pub(crate) fn name(&self, address: IpAddr) -> Option<String> {
        let number = number_in(address)?;
        let book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        book.name_of.get(&number).cloned()
    }
}

/// The IPv4 address with a number.
pub(crate) fn v4(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(V4_BASE + number)
}

/// The IPv6 address with a number.
pub(crate) fn v6(number: u32) -> Ipv6Addr {
    Ipv6Addr::from(V6_BASE | u128::from(number))
}

/// Whether an address is of the kind that is given to names.
pub(crate) fn is_synthetic(address: IpAddr) -> bool {
    number_in(address).is_some()
}

fn number_in(address: IpAddr) -> Option<u32> {
    match address.to_canonical() {
        IpAddr::V4(v4) => u32::from(v4)
            .checked_sub(V4_BASE)
            .filter(|n| (1..=NAMES_MAX).contains(n)),
        IpAddr::V6(v6) => u128::from(v6)
            .checked_sub(V6_BASE)
            .and_then(|n| u32::try_from(n).ok())
            .filter(|n| (1..=NAMES_MAX).contains(n)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_again_by_either_address() {
        let names = Names::default();
        let a = names.number("a.example");
        let b = names.number("b.example");
        assert_ne!(a, b);
        assert_eq!(names.number("a.example"), a);
        assert_eq!(names.name(v4(a).into()).as_deref(), Some("a.example"));
        assert_eq!(names.name(v6(b).into()).as_deref(), Some("b.example"));
        assert_eq!(names.name(Ipv4Addr::new(192, 0, 2, 1).into()), None);
        assert!(!is_synthetic(Ipv4Addr::new(198, 20, 0, 1).into()));
    }

    #[test]
    fn when_all_are_given_out_the_oldest_goes() {
        let names = Names::default();
        let first = names.number("first.example");
        for n in 0..NAMES_MAX {
            names.number(&format!("n{n}.example"));
        }
        assert_ne!(
            names.name(v4(first).into()).as_deref(),
            Some("first.example")
        );
    }
}
