//! A person at a terminal. Nothing is released by an empty line; whoever goes away keeps
//! everything that is open for a later review.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Write};
use std::sync::{Arc, Mutex, PoisonError};

use kernel::{HoldId, Origin, Verdict};
use monitor::{Answer, Judgement, Oracle, View, ViewHold};

use crate::group::{Group, groups};
use crate::printable::{printable, shortened};

/// So many of a group are listed before it says how many more there are.
const LISTED_MAX: usize = 8;
/// Lines of an excerpt that are shown with the question.
const EXCERPT_LINES_MAX: usize = 6;
/// Characters of one line of foreign text.
const LINE_CHARACTERS_MAX: usize = 160;

/// What a person may look at besides the view.
pub trait Explain: Send + Sync {
    /// What a held change does to its file, or all of what would be sent.
    fn diff(&self, hold: HoldId) -> Option<String>;

    /// The line that an origin points to, secrets left out. Untrusted.
    fn line(&self, origin: &Origin) -> Option<String> {
        let _ = origin;
        None
    }

    /// What the agent said and called before a hold, as far as it mentions what the hold would
    /// reach; oldest first, secrets left out. Untrusted.
    fn before(&self, hold: HoldId) -> Vec<String> {
        let _ = hold;
        Vec::new()
    }
}

impl Explain for () {
    fn diff(&self, _: HoldId) -> Option<String> {
        None
    }
}

/// The oracle `ask`.
pub struct Ask {
    terminal: Terminal,
    explain: Arc<dyn Explain>,
}

enum Terminal {
    Own,
    Given(Mutex<(Box<dyn BufRead + Send>, Box<dyn Write + Send>)>),
}

impl Ask {
    /// Asks at the terminal of this process; keeps everything when there is none.
    pub fn at_the_terminal(explain: Arc<dyn Explain>) -> Self {
        Self {
            terminal: Terminal::Own,
            explain,
        }
    }

    /// Asks through these.
    pub fn through(
        reader: Box<dyn BufRead + Send>,
        writer: Box<dyn Write + Send>,
        explain: Arc<dyn Explain>,
    ) -> Self {
        Self {
            terminal: Terminal::Given(Mutex::new((reader, writer))),
            explain,
        }
    }
}

impl Oracle for Ask {
    fn name(&self) -> String {
        "ask".to_string()
    }

    fn judge(&self, view: &View) -> Judgement {
        match &self.terminal {
            Terminal::Own => {
                let Ok(terminal) = OpenOptions::new().read(true).write(true).open("/dev/tty")
                else {
                    return Judgement::Keep("there is no terminal to ask at".to_string());
                };
                if !rustix::termios::isatty(&terminal) {
                    return Judgement::Keep("there is no terminal to ask at".to_string());
                }
                match terminal.try_clone() {
                    Ok(reader) => self.ask(view, &mut BufReader::new(reader), &mut &terminal),
                    Err(error) => Judgement::Keep(format!("the terminal cannot be used: {error}")),
                }
            }
            Terminal::Given(both) => {
                let mut both = both.lock().unwrap_or_else(PoisonError::into_inner);
                let (reader, writer) = &mut *both;
                self.ask(view, reader, writer)
            }
        }
    }
}

impl Ask {
    fn ask(&self, view: &View, reader: &mut dyn BufRead, writer: &mut dyn Write) -> Judgement {
        let mut talk = Talk {
            view,
            reader,
            writer,
            explain: self.explain.as_ref(),
            answers: BTreeMap::new(),
        };
        let end = talk.all();
        let decided = talk.answers;
        if decided.is_empty() {
            return Judgement::Keep(match end {
                Ok(()) => "you left everything for later".to_string(),
                Err(error) => format!("nobody answered ({error})"),
            });
        }
        let answers = view.holds.iter().map(|hold| {
            let (verdict, reason) = match decided.get(&hold.hold) {
                Some((verdict, reason)) => (Some(*verdict), reason.clone()),
                None => (None, "left for later".to_string()),
            };
            Answer {
                hold: hold.hold,
                manifest: hold.manifest,
                verdict,
                reason,
            }
        });
        Judgement::Answers(answers.collect())
    }
}

/// What a person chose.
enum Choice {
    One(Verdict, String),
    Rest(Verdict, String),
    Skip,
    Quit,
}

struct Talk<'a> {
    view: &'a View,
    reader: &'a mut dyn BufRead,
    writer: &'a mut dyn Write,
    explain: &'a dyn Explain,
    answers: BTreeMap<HoldId, (Verdict, String)>,
}

impl Talk<'_> {
    fn all(&mut self) -> io::Result<()> {
        let groups = groups(self.view);
        let n = self.view.holds.len();
        let effects = if n == 1 {
            "1 effect is held"
        } else {
            &format!("{n} effects are held")
        };
        let kinds = match groups.len() {
            1 => String::new(),
            kinds => format!(", of {kinds} kinds"),
        };
        writeln!(
            self.writer,
            "\n{effects}{kinds}. Nothing of it has happened yet."
        )?;
        for line in &self.view.task {
            writeln!(self.writer, "  your task: {}", foreign(line))?;
        }
        for (index, group) in groups.iter().enumerate() {
            if !self.group(group, index + 1, groups.len())? {
                break;
            }
        }
        self.end()
    }

    /// False when the person left.
    fn group(&mut self, group: &Group<'_>, number: usize, of: usize) -> io::Result<bool> {
        let n = group.holds.len();
        writeln!(self.writer)?;
        if n > 1 {
            writeln!(self.writer, "[{number}/{of}] {n} of one kind")?;
            for hold in group.holds.iter().take(LISTED_MAX) {
                writeln!(self.writer, "    {}  {}", hold.hold, what(hold))?;
            }
            if n > LISTED_MAX {
                writeln!(self.writer, "    and {} more", n - LISTED_MAX)?;
            }
        }
        for (index, hold) in group.holds.iter().enumerate() {
            let place = if n > 1 {
                format!("[{number}/{of}, {} of {n}]", index + 1)
            } else {
                format!("[{number}/{of}]")
            };
            writeln!(self.writer, "{place} {}  {}", hold.hold, what(hold))?;
            self.hold(hold)?;
            match self.choose(hold, n - index)? {
                Choice::One(verdict, reason) => {
                    self.answers.insert(hold.hold, (verdict, reason));
                }
                Choice::Rest(verdict, reason) => {
                    for rest in group.holds.iter().skip(index) {
                        self.answers.insert(rest.hold, (verdict, reason.clone()));
                    }
                    break;
                }
                Choice::Skip => {}
                Choice::Quit => return Ok(false),
            }
        }
        Ok(true)
    }

    /// What it is, where its steering values came from, what it carries.
    fn hold(&mut self, hold: &ViewHold) -> io::Result<()> {
        for reason in &hold.reasons {
            writeln!(
                self.writer,
                "    why held   {}",
                foreign(&reason.to_string())
            )?;
        }
        if let Some((level, origins)) = &hold.carries {
            let from: Vec<String> = origins.iter().map(|o| foreign(&o.to_string())).collect();
            let from = if from.is_empty() {
                String::new()
            } else {
                format!(", from {}", from.join(", "))
            };
            writeln!(self.writer, "    carries    {level} content{from}")?;
        }
        for gated in &hold.effect.gated {
            writeln!(
                self.writer,
                "    {:<10} {}",
                foreign(&gated.field),
                foreign(&gated.value)
            )?;
        }
        let dependents = self.dependents(hold.hold);
        if !dependents.is_empty() {
            let n = dependents.len();
            let listed: Vec<String> = dependents
                .iter()
                .take(LISTED_MAX)
                .map(|other| format!("{} {}", other.hold, what(other)))
                .collect();
            let more = match n.saturating_sub(LISTED_MAX) {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            writeln!(
                self.writer,
                "    dependents {}{more} (refused with it)",
                listed.join(", ")
            )?;
        }
        if !hold.effect.about.is_empty() {
            writeln!(
                self.writer,
                "    content    {}",
                foreign(&hold.effect.about)
            )?;
        }
        let lines: Vec<&str> = hold.excerpt.lines().collect();
        for line in lines.iter().take(EXCERPT_LINES_MAX) {
            writeln!(self.writer, "    | {}", foreign(line))?;
        }
        if lines.len() > EXCERPT_LINES_MAX {
            writeln!(
                self.writer,
                "    | and {} more lines (d shows them)",
                lines.len() - EXCERPT_LINES_MAX
            )?;
        }
        Ok(())
    }

    fn choose(&mut self, hold: &ViewHold, left: usize) -> io::Result<Choice> {
        loop {
            let all = if left > 1 {
                format!(", a for all {left}")
            } else {
                String::new()
            };
            write!(
                self.writer,
                "  release {}? y, n, d, w{all}, s, q, ? > ",
                hold.hold
            )?;
            self.writer.flush()?;
            let line = self.line()?;
            let (key, rest) = line.split_once(char::is_whitespace).unwrap_or((&line, ""));
            let reason = |word: &str| match rest.trim() {
                "" => word.to_string(),
                said => printable(said),
            };
            match key {
                "y" | "yes" => return Ok(Choice::One(Verdict::Release, reason("released by you"))),
                "n" | "no" => return Ok(Choice::One(Verdict::Refuse, reason("refused by you"))),
                "a" | "all" if left > 1 => {
                    if let Some(choice) = self.choose_all(left)? {
                        return Ok(choice);
                    }
                }
                "s" | "skip" => return Ok(Choice::Skip),
                "q" | "quit" => return Ok(Choice::Quit),
                "d" | "diff" => self.diff(hold)?,
                "w" | "why" => self.why(hold)?,
                "" => writeln!(
                    self.writer,
                    "    nothing was chosen, so nothing happens; ? tells the keys"
                )?,
                _ => self.keys(left)?,
            }
        }
    }

    fn choose_all(&mut self, left: usize) -> io::Result<Option<Choice>> {
        write!(
            self.writer,
            "  all {left} of this kind: y releases them, n refuses them > "
        )?;
        self.writer.flush()?;
        let line = self.line()?;
        Ok(match line.as_str() {
            "y" | "yes" => Some(Choice::Rest(
                Verdict::Release,
                "released by you".to_string(),
            )),
            "n" | "no" => Some(Choice::Rest(Verdict::Refuse, "refused by you".to_string())),
            _ => {
                writeln!(self.writer, "    nothing was chosen")?;
                None
            }
        })
    }

    fn keys(&mut self, left: usize) -> io::Result<()> {
        writeln!(
            self.writer,
            "    y  release it; words after it are kept as your reason"
        )?;
        writeln!(
            self.writer,
            "    n  refuse it; the agent is told that it did not happen"
        )?;
        writeln!(
            self.writer,
            "    d  show all of what would be written or sent"
        )?;
        writeln!(
            self.writer,
            "    w  show where it came from and what led to it"
        )?;
        if left > 1 {
            writeln!(
                self.writer,
                "    a  the same answer for all that are left of this kind"
            )?;
        }
        writeln!(self.writer, "    s  leave it for later (`kairos review`)")?;
        writeln!(
            self.writer,
            "    q  leave this and everything after it for later"
        )
    }

    fn diff(&mut self, hold: &ViewHold) -> io::Result<()> {
        let text = self
            .explain
            .diff(hold.hold)
            .unwrap_or_else(|| hold.excerpt.clone());
        if text.is_empty() {
            return writeln!(self.writer, "    there is no content to show");
        }
        for line in text.lines() {
            writeln!(self.writer, "    | {}", printable(line))?;
        }
        Ok(())
    }

    fn why(&mut self, hold: &ViewHold) -> io::Result<()> {
        let whole = printable(&hold.effect.object.to_string());
        if whole.chars().count() > LINE_CHARACTERS_MAX {
            writeln!(self.writer, "    in full: {whole}")?;
        }
        for reason in &hold.reasons {
            if let kernel::Reason::NotDerivable { field, origins, .. } = reason {
                for origin in origins {
                    writeln!(
                        self.writer,
                        "    {field} was met at {}",
                        foreign(&origin.to_string())
                    )?;
                }
            }
        }
        for depends in &hold.depends {
            let known = self.view.holds.iter().find(|other| other.hold == *depends);
            let is = known
                .map(what)
                .unwrap_or_else(|| "not shown here".to_string());
            writeln!(self.writer, "    waits for {depends}: {is}")?;
        }
        writeln!(self.writer, "    manifest {}", hold.manifest.hex())?;
        if !self.view.trace.is_empty() {
            writeln!(self.writer, "    what happened last:")?;
        }
        let from = self.view.trace.len().saturating_sub(12);
        for line in self.view.trace.iter().skip(from) {
            writeln!(self.writer, "    | {}", foreign(line))?;
        }
        Ok(())
    }

    /// What depends on a hold, directly or not, oldest first.
    fn dependents(&self, hold: HoldId) -> Vec<&ViewHold> {
        let mut doomed = std::collections::BTreeSet::from([hold]);
        let mut found = Vec::new();
        // Whatever depends on a hold is younger.
        for other in &self.view.holds {
            if other.hold != hold && other.depends.iter().any(|d| doomed.contains(d)) {
                doomed.insert(other.hold);
                found.push(other);
            }
        }
        found
    }

    fn end(&mut self) -> io::Result<()> {
        let count = |verdict| self.answers.values().filter(|(v, _)| *v == verdict).count();
        let (released, refused) = (count(Verdict::Release), count(Verdict::Refuse));
        let left = self.view.holds.len() - released - refused;
        writeln!(
            self.writer,
            "\n{released} to be released, {refused} to be refused, {left} left for later."
        )
    }

    /// A line without its end; an end of input is an error.
    fn line(&mut self) -> io::Result<String> {
        const LINE_BYTES_MAX: usize = 4096;
        let mut bytes = Vec::new();
        loop {
            let available = self.reader.fill_buf()?;
            if available.is_empty() {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the input ended",
                ));
            }
            let newline = available.iter().position(|byte| *byte == b'\n');
            let taken = newline.map_or(available.len(), |at| at + 1);
            let room = LINE_BYTES_MAX.saturating_sub(bytes.len());
            bytes.extend(available.iter().take(taken.min(room)));
            self.reader.consume(taken);
            if newline.is_some() {
                return Ok(String::from_utf8_lossy(&bytes).trim().to_string());
            }
        }
    }
}

fn what(hold: &ViewHold) -> String {
    format!(
        "{} {}",
        hold.effect.operation.name(),
        foreign(&hold.effect.object.to_string())
    )
}

/// Text of somebody else's making, on one line.
fn foreign(text: &str) -> String {
    shortened(&printable(text), LINE_CHARACTERS_MAX)
}
