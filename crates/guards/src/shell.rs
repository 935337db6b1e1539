//! What a shell command would run, read with a real shell parser: pipes, lists, substitutions, here
//! documents, functions, aliases, variables. Nothing is executed; where a value cannot be known, what
//! flows into it still is.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use brush_parser::ast::{
    AndOr, AndOrList, AssignmentName, AssignmentValue, Command, CommandPrefixOrSuffixItem,
    CompoundCommand, CompoundList, IoFileRedirectKind, IoFileRedirectTarget, IoRedirect, Pipeline,
    RedirectList, SimpleCommand, SubshellCommand, Word,
};
use brush_parser::word::{WordPiece, WordPieceWithSource};
use brush_parser::{Parser, ParserOptions};

/// Longer commands, and such with more brackets, are only looked through for words.
const BYTES_MAX: usize = 64 << 10;
const BRACKETS_MAX: usize = 400;
const DEPTH_MAX: usize = 40;
/// Substitutions and `sh -c` inside one another.
const NESTED_MAX: usize = 8;
/// Commands that one line may expand to.
const RUNS_MAX: usize = 2000;

/// Words after which a command begins.
const KEYWORDS: [&str; 12] = [
    "if", "then", "elif", "else", "while", "until", "do", "for", "in", "case", "!", "time",
];

/// What is known of a value: its text as far as it is literal, and which files its content is from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Literal text; what is not known is left out.
    pub text: String,
    /// Files whose content flows in.
    pub files: BTreeSet<String>,
    /// Whether some of it is not known.
    pub open: bool,
}

/// One command that would run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Its words, the program first.
    pub words: Vec<Flow>,
    /// What it reads from standard input.
    pub input: Flow,
    /// Files that its output is written to.
    pub writes: Vec<String>,
    /// Variables it gets.
    pub environment: Vec<(String, Flow)>,
    /// Whether an outer command is made of what this one prints.
    pub inner: bool,
}

/// A command line as it was read.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Everything it would run, in order, what is inside of something before that.
    pub runs: Vec<Run>,
    /// False when the parser could not read it and only its words are known.
    pub parsed: bool,
}

impl Run {
    /// The program's name without its folder, in lower case.
    pub fn program(&self) -> String {
        let name = self.words.first().map_or("", |word| word.text.as_str());
        name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase()
    }

    /// Its arguments.
    pub fn arguments(&self) -> &[Flow] {
        self.words.get(1..).unwrap_or_default()
    }
}

impl Flow {
    /// Literal text.
    pub fn literal(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    fn add(&mut self, other: &Self) {
        self.text.push_str(&other.text);
        self.files.extend(other.files.iter().cloned());
        self.open |= other.open;
    }
}

/// Reads a command line.
pub fn read(command: &str) -> Line {
    let mut shell = Shell::default();
    let parsed = shell.text(command, 0);
    if !parsed {
        shell.runs.extend(loose(command));
    }
    shell.runs.truncate(RUNS_MAX);
    Line {
        runs: shell.runs,
        parsed,
    }
}

/// The words of something that no parser reads, cut where commands may begin.
fn loose(text: &str) -> Vec<Run> {
    let mut end = text.len().min(16 * BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = text.get(..end).unwrap_or_default();
    let pieces = text.split([';', '|', '&', '\n', '(', ')', '`', '{', '}']);
    let runs = pieces.filter_map(|piece| {
        let words: Vec<Flow> = piece
            .split_whitespace()
            .skip_while(|word| KEYWORDS.contains(word))
            .map(|word| Flow {
                open: true,
                ..Flow::literal(word.trim_matches(['"', '\'', '\\']))
            })
            .collect();
        (!words.is_empty()).then(|| Run {
            words,
            ..Run::default()
        })
    });
    runs.take(RUNS_MAX).collect()
}

/// Too deep for a parser that recurses.
fn too_deep(text: &str) -> bool {
    let mut depth = 0usize;
    let mut deepest = 0usize;
    let mut brackets = 0usize;
    for c in text.chars() {
        match c {
            '(' | '{' | '[' | '`' => {
                brackets += 1;
                depth += 1;
                deepest = deepest.max(depth);
            }
            ')' | '}' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    let openers = text
        .split_whitespace()
        .filter(|word| matches!(*word, "if" | "for" | "while" | "until" | "case" | "!"))
        .count();
    deepest > DEPTH_MAX || brackets > BRACKETS_MAX || openers > DEPTH_MAX
}

#[derive(Default)]
struct Shell {
    runs: Vec<Run>,
    variables: BTreeMap<String, Flow>,
    aliases: BTreeMap<String, String>,
    functions: BTreeMap<String, CompoundCommand>,
    /// Functions that are being read, so that one that calls itself ends.
    calling: Vec<String>,
    /// Files that were sourced: a variable nobody set may come from them.
    sourced: BTreeSet<String>,
}

impl Shell {
    /// Reads the text of a program; false when it is none.
    fn text(&mut self, text: &str, nested: usize) -> bool {
        if nested > NESTED_MAX || text.len() > BYTES_MAX || too_deep(text) {
            return false;
        }
        let program = catch_unwind(AssertUnwindSafe(|| {
            Parser::new(text.as_bytes(), &ParserOptions::default()).parse_program()
        }));
        let Ok(Ok(program)) = program else {
            return false;
        };
        for list in &program.complete_commands {
            self.list(list, &Flow::default(), nested);
        }
        true
    }

    fn list(&mut self, list: &CompoundList, input: &Flow, nested: usize) -> Flow {
        let mut out = Flow::default();
        for item in &list.0 {
            out.add(&self.and_or(&item.0, input, nested));
        }
        out
    }

    fn and_or(&mut self, list: &AndOrList, input: &Flow, nested: usize) -> Flow {
        let mut out = self.pipeline(&list.first, input, nested);
        for more in &list.additional {
            let (AndOr::And(pipeline) | AndOr::Or(pipeline)) = more;
            out.add(&self.pipeline(pipeline, input, nested));
        }
        out
    }

    /// What its last command prints.
    fn pipeline(&mut self, pipeline: &Pipeline, input: &Flow, nested: usize) -> Flow {
        let mut flow = input.clone();
        for command in &pipeline.seq {
            flow = self.command(command, &flow, nested);
        }
        flow
    }

    fn command(&mut self, command: &Command, input: &Flow, nested: usize) -> Flow {
        if self.runs.len() >= RUNS_MAX {
            return Flow::default();
        }
        match command {
            Command::Simple(simple) => self.simple(simple, input, nested),
            Command::Compound(compound, redirects) => {
                let mut run = Run {
                    input: input.clone(),
                    ..Run::default()
                };
                self.redirects(redirects.as_ref(), &mut run, nested);
                let out = self.compound(compound, &run.input.clone(), nested);
                if !run.writes.is_empty() {
                    // What the group prints goes there.
                    run.words = vec![Flow::literal("cat")];
                    run.input = out.clone();
                    self.runs.push(run);
                }
                out
            }
            Command::Function(function) => {
                self.functions
                    .insert(function.fname.value.clone(), function.body.0.clone());
                Flow::default()
            }
            Command::ExtendedTest(..) => Flow::default(),
        }
    }

    fn compound(&mut self, compound: &CompoundCommand, input: &Flow, nested: usize) -> Flow {
        if nested > NESTED_MAX * 4 {
            return Flow::default();
        }
        let nested = nested + 1;
        match compound {
            CompoundCommand::Arithmetic(_) => Flow::default(),
            CompoundCommand::ArithmeticForClause(clause) => {
                self.list(&clause.body.list, input, nested)
            }
            CompoundCommand::BraceGroup(group) => self.list(&group.list, input, nested),
            CompoundCommand::Subshell(shell) => self.list(&shell.list, input, nested),
            CompoundCommand::ForClause(clause) => {
                let mut values = Flow::default();
                for (index, word) in clause.values.iter().flatten().enumerate() {
                    if index > 0 {
                        values.text.push(' ');
                    }
                    let word = self.word(word, nested);
                    values.add(&word);
                }
                self.variables.insert(clause.variable_name.clone(), values);
                self.list(&clause.body.list, input, nested)
            }
            CompoundCommand::CaseClause(clause) => {
                self.word(&clause.value, nested);
                let mut out = Flow::default();
                for case in &clause.cases {
                    if let Some(list) = &case.cmd {
                        out.add(&self.list(list, input, nested));
                    }
                }
                out
            }
            CompoundCommand::IfClause(clause) => {
                self.list(&clause.condition, input, nested);
                let mut out = self.list(&clause.then, input, nested);
                for branch in clause.elses.iter().flatten() {
                    if let Some(condition) = &branch.condition {
                        self.list(condition, input, nested);
                    }
                    out.add(&self.list(&branch.body, input, nested));
                }
                out
            }
            CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
                // `while read line; do … $line …; done < FILE`
                for name in reads(&clause.0) {
                    let flow = Flow {
                        open: true,
                        ..input.clone()
                    };
                    self.variables.insert(name, flow);
                }
                self.list(&clause.0, input, nested);
                self.list(&clause.1.list, input, nested)
            }
            CompoundCommand::Coprocess(process) => self.command(&process.body, input, nested),
        }
    }

    fn simple(&mut self, simple: &SimpleCommand, input: &Flow, nested: usize) -> Flow {
        let mut run = Run {
            input: input.clone(),
            ..Run::default()
        };
        let mut assigned = Vec::new();
        let prefix = simple.prefix.iter().flat_map(|prefix| &prefix.0);
        for item in prefix {
            self.item(item, &mut run, &mut assigned, nested);
        }
        if let Some(word) = &simple.word_or_name {
            let alias = self.aliases.get(&word.value).cloned();
            match alias {
                Some(alias) => run
                    .words
                    .extend(alias.split_whitespace().map(Flow::literal)),
                None => {
                    let words = self.words(word, nested);
                    run.words.extend(words);
                }
            }
        }
        let mut after = Vec::new();
        for item in simple.suffix.iter().flat_map(|suffix| &suffix.0) {
            self.item(item, &mut run, &mut after, nested);
        }
        if run.words.is_empty() {
            // Assignments on their own stay.
            for (name, flow) in assigned {
                self.variables.insert(name, flow);
            }
            if run.writes.is_empty() && run.input == *input {
                return Flow::default();
            }
            run.words.push(Flow::literal("cat"));
        } else {
            run.environment = assigned;
        }
        self.learn(&run);
        let out = self.output(&run);
        self.runs.push(run.clone());
        self.inside(&run, nested);
        out
    }

    fn item(
        &mut self,
        item: &CommandPrefixOrSuffixItem,
        run: &mut Run,
        assigned: &mut Vec<(String, Flow)>,
        nested: usize,
    ) {
        match item {
            CommandPrefixOrSuffixItem::IoRedirect(redirect) => self.redirect(redirect, run, nested),
            CommandPrefixOrSuffixItem::Word(word) => {
                let words = self.words(word, nested);
                run.words.extend(words);
            }
            CommandPrefixOrSuffixItem::AssignmentWord(assignment, _) => {
                let value = match &assignment.value {
                    AssignmentValue::Scalar(word) => self.word(word, nested),
                    AssignmentValue::Array(words) => {
                        let mut all = Flow::default();
                        for (_, word) in words {
                            let word = self.word(word, nested);
                            all.add(&word);
                            all.text.push(' ');
                        }
                        all
                    }
                };
                let name = match &assignment.name {
                    AssignmentName::VariableName(name)
                    | AssignmentName::ArrayElementName(name, _) => name.clone(),
                };
                if !run.words.is_empty() {
                    // `export NAME=VALUE`, `dd of=…`: a word as well.
                    let mut flow = Flow::literal(format!("{name}="));
                    flow.add(&value);
                    run.words.push(flow);
                    let sets = matches!(
                        run.program().as_str(),
                        "export" | "declare" | "local" | "readonly" | "typeset" | "env"
                    );
                    if sets {
                        self.variables.insert(name, value);
                    }
                    return;
                }
                let mut value = value;
                if assignment.append
                    && let Some(before) = self.variables.get(&name)
                {
                    let mut both = before.clone();
                    both.add(&value);
                    value = both;
                }
                assigned.push((name, value));
            }
            CommandPrefixOrSuffixItem::ProcessSubstitution(_, shell) => {
                let flow = self.substituted(shell, nested);
                run.words.push(flow);
            }
        }
    }

    fn substituted(&mut self, shell: &SubshellCommand, nested: usize) -> Flow {
        let from = self.runs.len();
        let mut flow = self.list(&shell.list, &Flow::default(), nested + 1);
        self.runs
            .iter_mut()
            .skip(from)
            .for_each(|run| run.inner = true);
        flow.text.clear();
        flow.open = true;
        flow
    }

    fn redirects(&mut self, redirects: Option<&RedirectList>, run: &mut Run, nested: usize) {
        for redirect in redirects.iter().flat_map(|list| &list.0) {
            self.redirect(redirect, run, nested);
        }
    }

    fn redirect(&mut self, redirect: &IoRedirect, run: &mut Run, nested: usize) {
        match redirect {
            IoRedirect::File(_, kind, target) => match target {
                IoFileRedirectTarget::Filename(word) | IoFileRedirectTarget::Duplicate(word) => {
                    let flow = self.word(word, nested);
                    match kind {
                        IoFileRedirectKind::Read => {
                            run.input.files.insert(flow.text.clone());
                            run.input.open = true;
                        }
                        IoFileRedirectKind::ReadAndWrite => {
                            run.input.files.insert(flow.text.clone());
                            run.input.open = true;
                            run.writes.push(flow.text.clone());
                        }
                        _ => run.writes.push(flow.text.clone()),
                    }
                    run.input.files.extend(flow.files);
                }
                IoFileRedirectTarget::ProcessSubstitution(_, shell) => {
                    let flow = self.substituted(shell, nested);
                    run.input.add(&flow);
                }
                IoFileRedirectTarget::Fd(_) => {}
            },
            IoRedirect::HereDocument(_, document) => {
                let flow = if document.requires_expansion {
                    self.pieces_of(&document.doc.value, true, nested)
                } else {
                    Flow::literal(document.doc.value.clone())
                };
                run.input.add(&flow);
            }
            IoRedirect::HereString(_, word) => {
                let flow = self.word(word, nested);
                run.input.add(&flow);
            }
            IoRedirect::OutputAndError(word, _) => {
                let flow = self.word(word, nested);
                run.writes.push(flow.text);
            }
        }
    }

    /// A word, and its brace alternatives as words of their own.
    fn words(&mut self, word: &Word, nested: usize) -> Vec<Flow> {
        let flow = self.word(word, nested);
        // An unquoted variable or substitution is split at blanks.
        let raw = &word.value;
        let split = raw.starts_with('$') && flow.text.contains(char::is_whitespace);
        if split {
            let parts = flow.text.split_whitespace().map(|part| Flow {
                text: part.to_owned(),
                files: flow.files.clone(),
                open: flow.open,
            });
            return parts.collect();
        }
        if raw.contains('{') && raw.contains(',') && !raw.contains(['$', '\'', '"']) {
            return braces(&flow.text)
                .into_iter()
                .map(|text| Flow {
                    text,
                    ..flow.clone()
                })
                .collect();
        }
        vec![flow]
    }

    fn word(&mut self, word: &Word, nested: usize) -> Flow {
        self.pieces_of(&word.value, false, nested)
    }

    fn pieces_of(&mut self, text: &str, document: bool, nested: usize) -> Flow {
        if text.len() > BYTES_MAX || too_deep(text) {
            return Flow {
                open: true,
                ..Flow::literal(text)
            };
        }
        let parsed = catch_unwind(AssertUnwindSafe(|| {
            let options = ParserOptions::default();
            if document {
                brush_parser::word::parse_heredoc(text, &options)
            } else {
                brush_parser::word::parse(text, &options)
            }
        }));
        match parsed {
            Ok(Ok(pieces)) => self.pieces(&pieces, text, nested),
            _ => Flow {
                open: true,
                ..Flow::literal(text)
            },
        }
    }

    fn pieces(&mut self, pieces: &[WordPieceWithSource], raw: &str, nested: usize) -> Flow {
        let mut flow = Flow::default();
        for piece in pieces {
            match &piece.piece {
                WordPiece::Text(text) | WordPiece::SingleQuotedText(text) => {
                    flow.text.push_str(text);
                }
                WordPiece::AnsiCQuotedText(text) => flow.text.push_str(&ansi(text)),
                WordPiece::DoubleQuotedSequence(inner)
                | WordPiece::GettextDoubleQuotedSequence(inner) => {
                    let inner = self.pieces(inner, raw, nested);
                    flow.add(&inner);
                }
                WordPiece::TildeExpansion(_) => flow.text.push('~'),
                WordPiece::EscapeSequence(text) => {
                    let bare = text.strip_prefix('\\').unwrap_or(text);
                    if bare != "\n" {
                        flow.text.push_str(bare);
                    }
                }
                WordPiece::CommandSubstitution(text)
                | WordPiece::BackquotedCommandSubstitution(text) => {
                    let inner = self.substitution(text, nested);
                    flow.add(&inner);
                }
                WordPiece::ParameterExpansion(_) => {
                    let source = raw
                        .get(piece.start_index..piece.end_index)
                        .filter(|source| source.starts_with('$'))
                        .unwrap_or(raw);
                    let inner = self.parameter(source, nested);
                    flow.add(&inner);
                }
                WordPiece::ArithmeticExpression(_) => flow.open = true,
            }
        }
        flow
    }

    fn substitution(&mut self, text: &str, nested: usize) -> Flow {
        let mut inner = Shell {
            variables: self.variables.clone(),
            aliases: self.aliases.clone(),
            functions: self.functions.clone(),
            calling: self.calling.clone(),
            sourced: self.sourced.clone(),
            runs: Vec::new(),
        };
        let mut flow = Flow {
            open: true,
            ..Flow::default()
        };
        let parsed = inner.text(text, nested + 1);
        if !parsed {
            inner.runs = loose(text);
        }
        for run in &inner.runs {
            flow.files.extend(self.output(run).files);
        }
        // `$(echo TEXT)` is its text.
        if let [run] = &inner.runs[..] {
            match run.program().as_str() {
                "echo" | "printf" => {
                    let words: Vec<&str> = run
                        .arguments()
                        .iter()
                        .map(|word| word.text.as_str())
                        .collect();
                    let words = words
                        .iter()
                        .filter(|word| !word.starts_with('-') && !word.starts_with('%'));
                    flow.text = words.copied().collect::<Vec<_>>().join(" ");
                    flow.open = run.words.iter().any(|word| word.open);
                }
                _ => {}
            }
        }
        for mut run in inner.runs {
            run.inner = true;
            self.runs.push(run);
        }
        flow
    }

    /// `$NAME`, `${NAME…}`: what the variable holds, and what its default is.
    fn parameter(&mut self, source: &str, nested: usize) -> Flow {
        let bare = source.trim_start_matches(['$', '{', '!', '#']);
        let end = bare
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(bare.len());
        let (name, rest) = bare.split_at(end);
        let mut flow = match self.variables.get(name) {
            Some(flow) => flow.clone(),
            None => Flow {
                open: true,
                files: self.sourced.clone(),
                ..Flow::default()
            },
        };
        let default = rest
            .strip_suffix('}')
            .unwrap_or(rest)
            .trim_start_matches([':', '-', '=', '+', '?']);
        if default.contains(['$', '`']) && nested < NESTED_MAX {
            let inner = self.pieces_of(default, false, nested + 1);
            flow.add(&inner);
        } else if flow.text.is_empty() && rest.starts_with([':', '-', '=']) {
            flow.text.push_str(default);
        }
        flow
    }

    /// Definitions that later commands see.
    fn learn(&mut self, run: &Run) {
        match run.program().as_str() {
            "alias" => {
                for word in run.arguments() {
                    if let Some((name, value)) = word.text.split_once('=') {
                        self.aliases.insert(name.to_owned(), value.to_owned());
                    }
                }
            }
            "." | "source" => {
                self.sourced
                    .extend(run.arguments().iter().take(1).map(|word| word.text.clone()));
            }
            "read" | "mapfile" | "readarray" => {
                for word in run.arguments() {
                    if !word.text.starts_with('-') {
                        let flow = Flow {
                            open: true,
                            ..run.input.clone()
                        };
                        self.variables.insert(word.text.clone(), flow);
                    }
                }
            }
            _ => {}
        }
    }

    /// Commands inside a command: functions, `eval`, `sh -c`, a shell that reads its input.
    fn inside(&mut self, run: &Run, nested: usize) {
        if nested >= NESTED_MAX {
            return;
        }
        let program = run.program();
        if let Some(body) = self.functions.get(&program).cloned()
            && !self.calling.contains(&program)
        {
            self.calling.push(program.clone());
            for (index, word) in run.words.iter().enumerate() {
                self.variables.insert(index.to_string(), word.clone());
            }
            self.compound(&body, &run.input, nested + 1);
            self.calling.pop();
            return;
        }
        for text in crate::wrap::scripts(run) {
            if !self.text(&text, nested + 1) {
                self.runs.extend(loose(&text));
            }
        }
        for words in crate::wrap::unwrapped(run) {
            let inner = Run {
                words,
                ..run.clone()
            };
            self.runs.push(inner.clone());
            self.inside(&inner, nested + 1);
        }
    }

    /// What a command prints: the files that it reads, and its own text where it only repeats that.
    fn output(&self, run: &Run) -> Flow {
        let mut flow = Flow {
            open: true,
            ..run.input.clone()
        };
        let program = run.program();
        let speaks = matches!(program.as_str(), "echo" | "printf");
        for word in run.arguments() {
            flow.files.extend(word.files.iter().cloned());
            if speaks {
                flow.text.push_str(&word.text);
                flow.text.push(' ');
            } else {
                flow.files.extend(crate::secrets::paths_in(&word.text));
            }
        }
        if matches!(
            program.as_str(),
            "env" | "printenv" | "set" | "export" | "declare"
        ) {
            flow.files.extend(self.sourced.iter().cloned());
        }
        flow
    }
}

/// Names that a loop's condition reads into.
fn reads(list: &CompoundList) -> Vec<String> {
    let mut names = Vec::new();
    for item in &list.0 {
        for command in &item.0.first.seq {
            if let Command::Simple(simple) = command
                && simple
                    .word_or_name
                    .as_ref()
                    .is_some_and(|word| word.value == "read")
            {
                for item in simple.suffix.iter().flat_map(|suffix| &suffix.0) {
                    if let CommandPrefixOrSuffixItem::Word(word) = item
                        && !word.value.starts_with('-')
                    {
                        names.push(word.value.clone());
                    }
                }
            }
        }
    }
    names
}

/// `a{b,c}d` as `abd` and `acd`; one pair of braces.
fn braces(text: &str) -> Vec<String> {
    let Some((before, rest)) = text.split_once('{') else {
        return vec![text.to_owned()];
    };
    let Some((inner, after)) = rest.split_once('}') else {
        return vec![text.to_owned()];
    };
    inner
        .split(',')
        .map(|part| format!("{before}{part}{after}"))
        .collect()
}

/// `$'…'` with its escapes undone.
fn ansi(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('x') => out.push(digits(&mut chars, 2, 16)),
            Some('u') => out.push(digits(&mut chars, 4, 16)),
            Some(first @ '0'..='7') => {
                let rest = digits(&mut chars, 2, 8);
                let rest = if rest == '\u{fffd}' {
                    0
                } else {
                    u32::from(rest)
                };
                let first = first.to_digit(8).unwrap_or(0);
                // One to three digits; the common form has three.
                out.push(char::from_u32(first * 64 + rest).unwrap_or('\u{fffd}'));
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

fn digits(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, most: usize, radix: u32) -> char {
    let mut value = 0u32;
    let mut any = false;
    for _ in 0..most {
        let Some(digit) = chars.peek().and_then(|c| c.to_digit(radix)) else {
            break;
        };
        chars.next();
        any = true;
        value = value * radix + digit;
    }
    if any {
        char::from_u32(value).unwrap_or('\u{fffd}')
    } else {
        '\u{fffd}'
    }
}
