//! Open files that the monitor was started with.

use kairos_e2e::Run;
use kairos_e2e::place::canary;

use crate::ground::Ground;

#[test]
fn a_file_and_a_folder_that_the_caller_left_open() {
    let ground = Ground::new();
    let word = canary();
    let folder = ground.workspace.home().join("other");
    std::fs::write(folder.join("secret.txt"), &word).unwrap();
    let open = format!(
        "exec 7<{folder}/secret.txt 9<{folder}",
        folder = folder.display()
    );
    let probe = "cat <&7; cat /proc/self/fd/7; cat /proc/self/fd/9/secret.txt; \
                 for n in 3 4 5 6 7 8 9 10 11 12; do cat /proc/self/fd/$n /proc/self/fd/$n/secret.txt; done 2>/dev/null; \
                 ls -l /proc/self/fd";
    let control = ground.outside(&format!("{open}; {probe}"));
    assert!(control.stdout.contains(&word), "{control:?}");
    let outcome = Run::shell(&ground.workspace, &format!("{probe}\necho probe ran"))
        .within(&ground.world)
        .before(&open)
        .finish();
    assert!(outcome.stdout.contains("probe ran"), "{outcome}");
    assert!(!outcome.stdout.contains(&word), "{outcome}");
    // Standard input, output, error, and the folder that `ls` reads.
    let listed = outcome
        .stdout
        .lines()
        .filter(|line| line.contains(" -> "))
        .count();
    assert!(listed <= 4, "{listed} descriptors\n{outcome}");
}
