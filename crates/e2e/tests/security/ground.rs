//! Where a probe is tried: a workspace, a world with a witness, and the same command on both sides of the boundary.

use std::time::Duration;

use kairos_e2e::place::{canary, is_root};
use kairos_e2e::run::outside;
use kairos_e2e::{Finished, Outcome, Run, Who, Workspace, World};

pub(crate) struct Ground {
    pub(crate) world: World,
    pub(crate) workspace: Workspace,
}

impl Ground {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// `arguments` are more of `witness.py`.
    pub(crate) fn with(arguments: &[&str]) -> Self {
        let workspace = Workspace::plain();
        let world = World::with(&workspace.logs(), arguments);
        Self { world, workspace }
    }

    pub(crate) fn inside(&self, script: &str) -> Outcome {
        let outcome = Run::shell(&self.workspace, &ending(script))
            .within(&self.world)
            .finish();
        assert!(
            outcome.stdout.contains("probe ran"),
            "the probe did not run\n{outcome}"
        );
        outcome
    }

    pub(crate) fn outside(&self, script: &str) -> Finished {
        outside(&self.workspace, Who::Me, Some(&self.world), &ending(script))
    }

    /// Tries `script` on both sides. In it, `{canary}` stands for a word that the witness looks for.
    #[track_caller]
    pub(crate) fn nothing_gets_out(&self, script: &str) -> Outcome {
        let (out, inner) = (canary(), canary());
        let control = self.outside(&script.replace("{canary}", &out));
        assert!(
            self.world.witness.sees(&out),
            "the control did not reach the witness: {control:?}"
        );
        // Connections that the control leaves behind settle first.
        std::thread::sleep(Duration::from_millis(200));
        let before = self.world.witness.log().len();
        let outcome = self.inside(&script.replace("{canary}", &inner));
        std::thread::sleep(Duration::from_millis(400));
        assert!(
            !self.world.witness.has_seen(&inner),
            "the witness saw it\n{outcome}"
        );
        let records = self.world.witness.log();
        assert_eq!(
            records.len(),
            before,
            "something reached the witness: {:?}\n{outcome}",
            &records[before..]
        );
        outcome
    }
}

/// A file outside every scratch folder that a test may leave behind; dropped, it is gone.
pub(crate) struct Cleared(pub(crate) std::path::PathBuf);

impl Drop for Cleared {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Whose processes and files a probe could hope to touch: an ordinary user's own when there is one, else the developer's.
pub(crate) fn somebody() -> Who {
    if is_root() { Who::Ordinary } else { Who::Me }
}

fn ending(script: &str) -> String {
    format!("{script}\necho probe ran")
}

/// A Python program for `sh`, whatever quotes it holds.
pub(crate) fn python(program: &str) -> String {
    format!("/usr/bin/python3 - <<'PROBE'\n{}\nPROBE", program.trim())
}
