//! How sessions and holds are shown to people and to programs.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};

use crate::report::{Fate, Item, Report};

/// Released effects named in a summary, and such as only follow others; more are counted.
const NAMED_MAX: usize = 12;

/// A word in the colour of an error, where there is colour.
pub(crate) fn error(word: &str) -> String {
    painted(
        word,
        Style::new().bold().fg_color(Some(AnsiColor::Red.into())),
    )
}

/// What `--json` prints: one line.
pub(crate) fn json(report: &Report) -> Value {
    let list = |fates: &[Fate]| json!(report.with(fates));
    let count = |fates: &[Fate]| report.with(fates).len();
    json!({
        "session": report.session,
        "agent": { "command": report.command, "status": report.status },
        "counts": {
            "released": count(&[Fate::Released]),
            "held": count(&[Fate::Held]),
            "refused": count(&[Fate::Refused]),
            "failed": count(&[Fate::Failed, Fate::Unknown]),
            "reads": report.reads,
            "model": report.items.iter().filter(|item| item.internal).count(),
        },
        "released": list(&[Fate::Released]),
        "held": list(&[Fate::Held]),
        "refused": list(&[Fate::Refused]),
        "failed": list(&[Fate::Failed, Fate::Unknown]),
        "not_enforced": json!(report.unenforced()),
        "warnings": report.warnings,
    })
}

/// The summary at the end of a run; empty when nothing crossed the boundary.
pub(crate) fn summary(report: &Report) -> String {
    let mut text = String::new();
    let released = report.with(&[Fate::Released]);
    let held = report.with(&[Fate::Held]);
    let refused = report.with(&[Fate::Refused]);
    let failed = report.with(&[Fate::Failed, Fate::Unknown]);
    let all = [&released, &held, &refused, &failed];
    if all.iter().all(|list| list.is_empty()) {
        return text;
    }
    let _ = writeln!(
        text,
        "\n{} session {}: {} released, {} held, {} refused{}",
        painted("kairos", Style::new().bold()),
        report.session,
        released.len(),
        held.len(),
        refused.len(),
        if failed.is_empty() {
            String::new()
        } else {
            format!(", {} failed", failed.len())
        },
    );
    let unenforced = report.unenforced();
    let vouched: Vec<&Item> = released
        .iter()
        .copied()
        .filter(|item| !unenforced.iter().any(|other| other.event == item.event))
        .collect();
    section(
        &mut text,
        "released",
        AnsiColor::Green,
        &vouched,
        NAMED_MAX,
        false,
    );
    section(
        &mut text,
        "happened, and would not have under `--mode enforce`",
        AnsiColor::Yellow,
        &unenforced,
        usize::MAX,
        true,
    );
    section(
        &mut text,
        "refused",
        AnsiColor::Red,
        &refused,
        usize::MAX,
        true,
    );
    section(
        &mut text,
        "failed",
        AnsiColor::Red,
        &failed,
        usize::MAX,
        true,
    );
    section(
        &mut text,
        "held",
        AnsiColor::Yellow,
        &held,
        usize::MAX,
        true,
    );
    for warning in &report.warnings {
        let _ = writeln!(text, "  note: {warning}");
    }
    text
}

/// What to do about what is held, or was not enforced; empty when there is nothing to do.
pub(crate) fn next(report: &Report) -> String {
    let mut text = String::new();
    if !report.with(&[Fate::Held]).is_empty() {
        let _ = writeln!(
            text,
            "\nNothing of what is held has happened. `kairos review {0}` shows and decides it, \
             `kairos diff {0}` shows file changes.",
            report.session
        );
    }
    let conflict = |item: &&Item| {
        let result = item.result.as_deref().unwrap_or_default();
        item.channel == "file" && result.starts_with("conflict")
    };
    if report.with(&[Fate::Failed]).iter().any(conflict) {
        let _ = writeln!(
            text,
            "\nYou changed files that the agent changed too; yours are in place. `kairos conflicts {0}` \
             shows both and what they make together.",
            report.session
        );
    }
    if !report.unenforced().is_empty() {
        let _ = writeln!(
            text,
            "\n`kairos policy learn {}` proposes what a policy would have to say to release that.",
            report.session
        );
    }
    text
}

/// Holds one after the other, with everything that is known of them.
pub(crate) fn holds(items: &[&Item]) -> String {
    let mut text = String::new();
    for item in items {
        describe(&mut text, item, true);
    }
    text
}

fn section(
    text: &mut String,
    title: &str,
    colour: AnsiColor,
    items: &[&Item],
    most: usize,
    whole: bool,
) {
    if items.is_empty() {
        return;
    }
    let style = Style::new().fg_color(Some(colour.into()));
    let _ = writeln!(text, "\n{}", painted(title, style));
    let (followers, own): (Vec<&Item>, Vec<&Item>) = items.iter().partition(|item| item.follows());
    for item in own
        .iter()
        .take(most)
        .chain(followers.iter().take(NAMED_MAX))
    {
        describe(text, item, whole);
    }
    if own.len() > most {
        let more = own.len() - most;
        let _ = writeln!(text, "  … and {more} more; `kairos log` has all");
    }
    if followers.len() > NAMED_MAX {
        let more = followers.len() - NAMED_MAX;
        let _ = writeln!(
            text,
            "  … and {more} more that follow those; `kairos log` has all"
        );
    }
}

fn describe(text: &mut String, item: &Item, whole: bool) {
    let name = item
        .hold
        .as_deref()
        .filter(|_| item.fate == Fate::Held)
        .unwrap_or("");
    let _ = writeln!(text, "  {name:<4} {}", clean(&item.line()));
    if !whole {
        return;
    }
    for line in item.reasons.iter().chain(&item.details) {
        let _ = writeln!(text, "         {}", clean(line));
    }
    if let Some(result) = item.result.as_ref().filter(|_| item.fate != Fate::Held) {
        let _ = writeln!(text, "         {}", clean(result));
    }
}

/// Untrusted text on one line without control characters, so that it cannot draw on the terminal.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

fn painted(word: &str, style: Style) -> String {
    format!("{}{word}{}", style.render(), style.render_reset())
}

#[cfg(test)]
mod tests {
    use super::{next, summary};
    use crate::report::{Fate, Item, Report};

    fn item(event: u64, object: &str, fate: Fate, reason: &str) -> Item {
        let held = fate == Fate::Held;
        let (reasons, result) = match (held, reason) {
            (_, "") => (Vec::new(), None),
            (true, reason) => (vec![reason.to_string()], None),
            (false, reason) => (Vec::new(), Some(reason.to_string())),
        };
        Item {
            event,
            hold: (fate != Fate::Released).then(|| format!("h{event}")),
            channel: "file".to_string(),
            operation: "create".to_string(),
            object: object.to_string(),
            about: "2 bytes, mode 0644".to_string(),
            details: Vec::new(),
            fate,
            reasons,
            origins: Vec::new(),
            by: None,
            result,
            internal: false,
            manifest: String::new(),
        }
    }

    /// What only follows something else is counted, and hides nothing that has a reason of its own.
    #[test]
    fn a_thousand_that_follow_are_counted() {
        let mut report = Report {
            session: "20260102-030405006-0708".to_string(),
            ..Report::default()
        };
        let later = "it would run later: CI workflow";
        report
            .items
            .push(item(9, ".github/workflows/a.yml", Fate::Held, later));
        for event in 1000..2000 {
            let after = "it came after what is still held: h9";
            report
                .items
                .push(item(event, &format!("made/{event}"), Fate::Held, after));
        }
        report.items.push(item(2001, ".envrc", Fate::Held, later));
        report.items.push(item(
            3,
            ".git/hooks/pre-commit",
            Fate::Refused,
            "ask refused it: no",
        ));
        for event in 4000..4100 {
            let depends = "it depends on h3, which was refused";
            report.items.push(item(
                event,
                &format!("gone/{event}"),
                Fate::Refused,
                depends,
            ));
        }
        report
            .items
            .push(item(5000, "src/main.rs", Fate::Released, ""));
        let text = anstream::adapter::strip_str(&summary(&report)).to_string();
        insta::assert_snapshot!("a summary", text + &next(&report));
    }
}
