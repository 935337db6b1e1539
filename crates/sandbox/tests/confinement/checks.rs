//! One function a promise. Each is run as root and as an ordinary user.

use crate::runner::User;

type Check = fn(&User) -> Result<(), String>;

pub(crate) const ALL: &[(&str, Check)] = &[
    ("the_command_runs_and_its_status_comes_back", status),
    ("tcp_is_captured_with_its_destination", tcp),
    ("a_tree_is_served_from_outside", tree),
];

fn expect(condition: bool, what: impl std::fmt::Debug) -> Result<(), String> {
    if condition {
        Ok(())
    } else {
        Err(format!("{what:#?}"))
    }
}

fn status(user: &User) -> Result<(), String> {
    let seen = user.run("id -u; echo problem >&2; exit 7");
    expect(seen.code == 7 && seen.error.is_none(), &seen)?;
    expect(seen.stdout == format!("{}\n", user.uid()), &seen)?;
    expect(seen.stderr == "problem\n", &seen)?;
    eprintln!("started in {} us", seen.start_us);
    Ok(())
}

fn tcp(user: &User) -> Result<(), String> {
    let seen = user.run(
        "for to in 198.51.100.9/443 2001:db8::9/8080 10.255.0.1/65000; do
           head -1 < /dev/tcp/$to; done",
    );
    let to = ["198.51.100.9:443", "[2001:db8::9]:8080", "10.255.0.1:65000"];
    let said: String = to.iter().map(|to| format!("you meant {to}\n")).collect();
    expect(seen.stdout == said && seen.tcp == to, &seen)
}

fn tree(user: &User) -> Result<(), String> {
    let seen = user.confine(user.plan_with_tree("cat /srv/work/hello; stat -c %u /srv/work"));
    expect(
        seen.stdout == format!("{}{}\n", crate::tree::CONTENT, user.uid()),
        &seen,
    )
}
