//! `kairos gc`: what sessions keep on disk, and giving back what nobody needs any more.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::json;
use store::SessionDir;

use crate::cli::print;
use crate::exit::{Failure, Outcome, Status};
use crate::report::Report;
use crate::setup::{Lock, Setup};
use crate::surroundings::Surroundings;
use crate::wiring;

/// Replaced versions above this are removed, oldest session first.
pub(crate) const UNDO_BYTES_MAX: u64 = 4 << 30;

/// Give back disk space.
///
/// Removes ended sessions in which nothing is held and no conflict is open once they are old, and
/// what `kairos undo` needs of other old sessions when it takes more than the limit. What is held is
/// never removed.
#[derive(Debug, Args)]
pub(crate) struct Gc {
    /// Remove finished sessions that are older than this
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    older_than: u64,
    /// Keep at most this many megabytes for undo, over all sessions
    #[arg(long, value_name = "MB", default_value_t = UNDO_BYTES_MAX >> 20)]
    undo_max: u64,
    /// Show what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Print one object
    #[arg(long)]
    json: bool,
}

/// One session on disk.
struct Kept {
    dir: SessionDir,
    age: Duration,
    total: u64,
    undo: u64,
    staged: u64,
    /// Why it stays.
    needed: Option<&'static str>,
}

impl Gc {
    pub(crate) fn execute(self) -> Outcome<Status> {
        let place = Surroundings::read()?.place;
        let mut rows = Vec::new();
        let mut freed = 0;
        let mut undo_left: u64 = 0;
        let mut sessions = Vec::new();
        for id in place.sessions() {
            sessions.push(look(place.find(&id).map_err(Failure::new)?));
        }
        // The newest are kept longest.
        for kept in sessions.iter().rev() {
            let id = kept.dir.id();
            let old = kept.age >= Duration::from_secs(self.older_than * 24 * 3600);
            let (what, gained) = if kept.needed.is_none() && old {
                self.remove(kept)?;
                ("removed", kept.total)
            } else if kept.undo > 0
                && undo_left + kept.undo > self.undo_max << 20
                && kept.needed != Some("running")
            {
                self.forget(kept)?;
                (kept.needed.unwrap_or("undo removed"), kept.undo)
            } else {
                undo_left += kept.undo;
                let open = matches!(kept.needed, None | Some("held" | "conflict"));
                let swept = if !open || self.dry_run {
                    0
                } else {
                    sweep(&kept.dir)
                };
                (kept.needed.unwrap_or("kept"), swept)
            };
            freed += gained;
            rows.push((id, what, kept, gained));
        }
        rows.reverse();
        let total: u64 = sessions.iter().map(|kept| kept.total).sum();
        if self.json {
            let rows: Vec<_> = rows
                .iter()
                .map(|(id, what, kept, gained)| {
                    json!({ "session": id, "state": what, "bytes": kept.total, "undo": kept.undo,
                        "staged": kept.staged, "freed": gained })
                })
                .collect();
            return print(&format!(
                "{}\n",
                json!({ "sessions": rows, "bytes": total, "freed": freed, "dry_run": self.dry_run })
            ));
        }
        let mut text = String::new();
        for (id, what, kept, gained) in &rows {
            let _ = write!(text, "{id}  {:>9}  {what}", size(kept.total));
            if kept.undo > 0 {
                let _ = write!(text, ", {} for undo", size(kept.undo));
            }
            if *gained > 0 {
                let _ = write!(text, ", gives back {}", size(*gained));
            }
            text.push('\n');
        }
        let verb = if self.dry_run {
            "would be freed"
        } else {
            "freed"
        };
        let _ = writeln!(
            text,
            "{} in {} session{}, {} {verb}",
            size(total),
            rows.len(),
            if rows.len() == 1 { "" } else { "s" },
            size(freed)
        );
        print(&text)
    }

    fn remove(&self, kept: &Kept) -> Outcome<()> {
        if self.dry_run {
            return Ok(());
        }
        // Whoever opens it now would find it half gone.
        let Some(_lock) = Lock::take(&kept.dir)? else {
            return Ok(());
        };
        std::fs::remove_dir_all(kept.dir.path()).map_err(crate::exit::at("remove", kept.dir.path()))
    }

    fn forget(&self, kept: &Kept) -> Outcome<()> {
        if self.dry_run {
            return Ok(());
        }
        forget(&kept.dir)
    }
}

/// Keeps what is kept for undo below the limit, without a word; the newest sessions come first.
pub(crate) fn bound(place: &store::Place) {
    let mut left = 0;
    for id in place.sessions().iter().rev() {
        let Ok(dir) = place.find(id) else { continue };
        let undo = trees(&dir).iter().map(|t| files::kept(t).undo).sum::<u64>();
        left += undo;
        // Not worth a failure: the next run tries again.
        if left > UNDO_BYTES_MAX && undo > 0 && !Lock::is_taken(&dir) && forget(&dir).is_ok() {
            left -= undo;
        }
    }
}

fn forget(dir: &SessionDir) -> Outcome<()> {
    for upper in trees(dir) {
        files::forget_undo(&upper).map_err(crate::exit::at("clear", &upper))?;
    }
    Ok(())
}

fn look(dir: SessionDir) -> Kept {
    let mut kept = Kept {
        age: age(&dir),
        total: files::space::bytes_below(dir.path()),
        undo: 0,
        staged: 0,
        needed: None,
        dir,
    };
    let mut conflicts = 0;
    for upper in trees(&kept.dir) {
        let space = files::kept(&upper);
        kept.undo += space.undo;
        kept.staged += space.staged;
        conflicts += space.conflicts;
    }
    kept.needed = if Lock::is_taken(&kept.dir) {
        Some("running")
    } else {
        match Report::read(&kept.dir) {
            Ok(report) if !report.held().is_empty() => Some("held"),
            Ok(report) if report.status.is_none() && !report.items.is_empty() => Some("cut off"),
            Ok(_) if conflicts > 0 => Some("conflict"),
            Ok(_) => None,
            // It cannot be told whether something is held.
            Err(_) => Some("unreadable"),
        }
    };
    kept
}

fn age(dir: &SessionDir) -> Duration {
    std::fs::metadata(dir.log())
        .or_else(|_| std::fs::metadata(dir.path()))
        .and_then(|meta| meta.modified())
        .ok()
        .and_then(|at| SystemTime::now().duration_since(at).ok())
        .unwrap_or_default()
}

/// The private directories of a session's trees.
fn trees(dir: &SessionDir) -> Vec<std::path::PathBuf> {
    match Setup::read(dir) {
        Ok(setup) => setup.trees.iter().map(|(name, _)| dir.tree(name)).collect(),
        Err(_) => Vec::new(),
    }
}

/// Removes what a killed process left over in a session that stays.
fn sweep(dir: &SessionDir) -> u64 {
    match wiring::reopen(dir) {
        Ok(Some(reopened)) => reopened.trees().sweep(),
        // Running, or not to be opened: nothing of it is touched.
        _ => 0,
    }
}

fn size(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let mut scaled = bytes * 10;
    let mut unit = 0;
    while scaled >= 10_000 && unit + 1 < units.len() {
        scaled /= 1000;
        unit += 1;
    }
    let name = units.get(unit).copied().unwrap_or("TB");
    if unit == 0 {
        format!("{bytes} {name}")
    } else {
        format!("{}.{} {name}", scaled / 10, scaled % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (1_549_000, "1.5 MB"),
            (4 << 30, "4.2 GB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
