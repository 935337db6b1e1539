//! Finds what a command needs besides the system: tools live in homes and other odd places, as
//! links to links with interpreters elsewhere again. Everything found is shown read-only, and as
//! little of it as works: never a whole home, never a folder known for credentials.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::plan::{Bind, Plan};

/// What was found for one command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tools {
    /// To be shown read-only.
    pub binds: Vec<Bind>,
    /// Credentials and host sockets inside what is shown.
    pub masked: Vec<PathBuf>,
    /// The program that the command names, if it was found.
    pub program: Option<PathBuf>,
    /// What was left out on purpose, for the person who wonders why a tool is missing.
    pub notes: Vec<String>,
}

impl Tools {
    /// Looks at the host for what `plan.command` and every directory in its `PATH` need. The
    /// plan has its environment, home and trees already.
    pub fn discover(plan: &Plan) -> Self {
        let mut search = Search::new(plan);
        for variable in LOCATIONS {
            if let Some(value) = plan.env.get(OsStr::new(variable)) {
                search.show_directory(Path::new(value));
            }
        }
        let path = plan
            .env
            .get(OsStr::new("PATH"))
            .cloned()
            .unwrap_or_default();
        let directories: Vec<_> = std::env::split_paths(&path)
            .filter(|directory| directory.is_absolute())
            .collect();
        for directory in &directories {
            search.show_path_entry(directory);
        }
        let program = plan.command.first().and_then(|name| search.resolve(name));
        if let Some(program) = &program {
            search.follow(program, 0);
        }
        search.finish(program)
    }

    /// Puts all of it into the plan.
    pub fn add_to(self, plan: &mut Plan) {
        plan.read_only.extend(self.binds);
        plan.masked.extend(self.masked);
    }
}

/// Variables that name where a toolchain is.
const LOCATIONS: &[&str] = &[
    "RUSTUP_HOME",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYENV_ROOT",
    "NVM_DIR",
    "VOLTA_HOME",
    "JAVA_HOME",
    "GOROOT",
    "DENO_INSTALL",
    "BUN_INSTALL",
];

/// Below these, nothing is a tool, but for the links by which NixOS names its programs.
const NEVER_BELOW: &[&str] = &["/proc", "/sys", "/dev", "/run", "/var/run", "/boot"];

/// Too broad to show as a whole.
const NEVER_WHOLE: &[&str] = &[
    "/", "/home", "/root", "/tmp", "/var", "/var/tmp", "/var/lib",
];

/// Folders of a home of which nothing is ever shown.
const SECRET: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".password-store",
    ".mozilla",
];

/// Folders of a home that hold other things besides tools; only a part of them is ever shown.
const MIXED: &[&str] = &[
    ".config", ".cache", ".local", ".claude", ".codex", ".gemini", "snap",
];

/// Read as empty wherever they lie directly in something shown.
const CREDENTIALS: &[&str] = &[
    "credentials",
    "credentials.toml",
    "credentials.json",
    ".credentials.json",
    "auth.json",
    ".env",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    "etc/npmrc",
    "config/credentials",
];

/// The system's own program folders are shown anyway, and their links lead to places that are.
const SYSTEM_PATHS: &[&str] = &["/usr/bin", "/bin", "/usr/sbin", "/sbin"];

/// In a folder of links, as many are followed.
const ENTRIES_MAX: usize = 500;

const DEPTH_MAX: usize = 8;

struct Search<'a> {
    plan: &'a Plan,
    path: OsString,
    shown: BTreeSet<PathBuf>,
    followed: BTreeSet<PathBuf>,
    /// What a folder of scripts asks for again and again.
    resolved: BTreeMap<OsString, Option<PathBuf>>,
    real_folders: BTreeMap<PathBuf, Option<PathBuf>>,
    notes: BTreeSet<String>,
}

impl<'a> Search<'a> {
    fn new(plan: &'a Plan) -> Self {
        let path = plan
            .env
            .get(OsStr::new("PATH"))
            .cloned()
            .unwrap_or_default();
        Self {
            plan,
            path,
            shown: BTreeSet::new(),
            followed: BTreeSet::new(),
            resolved: BTreeMap::new(),
            real_folders: BTreeMap::new(),
            notes: BTreeSet::new(),
        }
    }

    /// As the agent's own process will find it.
    fn resolve(&self, name: &OsStr) -> Option<PathBuf> {
        if name.as_bytes().contains(&b'/') {
            let path = self.plan.cwd.join(name);
            return path.exists().then_some(path);
        }
        std::env::split_paths(&self.path)
            .filter(|directory| directory.is_absolute())
            .map(|directory| directory.join(name))
            .find(|candidate| is_executable(candidate))
    }

    /// The same for what is asked for often.
    fn resolve_again(&mut self, name: OsString) -> Option<PathBuf> {
        if let Some(known) = self.resolved.get(&name) {
            return known.clone();
        }
        let found = self.resolve(&name);
        self.resolved.insert(name, found.clone());
        found
    }

    /// The real path of what is no link itself.
    fn real(&mut self, file: &Path) -> Option<PathBuf> {
        let (folder, name) = (file.parent()?, file.file_name()?);
        if let Some(known) = self.real_folders.get(folder) {
            return known.as_ref().map(|folder| folder.join(name));
        }
        let found = folder.canonicalize().ok();
        self.real_folders.insert(folder.to_owned(), found.clone());
        found.map(|folder| folder.join(name))
    }

    fn show_path_entry(&mut self, directory: &Path) {
        if SYSTEM_PATHS
            .iter()
            .any(|system| directory == Path::new(system))
        {
            return;
        }
        if !self.is_visible(directory) {
            if !directory.is_dir() {
                return;
            }
            self.show_directory(directory);
            if !self.is_visible(directory) {
                return;
            }
        }
        let Ok(entries) = fs::read_dir(directory) else {
            return;
        };
        for entry in entries.flatten().take(ENTRIES_MAX) {
            if is_executable(&entry.path()) {
                self.follow(&entry.path(), 0);
            }
        }
    }

    /// Shows the tool that a directory belongs to.
    fn show_directory(&mut self, directory: &Path) {
        if !directory.is_absolute() || !directory.is_dir() {
            return;
        }
        let root = self.root_of_directory(directory);
        self.show(&root);
        if let Ok(real) = directory.canonicalize() {
            let root = self.root_of_directory(&real);
            self.show(&root);
        }
    }

    /// Shows a program, each link on the way to it, and the interpreter that its first line names.
    fn follow(&mut self, program: &Path, depth: usize) {
        if depth > DEPTH_MAX || !self.followed.insert(program.to_owned()) {
            return;
        }
        self.show_file(program);
        if let Ok(target) = fs::read_link(program) {
            let target = program.parent().unwrap_or(Path::new("/")).join(target);
            self.follow(&plain(&target), depth + 1);
            return;
        }
        let Some(real) = self.real(program).filter(|real| real.exists()) else {
            return;
        };
        if real != program {
            self.show_file(&real);
        }
        for interpreter in interpreters(&real) {
            if let Some(interpreter) = self.resolve_again(interpreter) {
                self.follow(&interpreter, depth + 1);
            }
        }
    }

    fn show_file(&mut self, file: &Path) {
        if !self.is_visible(file) && file.symlink_metadata().is_ok() {
            let root = self.root_of_file(file);
            self.show(&root);
        }
    }

    fn show(&mut self, path: &Path) {
        if self.is_visible(path) {
            return;
        }
        if !self.may_show(path) {
            self.notes.insert(format!(
                "`{}` is not shown to the agent: it holds more than tools",
                path.display()
            ));
            return;
        }
        self.shown.insert(path.to_owned());
        if path == self.plan.home.join(".cargo/bin") {
            self.show_directory(&self.plan.home.join(".rustup"));
        }
        if let Ok(settings) = fs::read_to_string(path.join("pyvenv.cfg")) {
            let home = settings
                .lines()
                .find_map(|line| line.strip_prefix("home = "));
            if let Some(home) = home {
                self.show_directory(Path::new(home.trim()));
            }
        }
    }

    /// The smallest folder with which a program in it still works.
    fn root_of_file(&self, file: &Path) -> PathBuf {
        let parent = file.parent().unwrap_or(Path::new("/"));
        if let Some(root) = self.known_root(file) {
            return root;
        }
        let root = self.root_of_directory(parent);
        let in_home = file.starts_with(&self.plan.home);
        let whole_folder = root != parent || is_program_folder(parent) || !in_home;
        if whole_folder && self.may_show(&root) {
            root
        } else {
            file.to_owned()
        }
    }

    fn root_of_directory(&self, directory: &Path) -> PathBuf {
        if let Some(root) = self.known_root(directory) {
            return root;
        }
        if is_program_folder(directory)
            && let Some(parent) = directory.parent()
            && parent != self.plan.home.join(".cargo")
            && parent != self.plan.home.join(".local")
            && self.may_show(parent)
        {
            return parent.to_owned();
        }
        directory.to_owned()
    }

    /// Layouts of package managers.
    fn known_root(&self, path: &Path) -> Option<PathBuf> {
        if let Some(modules) = up_to(path, "node_modules") {
            let library = modules.parent().filter(|parent| parent.ends_with("lib"));
            let prefix = library
                .and_then(Path::parent)
                .filter(|prefix| self.may_show(prefix));
            return Some(prefix.unwrap_or(&modules).to_owned());
        }
        if let Some(environment) = path.ancestors().find(|at| at.join("pyvenv.cfg").exists()) {
            return Some(environment.to_owned()).filter(|root| self.may_show(root));
        }
        let inside = path.strip_prefix(&self.plan.home).ok()?;
        let mut parts = inside.components();
        let first = parts.next()?.as_os_str();
        if first == ".local" {
            let (second, third) = (parts.next()?.as_os_str(), parts.next()?.as_os_str());
            let packages = second == "share" || second == "lib" || second == "opt";
            return packages.then(|| self.plan.home.join(first).join(second).join(third));
        }
        let whole = [
            ".pyenv", ".rustup", ".nvm", ".volta", ".asdf", ".sdkman", ".deno", ".bun",
        ];
        whole
            .iter()
            .any(|name| first == *name)
            .then(|| self.plan.home.join(first))
    }

    /// Shown already: by the plan, by a tree, or by an earlier find.
    fn is_visible(&self, path: &Path) -> bool {
        let binds = self.plan.read_only.iter().map(|bind| bind.target.as_path());
        let trees = self.plan.trees.iter().map(|tree| tree.target.as_path());
        let found = self.shown.iter().map(PathBuf::as_path);
        binds
            .chain(trees)
            .chain(found)
            .any(|root| path.starts_with(root))
    }

    fn may_show(&self, path: &Path) -> bool {
        let whole = NEVER_WHOLE.iter().any(|never| path == Path::new(never));
        let below = NEVER_BELOW.iter().any(|never| path.starts_with(never))
            && !path
                .canonicalize()
                .is_ok_and(|real| real.starts_with("/nix/store"));
        let around_home = self.plan.home.starts_with(path);
        let around_tree = self
            .plan
            .trees
            .iter()
            .any(|tree| tree.target.starts_with(path));
        let top_level = path.parent() == Some(Path::new("/")) && path.is_dir();
        let secret = SECRET
            .iter()
            .any(|name| path.starts_with(self.plan.home.join(name)));
        let mixed = MIXED.iter().any(|name| path == self.plan.home.join(name));
        !(whole || below || around_home || around_tree || top_level || secret || mixed)
    }

    fn finish(self, program: Option<PathBuf>) -> Tools {
        let all: Vec<_> = self.shown.iter().cloned().collect();
        let covered = |path: &Path| {
            all.iter()
                .any(|other| other != path && path.starts_with(other))
        };
        let roots: Vec<_> = all.iter().filter(|path| !covered(path)).cloned().collect();
        let mut masked: Vec<_> = roots
            .iter()
            .flat_map(|root| CREDENTIALS.iter().map(move |name| root.join(name)))
            .filter(|path| path.exists())
            .collect();
        let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let shown = |path: &Path| {
            let binds = self.plan.read_only.iter().map(|bind| bind.source.as_path());
            binds
                .chain(roots.iter().map(PathBuf::as_path))
                .any(|root| path.starts_with(root))
        };
        masked.extend(sockets_in(&sockets).filter(|path| shown(path)));
        let binds = roots.into_iter().map(Bind::if_present).collect();
        Tools {
            binds,
            masked,
            program,
            notes: self.notes.into_iter().collect(),
        }
    }
}

/// Paths of the sockets that somebody listens on, as the kernel lists them: a socket can be
/// connected to through a read-only mount, so those in view are masked.
fn sockets_in(list: &str) -> impl Iterator<Item = PathBuf> {
    list.lines()
        .skip(1)
        .filter_map(|line| line.find(" /").and_then(|at| line.get(at + 1..)))
        .map(PathBuf::from)
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

fn is_program_folder(directory: &Path) -> bool {
    let name = directory.file_name().unwrap_or_default();
    ["bin", "sbin", "shims", "libexec", "Scripts"]
        .iter()
        .any(|known| name == *known)
}

/// The part of a path up to and including the first component of this name.
fn up_to(path: &Path, name: &str) -> Option<PathBuf> {
    let mut so_far = PathBuf::new();
    for part in path.components() {
        so_far.push(part);
        if part.as_os_str() == name {
            return Some(so_far);
        }
    }
    None
}

/// Without `.` and `..`, by name only; a target is checked again once it is followed.
pub fn plain(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                result.pop();
            }
            other => result.push(other),
        }
    }
    result
}

/// The programs that the first line of a script names: the interpreter, and with `env` also what
/// that looks for.
fn interpreters(script: &Path) -> Vec<OsString> {
    let mut start = Vec::with_capacity(1024);
    let read = fs::File::open(script).and_then(|file| file.take(512).read_to_end(&mut start));
    let line = start.strip_prefix(b"#!").filter(|_| read.is_ok());
    let Some(line) = line.and_then(|rest| rest.split(|byte| *byte == b'\n').next()) else {
        return Vec::new();
    };
    let mut words = line
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty());
    let Some(first) = words.next() else {
        return Vec::new();
    };
    let mut found = vec![OsStr::from_bytes(first).to_owned()];
    if Path::new(OsStr::from_bytes(first)).file_name() == Some(OsStr::new("env")) {
        let next = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
        found.extend(next.map(|word| OsStr::from_bytes(word).to_owned()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Host {
        folder: tempfile::TempDir,
    }

    impl Host {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("home")).unwrap();
            Self { folder }
        }

        fn at(&self, path: &str) -> PathBuf {
            self.folder.path().join(path)
        }

        fn file(&self, path: &str, content: &str) -> PathBuf {
            let path = self.at(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        }

        fn link(&self, path: &str, target: &str) {
            let path = self.at(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(target, path).unwrap();
        }

        fn plan(&self, command: &str, path: &[&str]) -> Plan {
            let mut plan = Plan::new(vec![command.into()], self.at("home"), self.at("home"));
            let path = std::env::join_paths(path.iter().map(|entry| self.at(entry))).unwrap();
            plan.env = BTreeMap::from([("PATH".into(), path)]);
            plan
        }

        fn check(&self, plan: &Plan, expect: &[&str]) -> Tools {
            let tools = Tools::discover(plan);
            let shown: Vec<_> = tools.binds.iter().map(|bind| bind.target.clone()).collect();
            let expect: Vec<_> = expect.iter().map(|path| self.at(path)).collect();
            assert_eq!(shown, expect, "{tools:#?}");
            tools
        }
    }

    #[test]
    fn an_npm_prefix_is_shown_whole_and_its_credentials_are_not() {
        let host = Host::new();
        host.file(
            "home/.npm-global/lib/node_modules/@x/agent/bin/agent.js",
            "#!/usr/bin/env node\n",
        );
        host.link(
            "home/.npm-global/bin/agent",
            "../lib/node_modules/@x/agent/bin/agent.js",
        );
        let secret = host.file("home/.npm-global/etc/npmrc", "token");
        let plan = host.plan("agent", &["home/.npm-global/bin"]);
        let tools = host.check(&plan, &["home/.npm-global"]);
        assert_eq!(tools.masked, [secret]);
        assert_eq!(tools.program, Some(host.at("home/.npm-global/bin/agent")));
    }

    #[test]
    fn node_versions_are_followed_to_where_they_are() {
        let host = Host::new();
        host.file("data/node/v22/bin/node", "ELF");
        host.link("home/bin/node", "../../data/node/v22/bin/node");
        host.file("home/tool", "#!/usr/bin/env -S X=1 node --flag\n");
        let plan = host.plan(host.at("home/tool").to_str().unwrap(), &["home/bin"]);
        host.check(&plan, &["data/node/v22", "home/bin", "home/tool"]);
    }

    #[test]
    fn local_bin_shows_the_tools_its_links_lead_to_and_no_more() {
        let host = Host::new();
        host.file(
            "home/.local/share/pipx/venvs/a/bin/a",
            "#!/usr/bin/python3\n",
        );
        host.file("home/.local/share/keyrings/login", "secret");
        host.link("home/.local/bin/a", "../share/pipx/venvs/a/bin/a");
        let plan = host.plan("a", &["home/.local/bin"]);
        host.check(&plan, &["home/.local/bin", "home/.local/share/pipx"]);
    }

    #[test]
    fn cargo_shows_its_programs_and_toolchains_but_no_token() {
        let host = Host::new();
        host.file("home/.cargo/bin/cargo", "ELF");
        host.file("home/.cargo/credentials.toml", "token");
        host.file("home/.rustup/toolchains/x/bin/cargo", "ELF");
        let plan = host.plan("cargo", &["home/.cargo/bin"]);
        host.check(&plan, &["home/.cargo/bin", "home/.rustup"]);
    }

    #[test]
    fn a_home_or_a_folder_of_secrets_in_path_is_left_out_with_a_note() {
        let host = Host::new();
        host.file("home/.ssh/id", "key");
        let plan = host.plan("nothing", &["home", "home/.ssh"]);
        let tools = host.check(&plan, &[]);
        assert_eq!(tools.notes.len(), 2, "{tools:#?}");
        assert_eq!(tools.program, None);
    }

    #[test]
    fn a_script_in_the_home_is_shown_alone() {
        let host = Host::new();
        host.file("home/agent.sh", "#!/bin/sh\n");
        host.file("home/secret", "x");
        let plan = host.plan(host.at("home/agent.sh").to_str().unwrap(), &[]);
        host.check(&plan, &["home/agent.sh"]);
    }

    #[test]
    fn a_virtual_environment_brings_its_python() {
        let host = Host::new();
        host.file("pythons/3.12/bin/python3.12", "ELF");
        host.file(
            "home/v/pyvenv.cfg",
            &format!("home = {}\n", host.at("pythons/3.12/bin").display()),
        );
        host.link(
            "home/v/bin/python",
            host.at("pythons/3.12/bin/python3.12").to_str().unwrap(),
        );
        let plan = host.plan("python", &["home/v/bin"]);
        host.check(&plan, &["home/v", "pythons/3.12"]);
    }

    #[test]
    fn what_a_tree_shows_is_not_shown_again() {
        let host = Host::new();
        host.file("home/p/node_modules/.bin/agent", "#!/bin/sh\n");
        let mut plan = host.plan("agent", &["home/p/node_modules/.bin"]);
        let target = host.at("home/p");
        plan.trees.push(crate::Tree {
            name: "p".into(),
            target,
        });
        host.check(&plan, &[]);
    }

    #[test]
    fn sockets_are_read_from_the_kernels_list() {
        let list = "Num RefCount Protocol Flags Type St Inode Path\n\
            0000: 00000002 00000000 00010000 0001 01 123 /opt/x/control socket\n\
            0000: 00000002 00000000 00010000 0001 01 124 @abstract\n\
            0000: 00000003 00000000 00000000 0001 03 125\n";
        assert_eq!(
            sockets_in(list).collect::<Vec<_>>(),
            [PathBuf::from("/opt/x/control socket")]
        );
    }
}
