//! The host's files through `/proc`.

use kairos_e2e::place::canary;

use crate::ground::Ground;

#[test]
fn the_root_and_working_folders_of_other_processes() {
    let ground = Ground::new();
    let word = canary();
    let file = ground.workspace.home().join("other/secret.txt");
    std::fs::write(&file, &word).unwrap();
    let probe = format!(
        "for p in /proc/[0-9]*; do cat $p/root{file} $p/cwd/other/secret.txt $p/cwd/../other/secret.txt; done 2>/dev/null; \
         cat {file} 2>/dev/null; cat /proc/self/root{file} 2>/dev/null",
        file = file.display()
    );
    let control = ground.outside(&probe);
    assert!(control.stdout.contains(&word), "{control:?}");
    let outcome = ground.inside(&probe);
    assert!(
        !outcome.stdout.contains(&word),
        "a file of the home is readable\n{outcome}"
    );
}

#[test]
fn writing_through_them() {
    let ground = Ground::new();
    let mark = ground.workspace.home().join("other/planted");
    let probe = format!(
        "for p in /proc/[0-9]*; do echo x > $p/root{mark}; echo x > $p/cwd/../other/planted; done 2>/dev/null; true",
        mark = mark.display()
    );
    ground.outside(&probe);
    assert!(mark.exists(), "the control planted nothing");
    std::fs::remove_file(&mark).unwrap();
    let outcome = ground.inside(&probe);
    assert!(!mark.exists(), "{outcome}");
}

#[test]
fn processes_of_the_host_are_not_there() {
    let ground = Ground::new();
    let probe = "ls -d /proc/[0-9]* | wc -l; cat /proc/1/cmdline | tr '\\0' ' '; cat /proc/sys/kernel/random/boot_id";
    let host = std::path::Path::new("/proc").read_dir().unwrap().flatten();
    let host = host
        .filter(|entry| {
            entry
                .file_name()
                .to_str()
                .is_some_and(|name| name.parse::<u32>().is_ok())
        })
        .count();
    let outcome = ground.inside(probe);
    let seen: usize = outcome
        .stdout
        .lines()
        .next()
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert!(
        seen < 12 && seen < host + 12,
        "{seen} processes are seen\n{outcome}"
    );
}

#[test]
fn kernel_settings_and_triggers_are_out_of_reach() {
    let ground = Ground::new();
    let outcome = ground.inside(
        "for f in /proc/sysrq-trigger /proc/sys/kernel/core_pattern /proc/sys/vm/drop_caches /proc/kcore /proc/kmsg; do \
         ( : > $f ) 2>/dev/null && echo opened $f; done; head -c 1 /proc/kcore >/dev/null 2>&1 && echo read kcore; true",
    );
    assert!(
        !outcome.stdout.contains("opened") && !outcome.stdout.contains("read kcore"),
        "{outcome}"
    );
}
