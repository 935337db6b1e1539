//! Runs real programs inside the boundary and looks at what they reach.
//!
//! The test binary has a `main` of its own because the boundary starts it again as its children;
//! it also starts itself as another user, to try everything without root.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

mod checks;
mod probe;
mod runner;
mod sys;
mod tree;

use libtest_mimic::{Arguments, Trial};

fn main() {
    sandbox::child_main_if_requested();
    if std::env::args().nth(1).as_deref() == Some(probe::ARGUMENT) {
        probe::main();
        return;
    }
    let arguments = Arguments::from_args();
    let users = runner::users();
    let trials = users.iter().flat_map(|user| {
        let able = runner::is_able(user);
        checks::all().map(move |(name, check)| {
            let user = user.clone();
            let title = format!("{}::{name}", user.name());
            let trial = Trial::test(title, move || {
                let _open = (!name.contains("closed_fuse")).then(runner::open_fuse);
                check(&user).map_err(libtest_mimic::Failed::from)
            });
            trial.with_ignored_flag(!able)
        })
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    drop(users);
    conclusion.exit();
}
