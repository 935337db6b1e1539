//! The head of a request: what was cut into consecutive parts of it is whole again when they are put together.

use alloc::vec::Vec;

use super::scan::Look;
use super::{Carried, Scanner};

impl Scanner {
    /// Scans a host: as it is, and with its labels put together. Case says nothing.
    pub fn scan_host(&self, host: &str) -> Carried {
        let mut look = Look::new(self);
        look.host(host);
        look.carried
    }

    /// Scans the values of `name=value&...`, put together.
    pub fn scan_form(&self, pairs: &[u8]) -> Carried {
        self.scan(&values(pairs))
    }

    /// Scans a path: as it is, and with its segments put together.
    pub fn scan_path(&self, path: &str) -> Carried {
        let mut found = self.scan(path.as_bytes());
        found.merge(&self.scan(path.replace('/', "").as_bytes()));
        found
    }

    /// Scans host, target (path and query, or a whole URL) and headers: each as it is, and in their order put
    /// together: labels of the host, segments of the path, names and values of the query, values of the headers
    /// and of cookies, and all of these.
    pub fn scan_head<'h>(
        &self,
        host: &str,
        target: &str,
        headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    ) -> Carried {
        let mut look = Look::new(self);
        look.host(host);
        look.all(target.as_bytes());
        let (mut lines, mut cookies) = (Vec::new(), Vec::new());
        for (name, value) in headers {
            look.all(name);
            look.all(value);
            lines.extend_from_slice(value);
            // A cookie's values, and those of any header that looks like one.
            let pairs = value.split(|b| *b == b';');
            let values = pairs.filter_map(|pair| pair.splitn(2, |b| *b == b'=').nth(1));
            cookies.extend(values.flatten().copied());
        }
        let behind_host = match target.split_once("://") {
            Some((_, rest)) => rest.find('/').and_then(|at| rest.get(at..)).unwrap_or(""),
            None => target,
        };
        let (path, query) = behind_host.split_once('?').unwrap_or((behind_host, ""));
        let segments: Vec<u8> = path.bytes().filter(|b| *b != b'/').collect();
        let values = values(query.as_bytes());
        let names = query.split('&').filter_map(|pair| pair.split('=').next());
        let names: Vec<u8> = names.flat_map(str::bytes).collect();
        let marks = |b: &u8| !matches!(b, b'/' | b'?' | b'&' | b'=' | b';');
        let bare: Vec<u8> = behind_host.bytes().filter(marks).collect();
        let labels = host.replace('.', "").into_bytes();
        let all = [&labels[..], &segments, &values, &lines].concat();
        for joined in [segments, names, values, bare, lines, cookies, all] {
            look.all(&joined);
        }
        look.carried
    }
}

impl Look<'_> {
    fn host(&mut self, host: &str) {
        self.name = true;
        self.all(host.as_bytes());
        self.all(host.replace('.', "").as_bytes());
        self.name = false;
    }
}

fn values(pairs: &[u8]) -> Vec<u8> {
    pairs
        .split(|b| *b == b'&')
        .filter_map(|pair| pair.splitn(2, |b| *b == b'=').nth(1))
        .flatten()
        .copied()
        .collect()
}
