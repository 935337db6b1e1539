//! One function a promise. Each is run as root and as an ordinary user.

mod basics;
mod files;
mod nesting;
mod network;
mod processes;
mod system_calls;

use crate::runner::User;

pub(crate) type Outcome = Result<(), String>;
pub(crate) type Check = (&'static str, fn(&User) -> Outcome);

/// All of them, by theme.
pub(crate) fn all() -> impl Iterator<Item = Check> {
    [
        basics::CHECKS,
        files::CHECKS,
        network::CHECKS,
        processes::CHECKS,
        system_calls::CHECKS,
        nesting::CHECKS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

fn expect(condition: bool, what: impl std::fmt::Debug) -> Outcome {
    if condition {
        Ok(())
    } else {
        Err(format!("{what:#?}"))
    }
}

/// A script whose every line prints what the comparison expects.
fn prints(user: &User, script: &str, lines: &[&str]) -> Outcome {
    let seen = user.run(script);
    let got: Vec<_> = seen.stdout.lines().collect();
    expect(got == lines && seen.error.is_none(), (script, lines, &seen))
}

/// Perl that prints the name of the error of one system call, or `ok`.
fn try_call(number: i64, arguments: &str) -> String {
    format!(
        "perl -MErrno -e '$r = syscall({number}{arguments}); \
         print $r >= 0 ? \"ok\" : (grep {{ $!{{$_}} }} keys %!)[0], \"\\n\"'; "
    )
}

/// Perl that prints the name of the error of opening a socket, or `ok`.
fn try_socket(family: i32, kind: i32, protocol: i32) -> String {
    format!(
        "perl -MErrno -e '$r = socket(S, {family}, {kind}, {protocol}); \
         print $r ? \"ok\" : (grep {{ $!{{$_}} }} keys %!)[0], \"\\n\"'; "
    )
}
