//! Links that lead out of the workspace.

use kairos_e2e::place::canary;

use crate::ground::Ground;

#[test]
fn one_that_the_agent_made() {
    let ground = Ground::new();
    let (secret, victim) = files(&ground);
    let outcome = ground.inside(&format!(
        "ln -s '{victim}' link; echo overwritten > link; ln -s '{secret}' window; cat window; ln -s '{home}' up; \
         echo x > up/other/planted; cat up/other/secret.txt; true",
        victim = victim.display(),
        secret = secret.display(),
        home = ground.workspace.home().display(),
    ));
    untouched(&ground, &outcome.stdout, &outcome.to_string());
}

#[test]
fn one_that_was_there_before() {
    let ground = Ground::new();
    let (secret, victim) = files(&ground);
    std::os::unix::fs::symlink(&victim, ground.workspace.path().join("link")).unwrap();
    std::os::unix::fs::symlink(&secret, ground.workspace.path().join("window")).unwrap();
    std::os::unix::fs::symlink("../other", ground.workspace.path().join("up")).unwrap();
    let probe = "echo overwritten > link; cat window; cat up/secret.txt; echo x > up/planted; true";
    let outcome = ground.inside(probe);
    untouched(&ground, &outcome.stdout, &outcome.to_string());
    let control = ground.outside(probe);
    assert!(
        control
            .stdout
            .contains(std::fs::read_to_string(&secret).unwrap().as_str()),
        "{control:?}"
    );
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "overwritten\n");
}

#[test]
fn a_folder_swapped_for_a_link_before_the_commit() {
    let ground = Ground::new();
    files(&ground);
    ground.workspace.write("folder/old.txt", "old\n");
    let outcome = ground.inside(&format!(
        "echo x > folder/planted; mv folder folder2; ln -s '{}' folder; echo y > folder/planted; true",
        ground.workspace.home().join("other").display()
    ));
    untouched(&ground, &outcome.stdout, &outcome.to_string());
}

fn files(ground: &Ground) -> (std::path::PathBuf, std::path::PathBuf) {
    let other = ground.workspace.home().join("other");
    std::fs::write(other.join("secret.txt"), canary()).unwrap();
    std::fs::write(other.join("victim.txt"), "mine\n").unwrap();
    (other.join("secret.txt"), other.join("victim.txt"))
}

#[track_caller]
fn untouched(ground: &Ground, stdout: &str, shown: &str) {
    let other = ground.workspace.home().join("other");
    let secret = std::fs::read_to_string(other.join("secret.txt")).unwrap();
    assert!(!stdout.contains(&secret), "the secret was read\n{shown}");
    assert_eq!(
        std::fs::read_to_string(other.join("victim.txt")).unwrap(),
        "mine\n",
        "{shown}"
    );
    assert!(!other.join("planted").exists(), "{shown}");
}
