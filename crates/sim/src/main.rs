//! `simulate [--seconds N | --steps N] [--seed N] [--tell]`: many runs from fresh seeds, or one again.
#![allow(clippy::print_stdout, reason = "a program for developers")]

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use sim::run::run_telling;
use sim::{Report, run, shrink};

/// Steps of one run: long enough for a dozen crashes, short enough to be read.
const STEPS: u64 = 400;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut seconds, mut steps, mut seed, mut tell) = (None, None, None, false);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|word| word.parse::<u64>().ok());
        match argument.as_str() {
            "--tell" => tell = true,
            "--seconds" => seconds = number(),
            "--steps" => steps = number(),
            "--seed" => seed = number(),
            other => {
                eprintln!(
                    "simulate: `{other}` is not known; simulate [--seconds N | --steps N] [--seed N] [--tell]"
                );
                return ExitCode::from(2);
            }
        }
    }
    if let Some(seed) = seed {
        let result = run_telling(seed, steps.unwrap_or(STEPS), |step, seen| {
            if tell {
                println!("{step:5} {seen:?}");
            }
        });
        return match result {
            Ok(report) => told(report, 1),
            Err(failure) => failed(failure),
        };
    }
    let first = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let first = first.map_or(1, |time| time.as_nanos() as u64) / 1000 * 1000;
    let until = Instant::now()
        + Duration::from_secs(seconds.unwrap_or(if steps.is_some() { u64::MAX / 4 } else { 60 }));
    let mut total = Report::default();
    let mut runs = 0;
    while Instant::now() < until && steps.is_none_or(|steps| total.steps < steps) {
        match run(first + runs, STEPS) {
            Ok(report) => total.add(report),
            Err(failure) => return failed(shrink(failure, 200)),
        }
        runs += 1;
    }
    told(total, runs)
}

fn told(report: Report, runs: u64) -> ExitCode {
    println!("{runs} runs, nothing broken: {report:?}");
    ExitCode::SUCCESS
}

fn failed(failure: sim::Failure) -> ExitCode {
    println!("{failure}");
    ExitCode::FAILURE
}
