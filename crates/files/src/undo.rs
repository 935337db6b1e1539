//! Brings back what a session's commits replaced, path by path: by the same machinery that
//! committed it, so with the same promises. What changed since is left as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;

use crate::attr::{Kind, Version};
use crate::bytes::digest;
use crate::commit::Host;
use crate::delta::{Content, Delta, New};
use crate::objects::{self, newer};
use crate::one_file::OneFile;
use crate::path::{self, Rel};
use crate::recover::matches_new;
use crate::settle::{Pending, order};
use crate::trees::Trees;
use crate::upper::{Entry, read};

/// Numbers of what the owner asks for, apart from the numbers of events.
pub(crate) const OWN: u64 = 1 << 63;

/// What `undo` did with one path, or would do.
#[derive(Clone, Debug, Serialize)]
pub struct Undone {
    /// The tree's name.
    pub tree: String,
    /// Path below its root.
    pub path: String,
    /// What is done: `restore`, `remove` or `attributes`.
    pub what: &'static str,
    /// Why it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

/// All that a session's commits did to one path, taken together.
struct Net {
    /// What they left.
    last: Option<New>,
    /// What there was before.
    first: Option<Version>,
    /// The events that may have kept its content, latest first.
    events: Vec<u64>,
    /// Whether one of them set its time.
    timed: bool,
    /// What lay there when the last one was done, if nothing of ours has changed it since.
    committed: Option<Version>,
}

impl Trees {
    /// What there is to be undone below some paths (all, when there are none); with `go` it is
    /// undone.
    pub fn undo(&self, below: &[(String, Vec<u8>)], go: bool) -> Vec<Undone> {
        let _pass = self.pass.lock();
        let mut told = Vec::new();
        let mut pending = Vec::new();
        for (tree, host) in self.hosts.iter().enumerate() {
            let Some(name) = self.name_of(tree) else {
                continue;
            };
            let wanted = |path: &Rel| {
                let hit = |(t, p): &(String, Vec<u8>)| *t == name && path::lies_at(path, p);
                below.is_empty() || below.iter().any(hit)
            };
            let all = nets(host);
            let firsts = all
                .iter()
                .filter_map(|(path, net)| Some((path, net.first.as_ref()?)));
            let one_file = OneFile::of(&host.base, firsts);
            // Repositories in which something that a commit changed stays, and what.
            let mut left: BTreeMap<Rel, Rel> = BTreeMap::new();
            let from = pending.len();
            for (path, net) in &all {
                let reversed = reverse(host, &name, path, net);
                let chosen = wanted(path);
                if reversed.as_ref().is_err() || (!chosen && matches!(reversed, Ok(Some(_)))) {
                    leave(&mut left, path);
                }
                if !chosen {
                    continue;
                }
                match reversed {
                    Ok(None) => {}
                    Ok(Some(mut delta)) => {
                        if let (Some(new), Some(first)) = (&mut delta.new, &net.first) {
                            new.links = one_file.others(path, first);
                        }
                        pending.push(Pending::again(tree, delta, None));
                    }
                    Err(why) => told.push(Undone {
                        tree: name.clone(),
                        path: path::text(path),
                        what: what(net),
                        kept: Some(why),
                    }),
                }
            }
            let ours: BTreeSet<&Rel> = all.keys().collect();
            for (repository, objects) in to_remove(pending.get(from..).unwrap_or_default()) {
                if !left.contains_key(&repository)
                    && let Some(newer) = newer(&host.base, &repository, &objects, &ours)
                {
                    left.insert(repository, newer);
                }
            }
            pending.retain(|one| {
                let why = (one.tree == tree).then(|| objects_stay(&one.delta, &left));
                let Some(why) = why.flatten() else {
                    return true;
                };
                told.push(undone(&one.delta, Some(why)));
                false
            });
        }
        order(&mut pending);
        if !go {
            told.extend(pending.iter().map(|found| undone(&found.delta, None)));
            return told;
        }
        let deltas: Vec<(usize, Delta)> = pending.into_iter().map(|p| (p.tree, p.delta)).collect();
        // What is staged beyond what was committed stays staged; the rest shows the host again.
        let staged = self.staged();
        let clean: Vec<bool> = deltas
            .iter()
            .map(|(tree, delta)| {
                let at = |one: &Pending| {
                    one.tree == *tree
                        && (one.delta.path == delta.path
                            || (delta.new.is_none() && path::below(&one.delta.path, &delta.path)))
                };
                !staged.iter().any(at)
            })
            .collect();
        let results = self.carry_out_before_objects(&deltas);
        for (((tree, delta), result), clean) in deltas.iter().zip(results).zip(clean) {
            if clean
                && result.is_ok()
                && let Err(why) = self.show_host(*tree, &delta.path)
            {
                tracing::warn!("cannot show {} again: {why}", path::text(&delta.path));
            }
            told.push(undone(delta, result.err()));
        }
        told
    }

    /// Whether the session's commits changed anything at a path or below it.
    pub fn has_committed(&self, tree: &str, path: &[u8]) -> bool {
        let _pass = self.pass.lock();
        self.hosts.iter().enumerate().any(|(index, host)| {
            self.name_of(index).as_deref() == Some(tree)
                && nets(host).keys().any(|it| path::lies_at(it, path))
        })
    }

    /// Carries all out, and removes objects of repositories last: not those of one in which something
    /// else could not be brought back.
    fn carry_out_before_objects(&self, deltas: &[(usize, Delta)]) -> Vec<Result<(), String>> {
        let is_object =
            |delta: &Delta| delta.new.is_none() && objects::of_object(&delta.path).is_some();
        // Directories above go after what is in them.
        let holders: BTreeSet<(usize, Rel)> = deltas
            .iter()
            .filter(|(_, delta)| is_object(delta))
            .flat_map(|(tree, delta)| path::above(&delta.path).map(|dir| (*tree, dir.to_vec())))
            .collect();
        let late = |(tree, delta): &(usize, Delta)| {
            is_object(delta)
                || (delta.new.is_none() && holders.contains(&(*tree, delta.path.clone())))
        };
        // Where a directory with objects makes room for something else, the order is given.
        let (last, first): (Vec<_>, Vec<_>) = (0..deltas.len()).partition(|index| {
            deltas.get(*index).is_some_and(|one| {
                late(one)
                    && !deltas.iter().any(|(tree, other)| {
                        *tree == one.0
                            && other.new.is_some()
                            && path::lies_at(&one.1.path, &other.path)
                            && other
                                .base
                                .as_ref()
                                .is_some_and(|base| base.kind == Kind::Dir)
                            && other.new.as_ref().is_some_and(|new| new.kind != Kind::Dir)
                    })
            })
        });
        let mut results: BTreeMap<usize, Result<(), String>> = BTreeMap::new();
        let mut left: BTreeMap<(usize, Rel), Rel> = BTreeMap::new();
        for part in [first, last] {
            let mut now = Vec::new();
            for index in part {
                let Some((tree, delta)) = deltas.get(index) else {
                    continue;
                };
                let repository = objects::of(&delta.path).filter(|_| is_object(delta));
                match repository.and_then(|it| left.get(&(*tree, it))) {
                    Some(what) => drop(results.insert(index, Err(objects::stays(what)))),
                    None => now.push((index, (*tree, delta.clone()))),
                }
            }
            let batch: Vec<(usize, Delta)> = now.iter().map(|(_, one)| one.clone()).collect();
            for ((index, (tree, delta)), result) in now.iter().zip(self.carry_out_own(&batch)) {
                if let (Err(_), Some(repository)) = (&result, objects::of(&delta.path)) {
                    left.entry((*tree, repository))
                        .or_insert_with(|| delta.path.clone());
                }
                results.insert(*index, result);
            }
        }
        results.into_values().collect()
    }

    /// Carries out what the owner asked for: intents first, then the changes, then their
    /// directories. One answer a delta.
    pub(crate) fn carry_out_own(&self, deltas: &[(usize, Delta)]) -> Vec<Result<(), String>> {
        let mut results = Vec::new();
        let mut numbers = Vec::new();
        for (tree, delta) in deltas {
            let number = OWN | self.overlay.lock().fresh_id();
            numbers.push(number);
            let intended = match self.hosts.get(*tree) {
                Some(host) => host.intend(number, delta).map_err(|e| e.to_string()),
                None => Err("its tree is not open".to_string()),
            };
            results.push(intended);
        }
        if let Err(why) = self.write_down() {
            let failed = || Err(format!("cannot note what is about to be done: {why}"));
            return deltas.iter().map(|_| failed()).collect();
        }
        for (((tree, delta), number), result) in deltas.iter().zip(&numbers).zip(&mut results) {
            let Some(host) = self.hosts.get(*tree).filter(|_| result.is_ok()) else {
                continue;
            };
            let parent = path::split(&delta.path).map_or(&b""[..], |(parent, _)| parent);
            let done = host
                .carry_out(*number, delta)
                .and_then(|_| host.sync_dir(parent))
                .map_err(|e| e.to_string());
            if !matches!(&done, Err(why) if why.starts_with("stopped at")) {
                let what = done.as_ref().err().map_or("", String::as_str);
                host.finished(*number, done.is_ok(), what);
            }
            *result = done;
        }
        for (tree, delta) in deltas {
            if let Some(host) = self.hosts.get(*tree) {
                host.set_dir_time(delta);
            }
        }
        for host in &self.hosts {
            // Only a test stops here, as a crash would.
            let _ = host.lower();
        }
        results
    }

    fn name_of(&self, tree: usize) -> Option<String> {
        Some(self.overlay.lock().trees.get(tree)?.name.clone())
    }
}

/// Notes that something in a repository, other than an object, stays as it is.
fn leave(left: &mut BTreeMap<Rel, Rel>, path: &Rel) {
    if objects::of_object(path).is_none()
        && let Some(repository) = objects::of(path)
    {
        left.entry(repository).or_insert_with(|| path.clone());
    }
}

/// The objects that are to be removed, by repository.
fn to_remove(pending: &[Pending]) -> BTreeMap<Rel, Vec<Version>> {
    let mut found: BTreeMap<Rel, Vec<Version>> = BTreeMap::new();
    for one in pending.iter().filter(|one| one.delta.new.is_none()) {
        if let (Some(repository), Some(base)) =
            (objects::of_object(&one.delta.path), &one.delta.base)
            && base.kind == Kind::File
        {
            found.entry(repository).or_default().push(base.clone());
        }
    }
    found
}

/// Why an object is not removed, when something in its repository may refer to it.
fn objects_stay(delta: &Delta, left: &BTreeMap<Rel, Rel>) -> Option<String> {
    let repository = objects::of_object(&delta.path).filter(|_| delta.new.is_none())?;
    left.get(&repository).map(|what| objects::stays(what))
}

/// What the commits of a tree amount to, by path.
fn nets(host: &Host) -> BTreeMap<Rel, Net> {
    let entries = match read(host.upper.dir()) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!("cannot read what was committed: {error}");
            return BTreeMap::new();
        }
    };
    let mut open: BTreeMap<u64, &Delta> = BTreeMap::new();
    let mut done: BTreeMap<&Rel, Vec<(u64, &Delta)>> = BTreeMap::new();
    let mut committed: BTreeMap<&Rel, &Version> = BTreeMap::new();
    for entry in &entries {
        match entry {
            Entry::Intent { event, delta, .. } => drop(open.insert(*event, delta)),
            Entry::Finished { event, ok, .. } => {
                if let (Some(delta), true) = (open.remove(event), ok) {
                    if *event >= OWN {
                        committed.remove(&delta.path);
                    }
                    done.entry(&delta.path).or_default().push((*event, delta));
                }
            }
            Entry::Committed { path, version } => match version {
                Some(version) => drop(committed.insert(path, version)),
                None => drop(committed.remove(path)),
            },
            _ => {}
        }
    }
    let mut nets = BTreeMap::new();
    for (path, commits) in done {
        let mut latest = commits.iter().rev();
        let Some((event, delta)) = latest.next() else {
            continue;
        };
        let mut net = Net {
            last: delta.new.clone(),
            first: delta.base.clone(),
            events: vec![*event],
            timed: timed(delta),
            committed: committed.get(path).map(|version| (*version).clone()),
        };
        for (event, earlier) in latest {
            // Between the two its owner changed it: that is what has to come back.
            if !follows(net.first.as_ref(), earlier.new.as_ref()) {
                break;
            }
            // Attributes are noted with the change that replaced them.
            let noted = net.first.take().and_then(|first| first.xattrs);
            net.first.clone_from(&earlier.base);
            if let Some(first) = net.first.as_mut().filter(|first| first.xattrs.is_none()) {
                first.xattrs = noted;
            }
            net.events.push(*event);
            net.timed |= timed(earlier);
        }
        nets.insert(path.clone(), net);
    }
    nets
}

fn timed(delta: &Delta) -> bool {
    delta.new.as_ref().is_some_and(|new| new.timed)
}

/// Whether what a commit found is what the commit before had left.
fn follows(found: Option<&Version>, left: Option<&New>) -> bool {
    match (found, left) {
        (None, None) => true,
        (Some(found), Some(left)) => {
            found.kind == left.kind
                && found.target == left.target
                && (found.kind != Kind::File
                    || (found.size == left.size
                        && found.digest.is_none_or(|digest| digest == left.digest)))
        }
        _ => false,
    }
}

/// The change that takes a path back; `None` when it is back already.
fn reverse(host: &Host, tree: &str, path: &Rel, net: &Net) -> Result<Option<Delta>, String> {
    let mut now = host.base.version(path).map_err(|e| e.to_string())?;
    if now.is_none() && net.first.is_none() {
        return Ok(None);
    }
    let as_left = match &net.last {
        None => now.is_none(),
        Some(new) => matches_new(host, path, &now, new) || net.is_untouched(now.as_ref()),
    };
    if !as_left {
        return match (&now, &net.first) {
            (Some(now), Some(first)) if net.is_back(host, path, now, first) => Ok(None),
            (None, _) => Err("it was removed since".to_string()),
            (Some(_), _) if net.last.is_none() => Err("something else lies there now".to_string()),
            (Some(now), _) if may_not_be_read(host, path, now) => Err(
                "it may not be read, so it is not known whether it was changed since".to_string(),
            ),
            (Some(_), _) => Err("it was changed since".to_string()),
        };
    }
    if let (Some(now), Some(first)) = (&now, &net.first)
        && net.is_back(host, path, now, first)
    {
        return Ok(None);
    }
    if let Some(now) = now.as_mut().filter(|now| now.kind == Kind::File) {
        now.digest = match &net.last {
            Some(last) if net.is_untouched(Some(now)) => Some(last.digest),
            _ => digest_at(host, path),
        };
    }
    let new = match &net.first {
        None => None,
        Some(first) => Some(restored(host, net, now.as_ref(), first)?),
    };
    let delta = Delta {
        tree: tree.to_string(),
        path: path.clone(),
        base: now,
        new,
    };
    Ok(Some(delta))
}

/// What was there before, with its content from where it was kept.
fn restored(host: &Host, net: &Net, now: Option<&Version>, first: &Version) -> Result<New, String> {
    let mut new = New {
        kind: first.kind,
        mode: first.mode,
        uid: first.uid,
        gid: first.gid,
        mtime: first.mtime,
        target: first.target.clone(),
        content: Content::None,
        digest: [0; 32],
        size: 0,
        xattrs: first.xattrs.clone(),
        timed: true,
        links: Vec::new(),
    };
    match first.kind {
        Kind::File => {
            // The earliest that kept one: later ones kept what came between.
            for event in net.events.iter().rev() {
                let file = match open_kept(&host.undo_path(*event)) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    opened => opened.map_err(|e| format!("what was kept of it: {e}"))?,
                };
                let kept = digest(&file).map_err(|e| e.to_string())?.0;
                if first.digest.is_some_and(|wanted| wanted != kept) {
                    return Err("what was kept of it is damaged".to_string());
                }
                new.content = Content::Kept(*event);
                new.digest = kept;
                new.size = file.metadata().map_or(0, |meta| meta.len());
                if new.xattrs.is_none() {
                    new.xattrs = crate::base::xattrs_of_file(&file).ok();
                }
                return Ok(new);
            }
            match now {
                // Its content was never replaced.
                Some(now) if now.kind == Kind::File && net.content_stayed() => {
                    new.digest = now.digest.unwrap_or_default();
                    new.size = now.size;
                    Ok(new)
                }
                _ => {
                    Err("what was replaced is no longer kept (`kairos gc` removes it)".to_string())
                }
            }
        }
        Kind::Socket | Kind::Device => Err("it was no file".to_string()),
        Kind::Dir | Kind::Symlink | Kind::Fifo => Ok(new),
    }
}

impl Net {
    /// Only attributes were changed.
    fn content_stayed(&self) -> bool {
        match (&self.first, &self.last) {
            (Some(first), Some(last)) => {
                first.kind == last.kind && first.digest == Some(last.digest)
            }
            _ => false,
        }
    }

    /// Whether what lies there is to the last time stamp what the last commit left: then its content
    /// need not be read, which its mode may forbid.
    fn is_untouched(&self, now: Option<&Version>) -> bool {
        match (now, &self.committed) {
            (Some(now), Some(committed)) => now.kind == Kind::File && now.same(committed),
            _ => false,
        }
    }

    /// Whether what lies there now is what there was before, as far as it was changed.
    fn is_back(&self, host: &Host, path: &Rel, now: &Version, first: &Version) -> bool {
        let is_file = now.kind == Kind::File;
        now.kind == first.kind
            && now.mode == first.mode
            && now.target == first.target
            && (!is_file
                || (now.size == first.size
                    && match first.digest {
                        Some(wanted) => digest_at(host, path) == Some(wanted),
                        None => now.mtime == first.mtime,
                    }))
            && !(is_file && self.timed && now.mtime != first.mtime)
            && first
                .xattrs
                .as_ref()
                .is_none_or(|wanted| host.base.xattrs(path).is_ok_and(|now| now == *wanted))
    }
}

/// Opens what was kept. It may be the owner's file itself, with a mode that keeps them from
/// reading it too: while it is opened it has another one.
pub(crate) fn open_kept(path: &Path) -> io::Result<File> {
    let open = || -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
    };
    match open() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let meta = std::fs::symlink_metadata(path)?;
            if !meta.is_file() {
                return Err(error);
            }
            let mode = meta.permissions();
            std::fs::set_permissions(path, Permissions::from_mode(mode.mode() | 0o400))?;
            let file = open();
            std::fs::set_permissions(path, mode)?;
            file
        }
        other => other,
    }
}

fn may_not_be_read(host: &Host, path: &Rel, now: &Version) -> bool {
    now.kind == Kind::File && matches!(host.base.open_file(path), Err(Errno::ACCESS))
}

fn digest_at(host: &Host, path: &Rel) -> Option<[u8; 32]> {
    let (file, _) = host.base.open_file(path).ok()?;
    digest(&file).ok().map(|d| d.0)
}

fn what(net: &Net) -> &'static str {
    match (&net.first, &net.last) {
        (None, _) => "remove",
        (Some(_), None) => "restore",
        (Some(_), Some(_)) if net.content_stayed() => "attributes",
        _ => "restore",
    }
}

fn undone(delta: &Delta, kept: Option<String>) -> Undone {
    let what = match (&delta.base, &delta.new) {
        (_, None) => "remove",
        (Some(base), Some(new)) if base.kind == new.kind && base.digest == Some(new.digest) => {
            "attributes"
        }
        _ => "restore",
    };
    Undone {
        tree: delta.tree.clone(),
        path: path::text(&delta.path),
        what,
        kept,
    }
}
