//! Every interleaving of three effects of all classes in up to three scopes, both kinds of speculation, with a crash
//! anywhere.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use sim::model::{Explored, PROPERTIES, explore, setups};

#[test]
fn every_interleaving_of_three_effects_keeps_every_property() {
    let setups = setups();
    let total: Explored = std::thread::scope(|scope| {
        let setups = &setups;
        let workers: Vec<_> = (0..2)
            .map(|worker| {
                scope.spawn(move || {
                    let mut total = Explored::default();
                    for setup in setups.iter().skip(worker).step_by(2) {
                        total.add(explore(setup).unwrap_or_else(|broken| panic!("{broken}")));
                    }
                    total
                })
            })
            .collect();
        let mut total = Explored::default();
        for worker in workers {
            total.add(worker.join().unwrap());
        }
        total
    });
    println!("{} setups: {total:?}", setups.len());
    for property in PROPERTIES {
        println!("  {property}");
    }
    assert!(
        total.states > 100_000 && total.two_scopes > 10_000 && total.crashes > 100_000,
        "{total:?}"
    );
}
