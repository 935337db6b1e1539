//! Hosts in their ASCII form agree with the library that browsers' rules are tested against,
//! wherever it accepts them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use kernel::Kind;
use kernel::value::normal;
use proptest::prelude::*;

#[test]
fn known_hosts() {
    for host in [
        "bücher.example",
        "münchen.de",
        "例え.テスト",
        "ＥＸＡＭＰＬＥ.com",
        "правда.рф",
        "straße.de",
        "é.example",
        "xn--bcher-kva.example",
        "a.b.c",
    ] {
        assert_eq!(
            normal(Kind::Host, host),
            idna::domain_to_ascii(host).unwrap(),
            "{host}"
        );
    }
}

proptest! {
    #[test]
    fn any_host(host in "[a-z0-9à-öа-яα-ωぁ-ん中文ßK]{1,12}\\.(example|рф|中国)") {
        if let Ok(theirs) = idna::domain_to_ascii(&host) {
            prop_assert_eq!(normal(Kind::Host, &host), theirs);
        }
    }
}
