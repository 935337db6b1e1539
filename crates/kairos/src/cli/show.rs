//! How sessions and holds are shown to people and to programs.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};

use crate::report::{Fate, Item, Report};

/// Released effects named in a summary; more are counted.
const RELEASED_MAX: usize = 12;

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
        RELEASED_MAX,
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
    for item in items.iter().take(most) {
        describe(text, item, whole);
    }
    if items.len() > most {
        let _ = writeln!(
            text,
            "  … and {} more; `kairos log` has all",
            items.len() - most
        );
    }
}

fn describe(text: &mut String, item: &Item, whole: bool) {
    let name = item
        .hold
        .as_deref()
        .filter(|_| item.fate == Fate::Held)
        .unwrap_or("");
    let _ = writeln!(text, "  {name:<5}{}", clean(&item.line()));
    if !whole {
        return;
    }
    for reason in &item.reasons {
        let _ = writeln!(text, "         {}", clean(reason));
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
