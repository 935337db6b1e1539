//! A second name of a file, one inside the workspace and one outside.

use std::os::unix::fs::MetadataExt;

use crate::ground::Ground;

#[test]
fn of_a_file_of_the_host_that_the_agent_would_make() {
    let ground = Ground::new();
    let outcome = ground.inside(
        "ln /etc/passwd stolen && echo linked; ln /usr/bin/id program && echo linked; \
         ln ../other/notes.txt notes && echo linked; true",
    );
    assert!(!outcome.stdout.contains("linked"), "{outcome}");
    let inode = std::fs::metadata("/etc/passwd").unwrap().ino();
    for entry in ground.workspace.path().read_dir().unwrap().flatten() {
        assert_ne!(entry.metadata().unwrap().ino(), inode);
    }
}

#[test]
fn that_was_there_before() {
    let ground = Ground::new();
    let outer = ground.workspace.home().join("other/notes.txt");
    std::fs::hard_link(&outer, ground.workspace.path().join("notes.txt")).unwrap();
    let before = std::fs::read_to_string(&outer).unwrap();
    // Held, because what it writes is executed later; the other name must not show it in the meantime.
    let outcome = ground
        .inside("echo overwritten > notes.txt; cat notes.txt; chmod 777 notes.txt; sleep 0.5");
    assert!(outcome.stdout.contains("overwritten"), "{outcome}");
    assert_eq!(
        std::fs::read_to_string(&outer).unwrap(),
        before,
        "the name outside was changed too\n{outcome}"
    );
}
