//! Held changes as layers over one base: each is decided by itself, and takes with it what builds on it
//! and nothing else.

use std::fs;

use crate::world::{World, snapshot};
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
