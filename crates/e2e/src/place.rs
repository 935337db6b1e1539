//! Where things are: the checkout, the program under test, the agents, a scratch folder for each test.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

/// The account that tests use to act as an ordinary user when they run as root; `scripts/setup` makes it.
pub const ORDINARY: &str = "kairos-test";

/// The checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
        .to_owned()
}

/// The built program: `$KAIROS_BIN`, or what cargo built beside this test.
pub fn kairos() -> PathBuf {
    if let Some(path) = std::env::var_os("KAIROS_BIN") {
        return path.into();
    }
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("kairos");
    assert!(
        path.is_file(),
        "{} is not there: `cargo build -p kairos` first, or set KAIROS_BIN",
        path.display()
    );
    path
}

/// The program, where every user of the machine may run it (a checkout is often below somebody's home).
pub fn kairos_for_everybody() -> PathBuf {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    COPY.get_or_init(copy_for_everybody).clone()
}

fn copy_for_everybody() -> PathBuf {
    let built = kairos();
    let meta = built.metadata().unwrap();
    let folder = PathBuf::from(format!(
        "/var/tmp/kairos-e2e-{}",
        if is_root() { 0 } else { 1 }
    ));
    let copy = folder.join(format!(
        "kairos-{}-{}-{}",
        meta.mtime(),
        meta.mtime_nsec(),
        meta.len()
    ));
    if !copy.is_file() {
        std::fs::create_dir_all(&folder).unwrap();
        for old in folder.read_dir().unwrap().flatten() {
            let _ = std::fs::remove_file(old.path());
        }
        let fresh = folder.join(format!("fresh-{}", std::process::id()));
        // Another program copies: a test that starts one meanwhile would hand it our descriptor, and what somebody
        // may write to cannot be run.
        let status = Command::new("install")
            .args(["-m", "755"])
            .args([&built, &fresh])
            .status()
            .unwrap();
        assert!(status.success(), "install: {status}");
        std::fs::rename(&fresh, &copy).unwrap();
    }
    copy
}

/// Where `scripts/install-agents` put them.
pub fn agents() -> PathBuf {
    if let Some(path) = std::env::var_os("KAIROS_AGENTS") {
        return path.into();
    }
    if is_root() {
        return "/var/cache/kairos/agents".into();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"),
        PathBuf::from,
    );
    cache.join("kairos/agents")
}

pub fn is_root() -> bool {
    Path::new("/proc/self").metadata().unwrap().uid() == 0
}

/// A folder of its own, readable by every user and not below `/tmp` (some agents refuse a home there).
pub fn scratch() -> TempDir {
    let folder = tempfile::Builder::new()
        .prefix("kairos-e2e-")
        .tempdir_in("/var/tmp")
        .unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// Runs a tool that a fixture needs; it has to succeed.
pub fn must(command: &mut Command) -> Vec<u8> {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// A word that appears nowhere else, for a probe to carry.
pub fn canary() -> String {
    let raw = std::fs::read("/proc/sys/kernel/random/uuid").unwrap();
    format!(
        "canary{}",
        String::from_utf8(raw).unwrap().trim().replace('-', "")
    )
}
