//! House rules that the compiler does not hold: who may depend on whom, what the kernel links, where `unsafe` may be,
//! what every file says first, and which words have no place in the project. Each failure says what to do instead.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Which of our crates each crate may depend on: `kernel <- store <- monitor <- adapters <- kairos`.
const LAYERS: &[(&str, &[&str])] = &[
    ("kairos-codes", &[]),
    ("kairos-search", &[]),
    ("kairos-kernel", &["kairos-codes", "kairos-search"]),
    ("kairos-store", &["kairos-kernel"]),
    ("kairos-monitor", &["kairos-kernel", "kairos-store"]),
    ("kairos-sandbox", ADAPTER),
    ("kairos-files", ADAPTER),
    ("kairos-net", ADAPTER),
    ("kairos-term", ADAPTER),
    ("kairos-policy", ADAPTER),
    ("kairos-oracles", ADAPTER),
    ("kairos-tools", ADAPTER),
    ("kairos-conversation", ADAPTER),
    ("kairos-guards", &[]),
    (
        "kairos",
        &[
            "kairos-kernel",
            "kairos-store",
            "kairos-monitor",
            "kairos-sandbox",
            "kairos-files",
            "kairos-net",
            "kairos-term",
            "kairos-policy",
            "kairos-oracles",
            "kairos-tools",
            "kairos-conversation",
            "kairos-guards",
        ],
    ),
    // Arbitrary bytes for every reader: a test, and no part of the program.
    (
        "kairos-fuzz",
        &[
            "kairos-kernel",
            "kairos-store",
            "kairos-policy",
            "kairos-net",
            "kairos-term",
            "kairos-conversation",
            "kairos-guards",
            "kairos-monitor",
            "kairos-tools",
        ],
    ),
    // The simulation: a test, and no part of the program.
    ("kairos-sim", ADAPTER),
    ("kairos-tidy", &[]),
    ("kairos-e2e", &[]),
];

const ADAPTER: &[&str] = &["kairos-kernel", "kairos-store", "kairos-monitor"];

/// What the kernel may link, directly or not. No I/O, no clock, no randomness: what is here can decide.
const KERNEL_LINKS: &[(&str, &str)] = &[
    (
        "kairos-codes",
        "undoing codes, as pure as the kernel itself",
    ),
    (
        "kairos-search",
        "tokens and the search for them, as pure as the kernel itself",
    ),
    ("sha2", "manifest digests"),
    ("minicbor", "the canonical form of a manifest"),
    ("hex", "digests in hexadecimal"),
    ("hashbrown", "the values that the agent met"),
    ("foldhash", "through hashbrown"),
    ("memchr", "the sensitive search: where escapes begin"),
    (
        "wide",
        "the sensitive search: sixteen bytes at once, in safe code",
    ),
    ("safe_arch", "through wide"),
    ("bytemuck", "through wide"),
    ("unicode-normalization", "values compare in NFKC"),
    ("tinyvec", "through unicode-normalization"),
    ("tinyvec_macros", "through tinyvec"),
    ("digest", "through sha2"),
    ("block-buffer", "through digest"),
    ("crypto-common", "through digest"),
    ("generic-array", "through digest"),
    ("typenum", "through generic-array"),
    ("version_check", "build script of generic-array"),
    (
        "cpufeatures",
        "through sha2: which instructions the processor has",
    ),
    ("cfg-if", "through sha2"),
    ("libc", "through cpufeatures, on ARM only"),
];

/// Rings of trust, from the outside of the promise to its heart; SECURITY.md says what each may break.
const RINGS: &[(&str, &[&str])] = &[
    ("decides", &["kernel", "codes", "search"]),
    ("remembers and conducts", &["store", "monitor"]),
    (
        "confines and mediates",
        &["sandbox", "files", "net", "term", "tools", "policy"],
    ),
    (
        "may fail without breaking confinement",
        &["oracles", "conversation", "guards", "kairos"],
    ),
];

/// Words that belong to where the project is made, not to the project.
const FORGOTTEN: &[(&str, &str)] = &[
    (concat!("/wo", "rk/main"), "a path of somebody's machine"),
    (
        concat!("/wo", "rk/sha", "red"),
        "a path of somebody's machine",
    ),
    (
        concat!("../sha", "red/"),
        "a folder that is not part of the project",
    ),
    (concat!("/ro", "ot/."), "a path of somebody's machine"),
    (concat!("TO", "DO"), "finish it or leave it out"),
    (concat!("FIX", "ME"), "finish it or leave it out"),
    (concat!("iss", "ue #"), "say the reason itself"),
    (concat!("crates", ".io/api"), "the address of a registry"),
    (
        concat!("registry.npm", "js.org"),
        "the address of a registry",
    ),
];

#[test]
fn dependencies_point_one_way() {
    let metadata = metadata();
    let allowed: BTreeMap<_, _> = LAYERS.iter().copied().collect();
    let ours: BTreeSet<_> = members(&metadata)
        .into_iter()
        .map(|package| name(package).to_owned())
        .collect();
    let mut wrong = Vec::new();
    for package in members(&metadata) {
        let Some(allowed) = allowed.get(name(package)) else {
            wrong.push(format!(
                "`{}` is not in LAYERS of {}: say there what it may depend on",
                name(package),
                file!()
            ));
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            let to = name(dependency);
            let dev = dependency["kind"] == "dev";
            if ours.contains(to) && !allowed.contains(&to) && !dev {
                wrong.push(format!(
                    "`{}` depends on `{to}`: only kernel, store and monitor may be shared",
                    name(package)
                ));
            }
        }
    }
    for (listed, _) in LAYERS {
        if !ours.contains(*listed) {
            wrong.push(format!(
                "`{listed}` is in LAYERS but not in the workspace: take it out"
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn planted_bugs_stay_in_tests() {
    let mut wrong = Vec::new();
    for package in members(&metadata()) {
        let features = package["features"].as_object().unwrap();
        let defaults = features.get("default").and_then(|words| words.as_array());
        if defaults
            .into_iter()
            .flatten()
            .any(|word| word.as_str().unwrap().contains("planted"))
        {
            wrong.push(format!("`{}` plants bugs by default", name(package)));
        }
        for (feature, words) in features {
            let plants = words
                .as_array()
                .unwrap()
                .iter()
                .any(|word| word.as_str().unwrap().contains("planted"));
            if plants && feature != "planted" {
                wrong.push(format!(
                    "feature `{feature}` of `{}` plants bugs",
                    name(package)
                ));
            }
            if feature == "planted" && !["kairos-kernel", "kairos-sim"].contains(&name(package)) {
                wrong.push(format!(
                    "`{}` has a feature `planted`: only the kernel and the simulation do",
                    name(package)
                ));
            }
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            let words = dependency["features"].as_array().unwrap();
            if words.iter().any(|word| word == "planted") {
                wrong.push(format!(
                    "`{}` switches on the planted bugs of `{}`",
                    name(package),
                    name(dependency)
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn kernel_links_only_what_its_list_names() {
    let metadata = metadata();
    let packages: BTreeMap<_, _> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| (p["id"].as_str().unwrap(), name(p)))
        .collect();
    let nodes: BTreeMap<_, _> = metadata["resolve"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| (n["id"].as_str().unwrap(), n))
        .collect();
    let kernel = packages
        .iter()
        .find(|(_, name)| **name == "kairos-kernel")
        .unwrap()
        .0;
    let (mut seen, mut open) = (BTreeSet::new(), vec![*kernel]);
    while let Some(id) = open.pop() {
        for dependency in nodes[id]["deps"].as_array().unwrap() {
            let dev = dependency["dep_kinds"]
                .as_array()
                .unwrap()
                .iter()
                .all(|kind| kind["kind"] == "dev");
            let to = dependency["pkg"].as_str().unwrap();
            if !dev && seen.insert(to) {
                open.push(to);
            }
        }
    }
    let wrong: Vec<_> = seen
        .iter()
        .map(|id| packages[id])
        .filter(|name| KERNEL_LINKS.iter().all(|(allowed, _)| allowed != name))
        .collect();
    assert!(
        wrong.is_empty(),
        "the kernel links {wrong:?}: do without, or put it into KERNEL_LINKS of {} with its reason",
        file!()
    );
}

#[test]
fn the_kernel_does_no_io() {
    let mut wrong = Vec::new();
    for file in rust_files()
        .into_iter()
        .filter(|file| file.starts_with(root().join("crates/kernel/src")))
    {
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        for word in [
            "std::fs",
            "std::net",
            "std::env",
            "std::time",
            "std::process",
            "std::thread",
            "SystemTime",
            "Instant::now",
        ] {
            if code.contains(word) {
                wrong.push(format!(
                    "{}: `{word}`: time, disk and network are inputs of the kernel",
                    shown(&file)
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_file_says_what_it_is() {
    let wrong: Vec<_> = rust_files()
        .into_iter()
        .filter(|file| !std::fs::read_to_string(file).unwrap().starts_with("//!"))
        .map(|file| format!("{}: open it with `//!`: what it is and why", shown(&file)))
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn unsafe_is_only_where_its_name_says() {
    let mut wrong = Vec::new();
    for file in rust_files() {
        let privileged =
            file.ends_with("sys.rs") || file.parent().is_some_and(|folder| folder.ends_with("sys"));
        for (number, line) in std::fs::read_to_string(&file).unwrap().lines().enumerate() {
            let code = line.split("//").next().unwrap();
            let used = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"]
                .iter()
                .any(|form| code.contains(form));
            if used && !privileged && !file.ends_with("tidy/tests/house.rs") {
                wrong.push(format!(
                    "{}:{}: `unsafe` belongs into a file called sys.rs or below sys/",
                    shown(&file),
                    number + 1
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn no_forgotten_words() {
    let mut wrong = Vec::new();
    for file in tracked() {
        // Other people's words, kept as they are.
        if file.starts_with(root().join("eval/real/data")) {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(&file) else {
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            for (word, why) in FORGOTTEN {
                if line
                    .replace(concat!("/proc/1/ro", "ot/"), "")
                    .contains(word)
                    && !file.ends_with("Cargo.lock")
                {
                    wrong.push(format!("{}:{}: `{word}`: {why}", shown(&file), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_dependency_has_its_reason() {
    let reasons = std::fs::read_to_string(root().join("docs/dependencies.md")).unwrap();
    let named: BTreeSet<_> = reasons
        .lines()
        .filter(|line| line.starts_with("| "))
        .filter_map(|line| line.split('|').nth(1))
        .flat_map(|cell| {
            cell.split(',').map(|name| {
                name.split('(')
                    .next()
                    .unwrap_or_default()
                    .trim()
                    .trim_matches('`')
                    .to_owned()
            })
        })
        .collect();
    let metadata = metadata();
    let mut wrong = BTreeSet::new();
    for package in members(&metadata) {
        for dependency in package["dependencies"].as_array().unwrap() {
            if !name(dependency).starts_with("kairos") && !named.contains(name(dependency)) {
                wrong.insert(format!(
                    "`{}` (used by `{}`)",
                    name(dependency),
                    name(package)
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "no line in docs/dependencies.md for: {wrong:?}"
    );
}

#[test]
fn no_test_file_is_forgotten() {
    // Integration tests with their own `tests/NAME/` folder: every file there must be named as a module by somebody.
    let mut wrong = Vec::new();
    for file in rust_files() {
        let Some(folder) = file.parent().filter(|folder| {
            folder
                .parent()
                .is_some_and(|above| above.ends_with("tests"))
        }) else {
            continue;
        };
        let stem = file.file_stem().unwrap().to_str().unwrap();
        if stem == "main" || stem == "mod" {
            continue;
        }
        let named = [
            folder.join("main.rs"),
            folder.join("mod.rs"),
            folder.with_extension("rs"),
        ]
        .iter()
        .filter_map(|owner| std::fs::read_to_string(owner).ok())
        .any(|text| text.contains(&format!("mod {stem};")));
        if !named {
            wrong.push(format!(
                "{}: no `mod {stem};` names it, so it never runs",
                shown(&file)
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Not a rule but a look in the mirror: run with `--nocapture` to see it.
/// Small enough to be read in an afternoon; tests, comments and empty lines apart.
const KERNEL_LINES_MAX: usize = 6000;

#[test]
fn the_kernel_stays_small() {
    let folder = root().join("crates/kernel/src");
    let total: usize = rust_files()
        .into_iter()
        .filter(|file| file.starts_with(&folder))
        .map(|file| {
            let text = std::fs::read_to_string(&file).unwrap();
            let program = text.split("#[cfg(test)]").next().unwrap();
            let lines = program.lines().map(str::trim_start);
            lines
                .filter(|line| !line.is_empty() && !line.starts_with("//"))
                .count()
        })
        .sum();
    println!("kernel: {total} lines");
    assert!(
        total < KERNEL_LINES_MAX,
        "the kernel has {total} lines; it is to stay below {KERNEL_LINES_MAX}"
    );
}

#[test]
fn sizes_are_told() {
    let mut sizes: Vec<_> = rust_files()
        .into_iter()
        .map(|file| (lines(&file), shown(&file)))
        .collect();
    sizes.sort_by(|a, b| b.cmp(a));
    assert!(
        !sizes.is_empty(),
        "no Rust files found below {}",
        root().display()
    );
    println!("ten longest files:");
    for (lines, file) in sizes.iter().take(10) {
        println!("  {lines:5} {file}");
    }
    println!("lines by ring of trust (all lines, tests included):");
    for (ring, crates) in RINGS {
        let total: usize = crates
            .iter()
            .map(|name| root().join("crates").join(name).join("src"))
            .flat_map(|folder| {
                rust_files()
                    .into_iter()
                    .filter(move |file| file.starts_with(&folder))
            })
            .map(|file| lines(&file))
            .sum();
        println!("  {total:5} {ring}: {}", crates.join(", "));
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
        .to_owned()
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn members(metadata: &Value) -> Vec<&Value> {
    let ids: BTreeSet<_> = metadata["workspace_members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_str().unwrap())
        .collect();
    metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|package| ids.contains(package["id"].as_str().unwrap()))
        .collect()
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap()
}

/// Files that belong to the project: what git tracks, plus what it would track.
fn tracked() -> Vec<PathBuf> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "-z",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let files: Vec<_> = String::from_utf8(output.stdout)
        .unwrap()
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(|name| root().join(name))
        .filter(|file| file.is_file())
        .collect();
    assert!(files.len() > 20, "git lists only {} files", files.len());
    files
}

fn rust_files() -> Vec<PathBuf> {
    tracked()
        .into_iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

fn shown(file: &Path) -> String {
    file.strip_prefix(root()).unwrap().display().to_string()
}

fn lines(file: &Path) -> usize {
    std::fs::read_to_string(file).unwrap().lines().count()
}
