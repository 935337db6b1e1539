//! Held changes as layers over one base: each is decided by itself, and takes with it what builds on it
//! and nothing else.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use proptest::prelude::*;

use crate::world::{World, run, snapshot};
use kernel::Verdict;

/// Gives a verdict on what is held at a path.
fn decide(world: &World, path: &str, verdict: Verdict) {
    let held = world.session.held();
    let one = held
        .iter()
        .find(|held| held.effect.object.to_string().ends_with(path))
        .ok_or_else(|| format!("`{path}` is not held"))
        .unwrap();
    let _ = world
        .session
        .verdict(one.hold, one.manifest, verdict, "test", "as the test wants");
}

/// Paths that are held.
fn held(world: &World) -> Vec<String> {
    let mut paths: Vec<String> = world
        .session
        .held()
        .iter()
        .map(|held| held.effect.object.to_string())
        .collect();
    paths.sort();
    paths
}

#[test]
fn a_layer_in_the_middle_goes_and_the_others_stay() {
    let world = World::new(|base| fs::write(base.join("held2"), "of the base").unwrap());
    let (inside, base) = (world.inside(), world.base());
    for name in ["held1", "held2", "held3"] {
        fs::write(inside.join(name), format!("staged {name}")).unwrap();
        world.settle();
    }
    assert_eq!(held(&world), ["held1", "held2", "held3"]);
    decide(&world, "held2", Verdict::Refuse);
    assert_eq!(held(&world), ["held1", "held3"]);
    // The base shows through where the layer was, in a file that was read before, too.
    assert_eq!(
        snapshot(&inside),
        [
            "held1 0644 \"staged held1\"",
            "held2 0644 \"of the base\"",
            "held3 0644 \"staged held3\"",
        ]
    );
    assert_eq!(snapshot(&base), ["held2 0644 \"of the base\""]);
    decide(&world, "held3", Verdict::Release);
    decide(&world, "held1", Verdict::Release);
    assert_eq!(snapshot(&base), snapshot(&inside));
}

#[test]
fn what_builds_on_a_layer_waits_for_it_and_goes_with_it() {
    let world = World::new(|_| {});
    let inside = world.inside();
    // A held directory with something in it, held files, and what has nothing to do with them.
    fs::create_dir(inside.join("held-dir")).unwrap();
    fs::write(inside.join("held-file"), "held content").unwrap();
    fs::write(inside.join("held-good"), "good content").unwrap();
    world.settle();
    fs::write(inside.join("held-dir/plain"), "in it").unwrap();
    fs::write(inside.join("other"), "something else").unwrap();
    world.settle();
    assert_eq!(
        held(&world),
        ["held-dir", "held-dir/plain", "held-file", "held-good"],
        "what is in a held directory waits for it"
    );
    assert_eq!(snapshot(&world.base()), ["other 0644 \"something else\""]);
    decide(&world, "held-file", Verdict::Refuse);
    assert_eq!(held(&world), ["held-dir", "held-dir/plain", "held-good"]);
    decide(&world, "held-good", Verdict::Release);
    assert_eq!(held(&world), ["held-dir", "held-dir/plain"]);
    decide(&world, "held-dir", Verdict::Refuse);
    assert_eq!(held(&world), Vec::<String>::new());
    assert_eq!(
        snapshot(&world.base()),
        [
            "held-good 0644 \"good content\"",
            "other 0644 \"something else\"",
        ]
    );
    assert_eq!(snapshot(&world.base()), snapshot(&inside));
}

#[test]
fn what_was_made_from_a_layer_goes_with_it_and_nothing_else() {
    let world = World::new(|base| fs::write(base.join("source"), "of the base").unwrap());
    let inside = world.inside();
    run(&inside, "echo secret plan > held1; echo another > held2");
    run(
        &inside,
        "cat held1 > copy; sh -c 'cat copy | rev > second; cp copy third'; cat held2 > other-copy; \
         cat source > unrelated; echo plain > plain; sh -c 'read x < held1; mkdir made; ln -s \"$x\" made/link; \
         mv source moved'",
    );
    world.settle();
    assert_eq!(
        held(&world),
        [
            "copy",
            "held1",
            "held2",
            "made",
            "made/link",
            "moved",
            "other-copy",
            "source",
            "third"
        ],
        "what whoever read a held change made afterwards waits for it; {:?}",
        world.seen()
    );
    assert_eq!(
        snapshot(&world.base()),
        [
            "plain 0644 \"plain\\n\"",
            "second 0644 \"nalp terces\\n\"",
            "source 0644 \"of the base\"",
            "unrelated 0644 \"of the base\"",
        ],
        "a pipe is not seen, and what read nothing does not wait"
    );
    decide(&world, "held1", Verdict::Refuse);
    assert_eq!(held(&world), ["held2", "other-copy"]);
    decide(&world, "held2", Verdict::Release);
    assert_eq!(held(&world), Vec::<String>::new());
    assert_eq!(
        snapshot(&world.base()),
        [
            "held2 0644 \"another\\n\"",
            "other-copy 0644 \"another\\n\"",
            "plain 0644 \"plain\\n\"",
            "second 0644 \"nalp terces\\n\"",
            "source 0644 \"of the base\"",
            "unrelated 0644 \"of the base\"",
        ]
    );
    assert_eq!(snapshot(&world.base()), snapshot(&inside));
}

#[test]
fn what_is_made_after_a_refusal_does_not_go_with_it() {
    let world = World::new(|_| {});
    let inside = world.inside();
    fs::write(inside.join("held"), "first").unwrap();
    world.settle();
    // This process has read it: what it makes waits.
    assert_eq!(fs::read_to_string(inside.join("held")).unwrap(), "first");
    fs::write(inside.join("before"), "made from it").unwrap();
    world.settle();
    assert_eq!(held(&world), ["before", "held"]);
    // Not decided when the other is refused: it goes all the same.
    fs::write(inside.join("late"), "made from it, too").unwrap();
    decide(&world, "held", Verdict::Refuse);
    assert_eq!(held(&world), Vec::<String>::new());
    fs::write(inside.join("after"), "something else").unwrap();
    world.settle();
    assert_eq!(held(&world), Vec::<String>::new());
    assert_eq!(snapshot(&world.base()), ["after 0644 \"something else\""]);
    assert_eq!(snapshot(&world.base()), snapshot(&inside));
}

#[test]
fn what_was_made_from_a_change_follows_it_through_its_versions() {
    let world = World::new(|_| {});
    let inside = world.inside();
    run(&inside, "echo one > held; cat held > copy");
    world.settle();
    assert_eq!(held(&world), ["copy", "held"]);
    // Changed in place, replaced by another file, and taken back.
    run(&inside, "echo two >> held");
    world.settle();
    assert_eq!(held(&world), ["copy", "held"]);
    run(&inside, "echo three > new; mv new held");
    world.settle();
    assert_eq!(held(&world), ["copy", "held"]);
    assert_eq!(snapshot(&world.base()), Vec::<String>::new());
    run(&inside, "rm held");
    world.settle();
    assert_eq!(held(&world), Vec::<String>::new());
    assert_eq!(snapshot(&world.base()), ["copy 0644 \"one\\n\""]);
}

#[test]
fn a_commit_of_git_waits_for_what_is_in_it() {
    let world = World::new(|base| {
        run(
            base,
            "git init -q -b main && git config user.email a@b.c && git config user.name n && echo one > f && git add . && git commit -qm one",
        );
    });
    let inside = world.inside();
    run(
        &inside,
        "echo x > held-workflow && git add held-workflow && git commit -qm two",
    );
    world.settle();
    let head = |dir: &std::path::Path| run(dir, "git rev-list --count HEAD").trim().to_string();
    assert_eq!(
        (head(&inside), head(&world.base())),
        ("2".into(), "1".into())
    );
    decide(&world, "held-workflow", Verdict::Refuse);
    assert_eq!(
        (head(&inside), head(&world.base())),
        ("1".into(), "1".into())
    );
    for dir in [&inside, &world.base()] {
        assert_eq!(
            run(
                dir,
                "git --no-optional-locks status --porcelain && git fsck --strict --no-dangling 2>&1"
            ),
            ""
        );
    }
    run(
        &inside,
        "echo y > held-workflow && git add held-workflow && git commit -qm two && echo three > f && git commit -qam three",
    );
    world.settle();
    assert_eq!(head(&world.base()), "1");
    decide(&world, "held-workflow", Verdict::Release);
    assert_eq!(head(&world.base()), "3");
    assert_eq!(
        run(
            &world.base(),
            "git --no-optional-locks status --porcelain && git fsck --strict --no-dangling 2>&1"
        ),
        ""
    );
}

/// Stages a held change and then what a script makes; gives what is held in the end, each script over a fresh
/// world.
fn held_after(script: &str) -> Vec<String> {
    let world = World::new(|base| {
        fs::create_dir(base.join("src")).unwrap();
        fs::write(base.join("held1"), "on: push\n").unwrap();
    });
    run(&world.inside(), script);
    world.settle();
    let found = held(&world);
    decide(&world, "held1", Verdict::Refuse);
    world.settle();
    assert_eq!(held(&world), Vec::<String>::new(), "{script}");
    assert_eq!(
        snapshot(&world.base()),
        snapshot(&world.inside()),
        "{script}"
    );
    let plan = run(&world.base(), "grep -rl plan . || true");
    assert_eq!(plan, "", "{script}: what was refused is in place");
    found
}

const EVIL: &str = "sh -c 'echo a plan of evil >> held1'";

#[test]
fn a_copy_waits_although_it_was_read_and_the_first_one_was_changed_after_it() {
    for last in [
        "sh -c 'echo more >> held1'",
        "touch held1",
        "touch -d 2001-01-01 held1",
        "chmod 600 held1",
    ] {
        let script = format!(
            "{EVIL}; sh -c 'cp held1 src/copy.txt'; sh -c 'cat src/copy.txt >/dev/null'; {last}"
        );
        assert_eq!(held_after(&script), ["held1", "src/copy.txt"], "{last}");
    }
}

#[test]
fn a_copy_waits_although_it_came_by_files_that_are_gone() {
    for way in [
        "cp held1 src/tmp; cp src/tmp src/final.txt; rm src/tmp",
        "cp held1 src/tmp; sleep 0.05; mv src/tmp src/tmp2; cat src/tmp2 src/tmp2 > src/final.txt; rm src/tmp2",
        "cp held1 src/tmp; cp src/tmp src/tmp2; cp src/tmp2 src/tmp3; rm src/tmp src/tmp2; sort src/tmp3 > src/final.txt; rm src/tmp3",
        "mkdir src/d; cp held1 src/d/tmp; (cat src/d/tmp; echo x) > src/final.txt; rm -r src/d",
        // Through what nobody sees, as it is.
        "t=$(mktemp); cp held1 $t; cp $t src/final.txt; rm $t",
        "cat held1 | cat > src/final.txt",
        // The first file is another one by now.
        "cat held1 held1 > src/final.txt; rm held1; echo the plan anew > held1",
        "cat held1 held1 > src/final.txt; echo the plan anew > src/new; mv src/new held1",
    ] {
        let script = format!("{EVIL}; {way}");
        assert_eq!(held_after(&script), ["held1", "src/final.txt"], "{way}");
    }
}

#[test]
fn a_hard_link_waits_for_what_it_is() {
    assert_eq!(
        held_after(&format!("{EVIL}; ln held1 src/hard.txt")),
        ["held1", "src/hard.txt"]
    );
    assert_eq!(
        held_after(&format!(
            "{EVIL}; ln held1 src/hard.txt; cat src/hard.txt src/hard.txt > src/copy; sh -c 'echo more >> held1'"
        )),
        ["held1", "src/copy", "src/hard.txt"]
    );
}

#[test]
fn what_was_made_from_each_other_waits_together() {
    assert_eq!(
        held_after(&format!(
            "{EVIL}; cat held1 held1 > src/a; sh -c 'cat src/a > /dev/null; echo more >> held1'; cat held1 src/a > src/b; \
             sh -c 'read x < src/b; echo \"$x\" >> src/a'"
        )),
        ["held1", "src/a", "src/b"]
    );
}

#[test]
fn no_ref_of_git_goes_that_holds_what_is_held() {
    let commit = "sh -c 'echo a plan of evil >> held1'; git add -A; git commit -qm evil";
    for more in [
        "git log --oneline >/dev/null; sh -c 'echo more >> held1'",
        "git log -p >/dev/null; sh -c 'echo more >> held1'",
        "git status >/dev/null; sh -c 'echo more >> held1'",
        "git checkout -q -b dev; git branch keep; sh -c 'echo more >> held1'",
        "git pack-refs --all",
        "git gc -q",
        "git tag one; git gc -q --prune=now; git tag two",
        "git stash list; git update-ref refs/heads/other HEAD; git update-ref -d refs/heads/main",
    ] {
        let world = World::new(|base| {
            run(
                base,
                "git init -q -b main && git config user.email a@b.c && git config user.name n && git config gc.auto 0 \
                 && echo one > held1 && git add . && git commit -qm one",
            );
        });
        let refs = "git for-each-ref; git rev-list --all | wc -l";
        let before = run(&world.base(), refs);
        run(&world.inside(), &format!("{commit}; {more}"));
        world.settle();
        assert_eq!(
            run(&world.base(), refs),
            before,
            "{more}: {:?}",
            held(&world)
        );
        decide(&world, "held1", Verdict::Refuse);
        world.settle();
        assert_eq!(run(&world.base(), refs), before, "{more}");
        assert_eq!(run(&world.inside(), refs), before, "{more}");
        assert_eq!(held(&world), Vec::<String>::new(), "{more}");
    }
}

const NAMES: [&str; 8] = [
    "a", "b", "held1", "held2", "d", "d/x", "d/held3", "held-dir",
];

/// What is done, or decided.
#[derive(Clone, Debug)]
enum Step {
    Write(usize, u8),
    Append(usize, u8),
    Copy(usize, usize),
    Mkdir(usize),
    Remove(usize),
    Rename(usize, usize),
    /// By a program of its own, which has read nothing before.
    Foreign(usize, usize),
    /// The same by a file that goes away again.
    ByWay(usize, usize),
    Settle,
    Decide(usize, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let n = || 0..NAMES.len();
    let step = prop_oneof![
        4 => (n(), any::<u8>()).prop_map(|(a, b)| Step::Write(a, b)),
        2 => (n(), any::<u8>()).prop_map(|(a, b)| Step::Append(a, b)),
        4 => (n(), n()).prop_map(|(a, b)| Step::Copy(a, b)),
        2 => n().prop_map(Step::Mkdir),
        2 => n().prop_map(Step::Remove),
        3 => (n(), n()).prop_map(|(a, b)| Step::Rename(a, b)),
        1 => (n(), n()).prop_map(|(a, b)| Step::Foreign(a, b)),
        1 => (n(), n()).prop_map(|(a, b)| Step::ByWay(a, b)),
        4 => Just(Step::Settle),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(a, b)| Step::Decide(a, b)),
    ];
    proptest::collection::vec(step, 1..40)
}

/// Decides one of the holds.
fn decide_one(world: &World, which: usize, release: bool) {
    let held = world.session.held();
    let Some(one) = held.get(which % held.len().max(1)) else {
        return;
    };
    let verdict = if release {
        Verdict::Release
    } else {
        Verdict::Refuse
    };
    let _ = world
        .session
        .verdict(one.hold, one.manifest, verdict, "test", "at random");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is held, changed again, read, taken back and decided, in whatever order: in the end the host
    /// has what is seen inside, and nobody has to make peace between them.
    #[test]
    fn decided_in_any_order_the_host_has_what_is_seen(steps in steps()) {
        let world = World::new(|base| fs::write(base.join("a"), "of the base").unwrap());
        let inside = world.inside();
        let at = |n: &usize| inside.join(NAMES[*n]);
        for step in &steps {
            let _: std::io::Result<()> = match step {
                Step::Write(n, byte) => fs::write(at(n), [*byte; 10]),
                Step::Append(n, byte) => fs::OpenOptions::new()
                    .append(true)
                    .open(at(n))
                    .and_then(|mut file| file.write_all(&[*byte])),
                Step::Copy(a, b) => fs::copy(at(a), at(b)).map(drop),
                Step::Mkdir(n) => fs::create_dir(at(n)),
                Step::Remove(n) => fs::remove_file(at(n)).or_else(|_| fs::remove_dir(at(n))),
                Step::Rename(a, b) => fs::rename(at(a), at(b)),
                Step::Foreign(a, b) => {
                    let copy = Command::new("cp").arg(at(a)).arg(at(b)).stderr(Stdio::null()).status();
                    copy.map(drop)
                }
                Step::ByWay(a, b) => {
                    let way = inside.join("way");
                    let script = "cp \"$1\" \"$2\"; cp \"$2\" \"$3\"; rm -rf \"$2\"";
                    let copy = Command::new("sh")
                        .args(["-c", script, "sh"])
                        .args([at(a), way, at(b)])
                        .stderr(Stdio::null())
                        .status();
                    copy.map(drop)
                }
                Step::Settle => {
                    world.settle();
                    Ok(())
                }
                Step::Decide(which, release) => {
                    decide_one(&world, *which, *release);
                    Ok(())
                }
            };
        }
        // What is left: all of it, by turns.
        for n in 0..1000 {
            world.settle();
            if world.session.held().is_empty() {
                break;
            }
            decide_one(&world, n, n % 3 != 0);
        }
        prop_assert_eq!(held(&world), Vec::<String>::new());
        prop_assert_eq!(snapshot(&world.base()), snapshot(&inside), "{:?} {:?}", world.seen(), world.failed());
    }
}
