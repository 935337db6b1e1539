//! A million steps, from seeds that never change: what the test command can do in a minute. `just simulate` goes on.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use sim::{Report, run, shrink};

const RUNS: u64 = 2_500;
const STEPS: u64 = 400;

#[test]
fn a_million_steps_break_no_guarantee() {
    let threads = 2;
    let totals: Vec<Report> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                scope.spawn(move || {
                    let mut total = Report::default();
                    for seed in (worker..RUNS).step_by(threads as usize) {
                        match run(seed, STEPS) {
                            Ok(report) => total.add(report),
                            Err(failure) => panic!("{}", shrink(failure, 100)),
                        }
                    }
                    total
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .collect()
    });
    let mut total = Report::default();
    totals.into_iter().for_each(|report| total.add(report));
    println!("{total:?}");
    assert_eq!(total.steps, RUNS * STEPS);
    // A world in which nothing happens proves nothing.
    for (what, number, least) in [
        ("observed", total.observed, 50_000),
        ("held", total.held, 100_000),
        ("crashes", total.crashes, 10_000),
        ("recovered", total.recovered, 10_000),
    ] {
        assert!(number >= least, "{what}: only {number}");
    }
}
