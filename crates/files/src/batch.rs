//! Carries out what was released: intents first, then the changes, then their directories. What
//! many changes have in common is done once for all of them.

use std::collections::{BTreeSet, HashMap, HashSet};

use kernel::EventId;
use store::Lease;

use crate::attr::{Kind, Version};
use crate::commit::{CommitError, Host};
use crate::delta::{Content, Delta};
use crate::leaning::Leaning;
use crate::path::{self, Rel, below, lies_at, split};
use crate::recover;
use crate::settle::Pending;
use crate::trees::Trees;

/// So many new files are made durable one by one; more of them together.
const TOGETHER_MIN: usize = 8;
/// As many lie beside the old ones at most.
const TOGETHER_MAX: usize = 2000;

impl Trees {
    /// Carries out what was released: one intent record and one directory sync for many.
    pub(crate) fn carry_out(&self, released: Vec<(Pending, Lease)>) {
        if released.is_empty() {
            return;
        }
        let mut results: Vec<(Pending, EventId, Result<Option<Version>, CommitError>)> = Vec::new();
        let mut ready = Vec::new();
        for (found, lease) in released {
            let Some(host) = self.hosts.get(found.tree) else {
                continue;
            };
            match host.intend(lease.event().0, &found.delta) {
                Ok(()) => ready.push((found, lease)),
                Err(error) => results.push((found, lease.event(), Err(error))),
            }
        }
        // The permits were recorded one by one and become durable here, all together.
        let Some(session) = self.session.upgrade() else {
            return;
        };
        if let Err(error) = session.sync() {
            for (found, lease) in ready.drain(..) {
                let failed = CommitError::Failed {
                    what: "record durably the release of",
                    path: path::text(&found.delta.path),
                    errno: error.to_string(),
                };
                results.push((found, lease.event(), Err(failed)));
            }
        }
        if let Err(why) = self.write_down() {
            for (found, lease) in ready.drain(..) {
                let failed = CommitError::Failed {
                    what: "note durably the intent to change",
                    path: path::text(&found.delta.path),
                    errno: why.clone(),
                };
                results.push((found, lease.event(), Err(failed)));
            }
        }
        let mut dirs: BTreeSet<(usize, Rel)> = BTreeSet::new();
        // What could not be moved to its new place is not removed from its old one.
        let mut stays: HashSet<(usize, Rel)> = HashSet::new();
        let mut again: Vec<(usize, Rel)> = Vec::new();
        let mut not_made: Vec<(usize, Rel)> = Vec::new();
        let mut timed: Vec<(usize, Delta)> = Vec::new();
        // Many new files in a row are made durable together.
        let mut prepared: HashMap<u64, Result<(), CommitError>> = HashMap::new();
        let mut looked_at = 0;
        let mut leaning = Leaning::on(ready.iter().map(|(found, _)| (found.tree, &found.delta)));
        // Files of the host as this batch left them: what it did itself is no change of the owner's.
        let mut left: HashMap<(u64, u64), Version> = HashMap::new();
        for number in 0..ready.len() {
            let Some((found, lease)) = ready.get(number) else {
                break;
            };
            let event = lease.event();
            if is_content(found) && number >= looked_at {
                let rest = ready.get(number..).unwrap_or_default();
                let many = rest
                    .iter()
                    .take(TOGETHER_MAX)
                    .take_while(|(found, _)| is_content(found))
                    .count();
                looked_at = number + many;
                match self.prepare(rest.get(..many).unwrap_or_default()) {
                    Ok(more) => prepared.extend(more),
                    // As in a crash: nothing comes after it.
                    Err(()) => return,
                }
            }
            let key = (found.tree, found.delta.path.clone());
            let held_up = |(tree, place): &(usize, Rel)| {
                found.delta.new.is_none() && *tree == key.0 && lies_at(place, &key.1)
            };
            let above = |(tree, place): &(usize, Rel)| *tree == key.0 && below(&key.1, place);
            let made = prepared.remove(&event.0);
            let result = if not_made.iter().any(above) {
                Err(CommitError::NotMade(path::text(&found.delta.path)))
            } else if stays.iter().any(held_up) {
                if again.iter().any(held_up) {
                    again.push(key.clone());
                }
                Err(CommitError::Moved(path::text(&found.delta.path)))
            } else {
                self.replace(&mut leaning, &left, found, event, made)
            };
            if matches!(result, Err(CommitError::Stopped(_))) {
                // As in a crash: nothing comes after it.
                return;
            }
            if matches!(
                result,
                Err(CommitError::Failed { .. } | CommitError::NotMade(_))
            ) && found.delta.base.is_none()
                && found
                    .delta
                    .new
                    .as_ref()
                    .is_some_and(|new| new.kind == Kind::Dir)
            {
                not_made.push(key.clone());
            }
            if let (Err(error), Some(origin)) = (&result, &found.origin) {
                let place = (found.tree, origin.clone());
                let above = || {
                    let state = self.overlay.lock();
                    state.changes_above(found.tree, &found.delta.path)
                };
                if matches!(error, CommitError::Changed(_)) || above() {
                    // It is tried again, and so is this.
                    again.push(place.clone());
                }
                stays.insert(place);
            }
            if let (Ok(Some(version)), Some((ino, _))) = (&result, found.node) {
                // Before its old place goes: the agent may open it at any time.
                let path = &found.delta.path;
                if let Err(error) = self.overlay.lock().arrived(ino, path, version) {
                    tracing::warn!("{}: {error}", path::text(path));
                }
            }
            if let Ok(Some(version)) = &result {
                left.insert((version.dev, version.ino), version.clone());
            }
            if result.is_ok() {
                if found
                    .delta
                    .new
                    .as_ref()
                    .is_some_and(|new| new.kind == Kind::Dir && new.timed)
                {
                    timed.push((found.tree, found.delta.clone()));
                }
                let parent = split(&found.delta.path).map(|(parent, _)| parent.to_vec());
                dirs.insert((found.tree, parent.unwrap_or_default()));
            }
            results.push((found.clone(), event, result));
        }
        drop(ready);
        for (tree, delta) in timed {
            if let Some(host) = self.hosts.get(tree) {
                host.set_dir_time(&delta);
            }
        }
        for host in &self.hosts {
            if host.lower().is_err() {
                // As in a crash: nothing comes after it.
                return;
            }
        }
        if dirs.len() >= TOGETHER_MIN {
            for tree in dirs.iter().map(|(tree, _)| *tree).collect::<BTreeSet<_>>() {
                if let Some(Err(error)) = self.hosts.get(tree).map(Host::sync_all) {
                    tracing::warn!("{error}");
                }
            }
            dirs.clear();
        }
        for (tree, dir) in dirs {
            if let Some(Err(error)) = self.hosts.get(tree).map(|host| host.sync_dir(&dir)) {
                tracing::warn!("{error}");
            }
        }
        for (found, event, result) in results {
            let told = self.conclude(&found, event, result);
            session.done(event, told);
        }
        let mut state = self.overlay.lock();
        for (tree, origin) in again {
            state.touch(tree, origin, false);
        }
    }

    /// Carries one out, after whatever else shows its place was given what it needs from there.
    fn replace(
        &self,
        leaning: &mut Leaning,
        left: &HashMap<(u64, u64), Version>,
        found: &Pending,
        event: EventId,
        made: Option<Result<(), CommitError>>,
    ) -> Result<Option<Version>, CommitError> {
        let Some(host) = self.hosts.get(found.tree) else {
            return Ok(None);
        };
        let ready = self
            .moved_as_seen(left, found)
            .and_then(|()| self.let_go(leaning, found));
        if let Err(error) = ready {
            if let Some(Ok(())) = made {
                host.discard_prepared(event.0, &found.delta);
            }
            return Err(error);
        }
        match made {
            Some(Ok(())) => host.carry_out_prepared(event.0, &found.delta),
            Some(Err(error)) => Err(error),
            None => host.carry_out(event.0, &found.delta),
        }
    }

    /// Whether a file that is moved still is, at its old place, what the agent moved: no half of the move
    /// is made with what its owner wrote there since.
    fn moved_as_seen(
        &self,
        left: &HashMap<(u64, u64), Version>,
        found: &Pending,
    ) -> Result<(), CommitError> {
        let content = found.delta.new.as_ref().map(|new| &new.content);
        let (Some(Content::Base(from)), Some((ino, _))) = (content, found.node) else {
            return Ok(());
        };
        if *from == found.delta.path {
            return Ok(());
        }
        let state = self.overlay.lock();
        let node = state.nodes.get(&ino);
        if node.is_none_or(|node| node.data.is_some() || node.base.as_ref() != Some(from)) {
            // It was given content of its own since.
            return Ok(());
        }
        let tree = state.trees.get(found.tree);
        let covered = tree.and_then(|tree| tree.covered.get(from).cloned().flatten());
        let seen = covered.or_else(|| state.nodes.get(&ino)?.seen.clone());
        drop(state);
        let now = self
            .hosts
            .get(found.tree)
            .map(|host| host.base.version(from));
        let as_in = |seen: &Version, now: &Version| {
            (seen.kind, seen.size, seen.mtime) == (now.kind, now.size, now.mtime)
        };
        match (seen, now) {
            (Some(seen), Some(Ok(Some(now))))
                if !as_in(&seen, &now)
                    && !left
                        .get(&(now.dev, now.ino))
                        .is_some_and(|left| as_in(left, &now)) =>
            {
                Err(CommitError::Conflict {
                    path: path::text(&found.delta.path),
                    what: format!(
                        "was to be moved there from `{}`, which was changed on the host meanwhile",
                        path::text(from)
                    ),
                })
            }
            _ => Ok(()),
        }
    }

    /// Makes new files, and makes them durable together, if they are many. Says
    /// what became of each; fails when a test stopped it.
    fn prepare(
        &self,
        ready: &[(Pending, Lease)],
    ) -> Result<HashMap<u64, Result<(), CommitError>>, ()> {
        let mut made = HashMap::new();
        if ready.len() < TOGETHER_MIN {
            return Ok(made);
        }
        let mut trees = BTreeSet::new();
        for (found, lease) in ready {
            let Some(host) = self.hosts.get(found.tree) else {
                continue;
            };
            match host.prepare(lease.event().0, &found.delta) {
                Ok(true) => {
                    trees.insert(found.tree);
                    made.insert(lease.event().0, Ok(()));
                }
                Ok(false) => {}
                Err(CommitError::Stopped(_)) => return Err(()),
                Err(error) => drop(made.insert(lease.event().0, Err(error))),
            }
        }
        for tree in trees {
            match self.hosts.get(tree).map(Host::sync_all) {
                Some(Err(CommitError::Stopped(_))) => return Err(()),
                Some(Err(error)) => {
                    // None of them is put in place; what was made goes with the intent's end.
                    for (found, lease) in ready.iter().filter(|(found, _)| found.tree == tree) {
                        if let Some(one) = made.get_mut(&lease.event().0).filter(|one| one.is_ok())
                        {
                            *one = Err(error.clone());
                            if let Some(host) = self.hosts.get(tree) {
                                host.discard_prepared(lease.event().0, &found.delta);
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(made)
    }

    /// Before the host changes: what is staged, in a form that does not lean on the host as it was,
    /// and the intents, durably.
    pub(crate) fn write_down(&self) -> Result<(), String> {
        recover::checkpoint(&mut self.overlay.lock()).map_err(|e| e.to_string())?;
        self.hosts
            .iter()
            .try_for_each(|host| host.upper.sync().map_err(|e| e.to_string()))
    }

    /// Brings view and journal in line with what became of a delta; says it for people.
    pub(crate) fn conclude(
        &self,
        found: &Pending,
        event: EventId,
        result: Result<Option<Version>, CommitError>,
    ) -> Result<String, String> {
        let delta = &found.delta;
        let Some(host) = self.hosts.get(found.tree) else {
            return Err("its tree is not open".to_string());
        };
        match result {
            Ok(mut version) => {
                if let (Some(version), Some(new)) = (&mut version, &delta.new) {
                    version.is_now(new);
                }
                let mut state = self.overlay.lock();
                // Only bytes that the agent wrote are no news to it.
                let written = delta
                    .new
                    .as_ref()
                    .is_some_and(|new| matches!(new.content, Content::Data(_)));
                let moved_on = [&delta.base, &version]
                    .into_iter()
                    .flatten()
                    .try_for_each(|file| state.other_names_moved_on(found.tree, file));
                let kept = state.committed(found.tree, &delta.path, version, found.node, written);
                drop(state);
                if let Err(error) = moved_on.and(kept) {
                    tracing::warn!("{}: {error}", path::text(&delta.path));
                }
                host.finished(event.0, true, "");
                Ok(match &delta.new {
                    Some(new) if new.kind == Kind::File => format!("{} bytes written", new.size),
                    Some(new) => format!("{} written", new.kind.name()),
                    None => "removed".to_string(),
                })
            }
            Err(CommitError::Stopped(step)) => Err(format!("stopped at step `{step}`")),
            Err(error) => {
                host.finished(event.0, false, &error.to_string());
                let mut text = error.to_string();
                let mut state = self.overlay.lock();
                let above = state.changes_above(found.tree, &delta.path);
                if above || matches!(error, CommitError::Changed(_)) {
                    state.touch(found.tree, delta.path.clone(), false);
                }
                drop(state);
                match &error {
                    CommitError::Changed(_) => {}
                    _ if above => {
                        let path = path::text(&delta.path);
                        text = format!("`{path}` waits for a directory above, which is changing");
                    }
                    _ => {
                        if let Some(kept) = host.keep_aside(delta) {
                            text.push_str(&format!(
                                "; the agent's version is kept in `{}`",
                                kept.display()
                            ));
                        }
                        if let (
                            CommitError::Failed { .. } | CommitError::NotMade(_),
                            Some(session),
                        ) = (&error, self.session.upgrade())
                        {
                            text.push_str(&format!(
                                "; nothing is lost: when that is mended, `kairos conflicts {} {} --take agent` does it",
                                session.dir().id(),
                                path::text(&delta.path)
                            ));
                        }
                    }
                }
                Err(text)
            }
        }
    }
}

/// Whether it puts something other than a directory somewhere.
fn is_content(found: &Pending) -> bool {
    found
        .delta
        .new
        .as_ref()
        .is_some_and(|new| new.kind != Kind::Dir)
}
