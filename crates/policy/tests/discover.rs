//! Which policy is in force, and that a planted one never is.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use std::fs;
use std::path::Path;

use policy::{Places, PolicyOrigin, discover, distrust, recorded, trust};

struct World {
    dir: tempfile::TempDir,
    places: Places,
}

fn world() -> World {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    };
    let places = Places {
        workspace: at("workspace"),
        home: at("home"),
        config_home: at("home/.config"),
        state: at("state"),
    };
    World { dir, places }
}

impl World {
    fn plant(&self, text: &str) {
        fs::write(self.places.workspace.join("kairos.toml"), text).unwrap();
    }

    fn from(&self) -> PolicyOrigin {
        discover(&self.places, None).unwrap().from
    }

    fn told(&self, text: &str) -> String {
        text.replace(self.dir.path().to_str().unwrap(), "DIR")
    }
}

const WIDE: &str = "[workspace]\ntrusted = true\n";

#[test]
fn without_a_file_the_default_holds() {
    let found = discover(&world().places, None).unwrap();
    assert_eq!(found.from, PolicyOrigin::Default);
    assert_eq!(found.note, None);
    assert_eq!(found.loaded.origin, None);
}

#[test]
fn a_planted_file_is_not_in_force_and_that_is_told() {
    let world = world();
    world.plant(WIDE);
    let found = discover(&world.places, None).unwrap();
    assert_eq!(found.from, PolicyOrigin::Default);
    insta::assert_snapshot!(world.told(&found.note.unwrap()));
    let kinds = found
        .loaded
        .kernel
        .trusted_kinds(&kernel::Source::Location {
            tree: "workspace".to_string(),
            path: "x".to_string(),
        });
    assert!(!kinds.contains(kernel::Kind::Host));
}

#[test]
fn a_planted_file_with_mistakes_stops_nothing() {
    let world = world();
    world.plant("nonsense");
    assert_eq!(world.from(), PolicyOrigin::Default);
}

#[test]
fn approving_puts_exactly_this_content_in_force() {
    let world = world();
    world.plant(WIDE);
    trust(&world.places).unwrap();
    assert_eq!(world.from(), PolicyOrigin::Workspace);
    world.plant("[workspace]\ntrusted = [\"path\", \"host\"]\n");
    let changed = discover(&world.places, None).unwrap_err().to_string();
    insta::assert_snapshot!(world.told(&changed));
    trust(&world.places).unwrap();
    assert_eq!(world.from(), PolicyOrigin::Workspace);
    distrust(&world.places).unwrap();
    assert_eq!(world.from(), PolicyOrigin::Default);
    distrust(&world.places).unwrap();
}

#[test]
fn the_files_it_names_are_approved_with_it() {
    let world = world();
    let rules = world.places.workspace.join("r.cedar");
    world.plant("rules = \"r.cedar\"\n");
    fs::write(
        &rules,
        "forbid(principal, action, resource) when { context.bytes > 10 };",
    )
    .unwrap();
    trust(&world.places).unwrap();
    assert_eq!(world.from(), PolicyOrigin::Workspace);
    fs::write(
        &rules,
        "forbid(principal, action, resource) when { context.bytes > 99 };",
    )
    .unwrap();
    assert!(discover(&world.places, None).is_err());
}

#[test]
fn an_approval_is_for_one_workspace() {
    let world = world();
    world.plant(WIDE);
    trust(&world.places).unwrap();
    let other = world.dir.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("kairos.toml"), WIDE).unwrap();
    let places = Places {
        workspace: other,
        ..world.places.clone()
    };
    assert_eq!(discover(&places, None).unwrap().from, PolicyOrigin::Default);
}

#[test]
fn a_damaged_approval_approves_nothing() {
    let world = world();
    world.plant(WIDE);
    trust(&world.places).unwrap();
    for entry in fs::read_dir(world.places.state.join("trusted-policies")).unwrap() {
        fs::write(entry.unwrap().path(), "").unwrap();
    }
    assert!(discover(&world.places, None).is_err());
}

#[test]
fn a_file_with_mistakes_cannot_be_approved() {
    let world = world();
    world.plant("nonsense");
    assert!(trust(&world.places).is_err());
    assert_eq!(world.from(), PolicyOrigin::Default);
}

#[test]
fn given_before_workspace_before_operators_own() {
    let world = world();
    let own = world.places.config_home.join("kairos/kairos.toml");
    fs::create_dir_all(own.parent().unwrap()).unwrap();
    fs::write(&own, WIDE).unwrap();
    assert_eq!(world.from(), PolicyOrigin::Operator);
    world.plant(WIDE);
    trust(&world.places).unwrap();
    assert_eq!(world.from(), PolicyOrigin::Workspace);
    let given = discover(&world.places, Some(&own)).unwrap();
    assert_eq!(given.from, PolicyOrigin::Given);
    assert!(discover(&world.places, Some(Path::new("/no/such.toml"))).is_err());
}

#[test]
fn what_a_session_recorded_is_the_same_policy_later() {
    let world = world();
    fs::create_dir_all(world.places.home.join(".codex")).unwrap();
    world.plant("rules = \"r.cedar\"\n[agent]\nstate = [\"~/.codex\"]\n");
    let rules = world.places.workspace.join("r.cedar");
    fs::write(
        &rules,
        "@name(\"big\")\nforbid(principal, action, resource) when { context.bytes > 10 };",
    )
    .unwrap();
    let loaded = trust(&world.places).unwrap();
    // Whatever happens to the files since.
    fs::remove_file(&rules).unwrap();
    fs::remove_dir(world.places.home.join(".codex")).unwrap();
    let again = recorded(&loaded.text).unwrap();
    assert_eq!(again.kernel.epoch, loaded.kernel.epoch);
    assert_eq!(again.rules.names(), ["big"]);
    assert_eq!(again.agent, loaded.agent);
    assert_eq!(
        format!("{:?}", again.kernel),
        format!("{:?}", loaded.kernel)
    );
    for damaged in [
        "",
        "{}",
        "null",
        &loaded.text[1..],
        &loaded.text.replace("\"version\":1", "\"version\":2"),
    ] {
        assert!(recorded(damaged).is_err(), "{damaged:.40}");
    }
    assert!(
        recorded(&loaded.text.replace("> 10", "> 99"))
            .is_ok_and(|l| l.kernel.epoch != loaded.kernel.epoch)
    );
}
