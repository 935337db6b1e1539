//! Held changes as layers over one base: each is decided by itself, and takes with it what builds on it
//! and nothing else.

use std::fs;

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
        "cat held1 > copy; sh -c 'cat copy | cat > second; cp copy third'; cat held2 > other-copy; \
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
            "second 0644 \"secret plan\\n\"",
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
            "second 0644 \"secret plan\\n\"",
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
