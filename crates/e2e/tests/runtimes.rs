//! Every runtime trusts the boundary without a flag. `just runtimes` installs them; those that the test command has are in `net.rs`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use kairos_e2e::place::canary;
use kairos_e2e::{Policy, Run, Witness, Workspace};

const GOOD: &str = "good.example.test";

/// `script` reaches `https://GOOD/canary` without a flag, in an environment without a hint.
#[track_caller]
fn trusts(script: &str) {
    let workspace = Workspace::plain();
    let witness = Witness::start(&workspace.logs());
    let word = canary();
    let policy = Policy::new()
        .allow(GOOD, Some(&witness.url()))
        .more(&format!("[agent]\nexpose = [{:?}]", tools()));
    let script = script
        .replace("{url}", &format!("https://{GOOD}/{word}"))
        .replace("{tools}", &tools());
    let outcome = Run::shell(&workspace, &script).policy(&policy).finish();
    assert!(witness.sees(&word), "{outcome}");
}

/// Where `scripts/install-runtimes` put what does not come with the system.
fn tools() -> String {
    std::env::var("KAIROS_RUNTIMES").expect("`just runtimes` sets KAIROS_RUNTIMES")
}

#[test]
#[ignore = "needs Go: `just runtimes`"]
fn go() {
    trusts(
        "cat > get.go <<'END'
package main

import (
\t\"net/http\"
\t\"os\"
)

func main() {
\tif _, err := http.Get(os.Args[1]); err != nil {
\t\tpanic(err)
\t}
}
END
go run get.go {url}",
    );
}

#[test]
#[ignore = "needs Ruby: `just runtimes`"]
fn ruby() {
    trusts("env -i PATH=/usr/bin:/bin ruby -ropen-uri -e 'URI.open(\"{url}\").read'");
}

#[test]
#[ignore = "needs PHP: `just runtimes`"]
fn php() {
    trusts("env -i PATH=/usr/bin:/bin php -r 'file_get_contents(\"{url}\") !== false || exit(1);'");
}

#[test]
#[ignore = "needs PHP: `just runtimes`"]
fn php_with_curl() {
    trusts(
        "env -i PATH=/usr/bin:/bin php -r '$c = curl_init(\"{url}\"); curl_exec($c) || exit(1);'",
    );
}

#[test]
#[ignore = "needs wget: `just runtimes`"]
fn wget() {
    trusts("env -i /usr/bin/wget -qO- {url}");
}

#[test]
#[ignore = "needs GnuTLS: `just runtimes`"]
fn gnutls() {
    // It ends with its input, so that stays open for a moment.
    trusts(&format!(
        "{{ printf 'GET /%s HTTP/1.1\\r\\nHost: {GOOD}\\r\\nConnection: close\\r\\n\\r\\n' $(basename {{url}}); sleep 3; }} | \
         env -i /usr/bin/gnutls-cli {GOOD}"
    ));
}

#[test]
#[ignore = "needs Deno: `just runtimes`"]
fn deno() {
    trusts("{tools}/node_modules/.bin/deno eval 'await fetch(\"{url}\")'");
}

#[test]
#[ignore = "needs Bun: `just runtimes`"]
fn bun() {
    trusts("{tools}/node_modules/.bin/bun -e 'await fetch(\"{url}\")'");
}
