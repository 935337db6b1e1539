//! Measures the 4 KB cycle (create, write, fsync, read, unlink) and a few larger jobs on the trees,
//! beside kernel overlayfs and the bare directory. Run as root:
//! `cargo run --release -p kairos-files --example cycle -- [DIR]` (DIR on the file system to measure).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[path = "../tests/suite/world/mod.rs"]
mod world;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use world::{Mount, World, run};

fn main() {
    let dir = std::env::args()
        .nth(1)
        .map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
    // Whatever makes a directory makes it under TMPDIR: begin anew with it set.
    let scratch = tempfile::tempdir_in(&dir).unwrap();
    if std::env::var_os("TMPDIR").is_none_or(|now| now != *scratch.path())
        && std::env::var_os("CYCLE_CHILD").is_none()
    {
        let me = std::env::current_exe().unwrap();
        let status = std::process::Command::new(me)
            .arg(&dir)
            .env("TMPDIR", scratch.path())
            .env("CYCLE_CHILD", "1")
            .status()
            .unwrap();
        std::process::exit(status.code().unwrap_or(1));
    }
    let world = World::new(fill);
    let overlay = overlay();
    let bare = tempfile::tempdir().unwrap();
    fill(bare.path());
    let places: [(&str, PathBuf); 3] = [
        ("bare", bare.path().to_path_buf()),
        ("overlayfs", overlay.1.clone()),
        ("trees", world.inside()),
    ];
    println!("{:28}{:>12}{:>12}{:>12}", "", "bare", "overlayfs", "trees");
    row("4 KB cycle, us", &places, |at| {
        cycle(at, 2000) / 2000.0 * 1e6
    });
    row("find 10k files, warm, ms", &places, |at| {
        timed(|| drop(run(at, "find . -type f | wc -l"))) * 1e3
    });
    row("grep -r 10k files, ms", &places, |at| {
        timed(|| drop(run(at, "grep -r nowhere . || true"))) * 1e3
    });
    row("untar 2k files, ms", &places, |at| {
        let tar = scratch.path().join("t.tar");
        run(
            at,
            &format!("test -e {0} || tar cf {0} d0 d1", tar.display()),
        );
        fs::create_dir(at.join("out")).unwrap();
        let time = timed(|| drop(run(at, &format!("tar xf {} -C out", tar.display()))));
        run(at, "rm -r out");
        time * 1e3
    });
    row("write 64 MB, ms", &places, |at| {
        let block = vec![1; 1 << 20];
        let time = timed(|| {
            let mut file = fs::File::create(at.join("big")).unwrap();
            (0..64).for_each(|_| file.write_all(&block).unwrap());
        });
        time * 1e3
    });
    row("read 64 MB, ms", &places, |at| {
        timed(|| drop(fs::read(at.join("big")).unwrap())) * 1e3
    });
    let staged = timed(|| world.settle());
    println!("settle after all that: {:.0} ms", staged * 1e3);
    run(
        &world.inside(),
        "mkdir many; for d in $(seq 10); do mkdir many/$d; for f in $(seq 100); do echo $f > many/$d/$f; done; done",
    );
    println!(
        "commit of 1000 small files: {:.0} ms",
        timed(|| world.settle()) * 1e3
    );
    let copy = timed(|| {
        drop(run(
            &world.base(),
            "cp -a many /tmp/kairos-cp && find /tmp/kairos-cp -type f -exec sync {} + && rm -r /tmp/kairos-cp",
        ))
    });
    println!("cp -a and sync of the same: {:.0} ms", copy * 1e3);
}

fn fill(base: &Path) {
    for d in 0..10 {
        let dir = base.join(format!("d{d}"));
        fs::create_dir(&dir).unwrap();
        for f in 0..1000 {
            fs::write(
                dir.join(format!("f{f}")),
                format!("content {d} {f}\n").repeat(20),
            )
            .unwrap();
        }
    }
}

fn row(what: &str, places: &[(&str, PathBuf)], measure: impl Fn(&Path) -> f64) {
    let mut best = vec![f64::MAX; places.len()];
    for _ in 0..5 {
        for (slot, (_, at)) in best.iter_mut().zip(places) {
            *slot = slot.min(measure(at));
        }
    }
    print!("{what:28}");
    best.iter().for_each(|time| print!("{time:12.1}"));
    println!("   trees/overlayfs {:.2}", best[2] / best[1]);
}

fn timed(job: impl FnOnce()) -> f64 {
    let start = Instant::now();
    job();
    start.elapsed().as_secs_f64()
}

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

/// Kernel overlayfs over a directory filled alike.
fn overlay() -> (Mount, PathBuf) {
    let dir = tempfile::tempdir().unwrap().keep();
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    fill(&dir.join("lower"));
    let at = |name: &str| dir.join(name).display().to_string();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        at("lower"),
        at("upper"),
        at("work")
    );
    let options = std::ffi::CString::new(options).unwrap();
    rustix::mount::mount(
        "overlay",
        dir.join("merged"),
        "overlay",
        rustix::mount::MountFlags::empty(),
        Some(options.as_c_str()),
    )
    .unwrap();
    (Mount(dir.join("merged")), dir.join("merged"))
}
