//! What programs may expect of a Linux file system, case by case, on a tree and on the plain disk:
//! the same answers, and then the host has what the tree has. The cases are `tests/files/generic`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::world::{Disk, World, scratch, snapshot};
use files::Options;

/// Cases with another answer than the plain disk's, and why; the answer is checked, too.
const OTHERWISE: [(&str, &str, &str); 2] = [
    (
        "g004_g389_g509_files_without_a_name",
        r#"[["hidden", []], "ENOTSUP"]"#,
        "the FUSE library has no such request; programs fall back to a name",
    ),
    (
        "g078_whiteouts",
        r#"["EINVAL", [true, false]]"#,
        "a whiteout is a device node",
    ),
];

/// Runs all cases in a directory; what each answered, by name.
fn answers(dir: &Path) -> BTreeMap<String, String> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/files/generic");
    let out = Command::new("python3")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(cases)
        .arg(dir)
        .stderr(std::process::Stdio::inherit())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{text}");
    text.lines()
        .map(|line| {
            let (name, answer) = line.split_once(' ').unwrap();
            (name.to_string(), answer.to_string())
        })
        .collect()
}

/// The cases on a tree whose changes are decided after this much quiet.
fn like_the_plain_disk(quiet: Duration) {
    let options = Options {
        quiet,
        ..Options::default()
    };
    let world = World::on(Disk::new(), options);
    let plain = scratch();
    let (ours, theirs) = (answers(&world.inside()), answers(plain.path()));
    assert!(theirs.len() > 70, "only {} cases", theirs.len());
    let mut wrong = Vec::new();
    for (name, answer) in &theirs {
        assert!(
            !answer.starts_with("RAISED"),
            "on the plain disk {name} {answer}"
        );
        let otherwise = OTHERWISE.iter().find(|(case, _, _)| case == name);
        let wanted = otherwise.map_or(answer.as_str(), |(_, wanted, _)| wanted);
        if ours.get(name).map(String::as_str) != Some(wanted) {
            wrong.push(format!(
                "{name}\n  ours   {:?}\n  wanted {wanted}",
                ours.get(name)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    world.settle();
    let special = |line: &String| !line.contains(" socket") && !line.ends_with("socket");
    let inside: Vec<String> = snapshot(&world.inside())
        .into_iter()
        .filter(special)
        .collect();
    let host = snapshot(&world.base());
    let only = |a: &[String], b: &[String]| -> Vec<String> {
        a.iter().filter(|line| !b.contains(line)).cloned().collect()
    };
    assert_eq!(
        (only(&host, &inside), only(&inside, &host)),
        (vec![], vec![]),
        "the host; {:?}",
        world.failed()
    );
    let _ = fs::remove_dir_all(plain.path());
}

#[test]
fn like_the_plain_disk_when_nothing_is_decided_meanwhile() {
    like_the_plain_disk(Duration::from_secs(1000));
}

#[test]
fn like_the_plain_disk_while_all_is_decided_at_once() {
    like_the_plain_disk(Duration::from_millis(1));
}
