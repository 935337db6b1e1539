//! Measures the trees beside the bare directory, kernel overlayfs and fuse-overlayfs: every job in
//! turn on each, the best of several rounds. Prints tables. Run as root by `scripts/measure-files`:
//! `measure tmpfs DIR` (jobs), `measure disk DIR` (what waits for the disk), `measure start DIR`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a measurement that cannot go on has failed"
)]

#[path = "../tests/suite/world/mod.rs"]
mod world;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use files::Options;
use world::{Disk, World, run};

/// Directories of the tree that is read, with a thousand files each.
const DIRS: usize = 20;
const BIG_MB: usize = 256;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (what, dir) = match (arguments.next(), arguments.next()) {
        (Some(what), Some(dir)) => (what, PathBuf::from(dir)),
        _ => panic!("measure tmpfs|disk|start DIR"),
    };
    let rounds = arguments.next().map_or(5, |n| n.parse().unwrap());
    let scratch = tempfile::tempdir_in(&dir).unwrap();
    // Whatever makes a directory makes it there.
    if std::env::var_os("KAIROS_FILES_SCRATCH").is_none() {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(std::env::args_os().skip(1))
            .env("KAIROS_FILES_SCRATCH", scratch.path())
            .status()
            .unwrap();
        drop(scratch);
        std::process::exit(status.code().unwrap_or(1));
    }
    match what.as_str() {
        "tmpfs" => jobs(scratch.path(), rounds),
        "disk" => waits(scratch.path(), rounds),
        "start" => starts(scratch.path()),
        _ => panic!("measure tmpfs|disk|start DIR"),
    }
}

/// One way to reach a directory.
struct Way {
    name: &'static str,
    at: PathBuf,
}

/// What is done in a directory; tells how long it took.
type Job = Box<dyn Fn(&Path) -> f64>;

/// Nothing comes to rest while it is measured.
fn options(durable: bool) -> Options {
    Options {
        quiet: Duration::from_secs(10_000),
        durable,
        ..Options::default()
    }
}

fn jobs(scratch: &Path, rounds: usize) {
    let disk = Disk::new();
    fill(&disk.base(), DIRS);
    repository(&disk.base());
    let world = World::on(disk, options(false));
    let bare = scratch.join("bare");
    fs::create_dir(&bare).unwrap();
    fill(&bare, DIRS);
    repository(&bare);
    let lower = scratch.join("lower");
    fs::create_dir(&lower).unwrap();
    fill(&lower, DIRS);
    repository(&lower);
    let lowers = Layers::new(&lower, scratch);
    let ways = lowers.ways(&world, bare);
    let tar = scratch.join("t.tar");
    let names: Vec<String> = (0..10).map(|d| format!("d{d}")).collect();
    run(
        &ways[0].at,
        &format!("tar cf {} {}", tar.display(), names.join(" ")),
    );
    let block = vec![1; 1 << 20];
    let jobs: Vec<(&str, Job)> = vec![
        (
            "4 KB cycle, us",
            Box::new(|at| cycle(at, 2000) / 2000.0 * 1e6),
        ),
        (
            "`find`, 20 thousand files, ms",
            shell("find . -type f | wc -l"),
        ),
        (
            "`git status`, 20 thousand, ms",
            shell("git status --porcelain"),
        ),
        (
            "`grep -r`, 20 thousand, ms",
            shell("grep -r nowhere d* || true"),
        ),
        (
            "`tar x`, 10 thousand files, ms",
            shell(&format!("mkdir out && tar xf {} -C out", tar.display())),
        ),
        ("`rm -r`, 10 thousand, ms", shell("rm -r out")),
        (
            "write 256 MB, ms",
            Box::new(move |at| {
                let _ = fs::remove_file(at.join("big"));
                timed(|| {
                    let mut file = fs::File::create(at.join("big")).unwrap();
                    (0..BIG_MB).for_each(|_| file.write_all(&block).unwrap());
                }) * 1e3
            }),
        ),
        (
            "read 256 MB, ms",
            Box::new(|at| {
                let mut block = vec![0; 1 << 20];
                timed(|| {
                    let mut file = fs::File::open(at.join("big")).unwrap();
                    while file.read(&mut block).unwrap() > 0 {}
                }) * 1e3
            }),
        ),
    ];
    let mut best = vec![vec![f64::MAX; ways.len()]; jobs.len()];
    for round in 0..=rounds {
        for (job, (_, measure)) in jobs.iter().enumerate() {
            for (way, place) in ways.iter().enumerate() {
                let time = measure(&place.at);
                // The first round warms up.
                if round > 0 {
                    best[job][way] = best[job][way].min(time);
                }
            }
        }
    }
    head(&ways);
    for ((name, _), row) in jobs.iter().zip(&best) {
        tell(name, row);
        if name.starts_with("`grep") {
            let mut row = row.clone();
            row[3] = first_reads(rounds);
            tell("the same, `reads = \"first\"`", &row);
        }
    }
}

/// The search over all files where an open is no event.
fn first_reads(rounds: usize) -> f64 {
    let disk = Disk::new();
    fill(&disk.base(), DIRS);
    let options = Options {
        reads: files::Reads::First,
        ..options(false)
    };
    let world = World::on(disk, options);
    let search = shell("grep -r nowhere d* || true");
    search(&world.inside());
    let times = (0..rounds).map(|_| search(&world.inside()));
    times.fold(f64::MAX, f64::min)
}

/// What waits for the disk.
fn waits(scratch: &Path, rounds: usize) {
    let world = World::on(Disk::new(), options(true));
    let bare = scratch.join("bare");
    fs::create_dir(&bare).unwrap();
    let lower = scratch.join("lower");
    fs::create_dir(&lower).unwrap();
    let lowers = Layers::new(&lower, scratch);
    let ways = lowers.ways(&world, bare);
    let mut best = vec![f64::MAX; ways.len()];
    for _ in 0..rounds {
        for (slot, way) in best.iter_mut().zip(&ways) {
            *slot = slot.min(cycle(&way.at, 200) / 200.0 * 1e6);
        }
    }
    head(&ways);
    tell("4 KB cycle, durable, us", &best);
    drop(lowers);
    drop(world);
    let (mut commit, mut copy) = (f64::MAX, f64::MAX);
    for round in 0..rounds {
        let world = World::on(Disk::new(), options(false));
        let from = scratch.join(format!("from{round}"));
        fs::create_dir(&from).unwrap();
        fill(&from, 10);
        run(&from, &format!("cp -a . {}", world.inside().display()));
        copy = copy.min(timed(|| copied(&from, &scratch.join(format!("to{round}")))));
        commit = commit.min(timed(|| world.settle()));
        assert!(world.base().join("d9/f999").exists());
    }
    println!(
        "\n| 10 thousand files, ms | `cp -a` and fsync of each | commit | commit / copy |\n|---|---|---|---|"
    );
    println!(
        "|  | {:.0} | {:.0} | {:.2} |",
        copy * 1e3,
        commit * 1e3,
        commit / copy
    );
}

/// Opening big workspaces.
fn starts(scratch: &Path) {
    println!(
        "| files | open and serve, ms | first `ls`, ms | first `find`, s | resident after it, MB |\n|---|---|---|---|---|"
    );
    for dirs in [1, 100, 1000] {
        let disk = Disk::new();
        fill(&disk.base(), dirs);
        let start = Instant::now();
        let world = World::on(disk, options(false));
        let served = start.elapsed();
        let first = timed(|| drop(run(&world.inside(), "ls")));
        let find = timed(|| drop(run(&world.inside(), "find . -type f -size +0 | wc -l")));
        println!(
            "| {} thousand | {:.1} | {:.1} | {:.2} | {} |",
            dirs,
            served.as_secs_f64() * 1e3,
            first * 1e3,
            find,
            resident_mb()
        );
    }
    let _ = scratch;
}

fn resident_mb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS")).unwrap();
    let kb: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kb >> 10
}

fn head(ways: &[Way]) {
    let names: Vec<&str> = ways.iter().map(|way| way.name).collect();
    println!(
        "| | {} | kairos / overlayfs | kairos / fuse-overlayfs |\n|---|{}",
        names.join(" | "),
        "---|".repeat(ways.len() + 2)
    );
}

fn tell(name: &str, row: &[f64]) {
    let times: Vec<String> = row.iter().map(|time| format!("{time:.0}")).collect();
    println!(
        "| {name} | {} | {:.2} | {:.2} |",
        times.join(" | "),
        row[3] / row[1],
        row[3] / row[2]
    );
}

/// The same files below kernel overlayfs and fuse-overlayfs.
struct Layers {
    mounts: Vec<PathBuf>,
}

impl Layers {
    fn new(lower: &Path, scratch: &Path) -> Self {
        let mounts = ["overlayfs", "fuse-overlayfs"]
            .iter()
            .map(|name| {
                let dir = scratch.join(name);
                for part in ["upper", "work", "merged"] {
                    fs::create_dir_all(dir.join(part)).unwrap();
                }
                let options = format!(
                    "lowerdir={},upperdir={}/upper,workdir={}/work",
                    lower.display(),
                    dir.display(),
                    dir.display()
                );
                let at = dir.join("merged");
                let command = match *name {
                    "overlayfs" => {
                        format!("mount -t overlay -o {options} overlay {}", at.display())
                    }
                    _ => format!("fuse-overlayfs -o {options} {}", at.display()),
                };
                run(scratch, &command);
                at
            })
            .collect();
        Self { mounts }
    }

    fn ways(&self, world: &World, bare: PathBuf) -> [Way; 4] {
        [
            ("bare", bare),
            ("kernel overlayfs", self.mounts[0].clone()),
            ("fuse-overlayfs", self.mounts[1].clone()),
            ("kairos", world.inside()),
        ]
        .map(|(name, at)| Way { name, at })
    }
}

impl Drop for Layers {
    fn drop(&mut self) {
        for at in &self.mounts {
            let _ = rustix::mount::unmount(at, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

fn fill(base: &Path, dirs: usize) {
    for d in 0..dirs {
        let dir = base.join(format!("d{d}"));
        fs::create_dir(&dir).unwrap();
        for f in 0..1000 {
            let text = format!("content {d} {f}\n").repeat(20);
            fs::write(dir.join(format!("f{f}")), text).unwrap();
        }
    }
}

fn repository(base: &Path) {
    run(
        base,
        "git init -q . && git config user.email a@b.c && git config user.name n && git config gc.auto 0 \
         && printf 'out\\nbig\\n' > .gitignore && git add . && git commit -qm one",
    );
}

/// `cp -a`, then fsync of every file and directory, as a commit has it.
fn copied(from: &Path, to: &Path) {
    run(from, &format!("cp -a . {}", to.display()));
    let mut open = vec![to.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                fs::File::open(path).unwrap().sync_all().unwrap();
            }
        }
        fs::File::open(dir).unwrap().sync_all().unwrap();
    }
}

fn shell(command: &str) -> Job {
    let command = command.to_string();
    Box::new(move |at| timed(|| drop(run(at, &command))) * 1e3)
}

fn timed(job: impl FnOnce()) -> f64 {
    let start = Instant::now();
    job();
    start.elapsed().as_secs_f64()
}

/// Create, write, fsync, read, unlink; in seconds for all.
fn cycle(at: &Path, rounds: usize) -> f64 {
    let path = at.join("cycle");
    let (content, mut back) = (vec![7u8; 4096], Vec::with_capacity(4096));
    timed(|| {
        for _ in 0..rounds {
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o644)
                .open(&path)
                .unwrap();
            file.write_all(&content).unwrap();
            file.sync_all().unwrap();
            drop(file);
            back.clear();
            fs::File::open(&path)
                .unwrap()
                .read_to_end(&mut back)
                .unwrap();
            fs::remove_file(&path).unwrap();
        }
    })
}
