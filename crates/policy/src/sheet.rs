//! What a policy file says, table by table, before it is put together with the default and bound
//! to a workspace.

use kernel::policy::{Speculation, ToolRule};
use kernel::provenance::Forms;
use kernel::{Kind, KindSet, Level};

use crate::amount::{DURATIONS, SIZES, quantity};
use crate::connection::{self, NetLimits};
use crate::loaded::Files;
use crate::party::{self, CredentialEntry, PartyEntry};
use crate::read::{Document, Item, Table, Word};
use crate::tool::{self, TypedEntry};

/// One file's content.
#[derive(Debug, Default)]
pub(crate) struct Sheet {
    pub(crate) task: Option<KindSet>,
    pub(crate) workspace: Option<KindSet>,
    pub(crate) workspace_except: Vec<Word>,
    pub(crate) sources: Vec<SourceEntry>,
    pub(crate) sensitive: Vec<SensitiveEntry>,
    pub(crate) executes: Vec<ExecutesEntry>,
    pub(crate) parties: Vec<PartyEntry>,
    pub(crate) presets: Vec<PartyEntry>,
    pub(crate) credentials: Vec<CredentialEntry>,
    pub(crate) roots: Vec<Word>,
    pub(crate) rules: Vec<RuleEntry>,
    pub(crate) rule_files: Vec<Word>,
    pub(crate) agent: AgentEntry,
    pub(crate) state_executes: Vec<Word>,
    pub(crate) state_except: Vec<Word>,
    pub(crate) known: Vec<KnownEntry>,
    pub(crate) speculation: Option<Speculation>,
    pub(crate) holds_max: Option<u64>,
    pub(crate) bytes_max: Option<u64>,
    pub(crate) age_s_max: Option<u64>,
    pub(crate) net_limits: NetLimits,
    pub(crate) files: Files,
    pub(crate) oracle: Option<Word>,
    pub(crate) deadline_s: Option<u64>,
    pub(crate) defaults: Defaults,
    pub(crate) tools: Vec<ToolRule>,
    pub(crate) typed: Vec<TypedEntry>,
    pub(crate) derive: Option<Forms>,
    pub(crate) values: Vec<(Kind, String)>,
}

/// Who or what a table speaks of.
#[derive(Debug)]
pub(crate) enum Of {
    Path(Word),
    Party(Word),
    Tool(Word),
}

#[derive(Debug)]
pub(crate) struct SourceEntry {
    pub(crate) of: Vec<Of>,
    pub(crate) except: Vec<Word>,
    pub(crate) trusted: KindSet,
}

#[derive(Debug)]
pub(crate) struct SensitiveEntry {
    pub(crate) of: Vec<Of>,
    pub(crate) except: Vec<Word>,
    /// Fields of a tool's answer; empty for all of it.
    pub(crate) fields: Vec<Word>,
    pub(crate) level: Level,
}

#[derive(Debug)]
pub(crate) struct ExecutesEntry {
    pub(crate) group: Option<String>,
    pub(crate) place: String,
    pub(crate) paths: Vec<Word>,
    pub(crate) except: Vec<Word>,
    /// False for paths that the table is not to speak of.
    pub(crate) runs: bool,
}

#[derive(Debug)]
pub(crate) struct RuleEntry {
    pub(crate) name: Word,
    pub(crate) says: Option<String>,
    pub(crate) cedar: Word,
}

#[derive(Debug, Default)]
pub(crate) struct AgentEntry {
    pub(crate) state: Option<Vec<Word>>,
    pub(crate) seed: Option<Vec<Word>>,
    pub(crate) env: Vec<Word>,
    pub(crate) expose: Vec<Word>,
    pub(crate) nested_namespaces: Option<bool>,
}

#[derive(Debug)]
pub(crate) struct KnownEntry {
    pub(crate) name: String,
    pub(crate) state: Vec<Word>,
    pub(crate) seed: Vec<Word>,
}

/// Which parts of the default stay in force.
#[derive(Debug)]
pub(crate) struct Defaults {
    pub(crate) sensitive: bool,
    pub(crate) parties: bool,
    /// Groups of the executes table; `None` for all.
    pub(crate) executes: Option<Vec<Word>>,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            sensitive: true,
            parties: true,
            executes: None,
        }
    }
}

impl Sheet {
    /// Reads a document; what is wrong is noted there and left out here. `shipped` is true for
    /// the built-in default, which may say what a policy file may not.
    pub(crate) fn read(document: &Document<'_>, shipped: bool) -> Self {
        let parsed = document.parse();
        if document.has_findings() {
            // What follows a mistake of grammar is often not what was meant.
            return Self::default();
        }
        let mut top = Table::new("", parsed.get_ref(), parsed.span());
        let mut sheet = Self::default();
        if let Some(mut table) = top
            .take("task")
            .and_then(|item| document.table(item, "[task]"))
        {
            sheet.task = table.take("trusted").and_then(|item| kinds(document, item));
            table.finish(document, &[]);
        }
        if let Some(mut table) = top
            .take("workspace")
            .and_then(|item| document.table(item, "[workspace]"))
        {
            sheet.workspace = table.take("trusted").and_then(|item| kinds(document, item));
            sheet.workspace_except = patterns(document, table.take("except"));
            table.finish(document, &[("exclude", "write `except`")]);
        }
        for table in all(document, &mut top, "source", "[[source]]") {
            sheet.sources.extend(source(document, table));
        }
        for table in all(document, &mut top, "sensitive", "[[sensitive]]") {
            sheet.sensitive.extend(sensitive(document, table));
        }
        for table in all(document, &mut top, "executes", "[[executes]]") {
            sheet.executes.extend(executes(document, table));
        }
        for table in all(document, &mut top, "party", "[[party]]") {
            sheet.parties.extend(party::party(document, table));
        }
        for table in all(document, &mut top, "provider", "[[provider]]") {
            sheet.parties.extend(party::provider(document, table));
        }
        for table in all(document, &mut top, "credential", "[[credential]]") {
            sheet.credentials.extend(party::credential(document, table));
        }
        for table in all(document, &mut top, "tool", "[[tool]]") {
            sheet.tools.extend(tool::tool(document, table));
        }
        for table in all(document, &mut top, "typed", "[[typed]]") {
            sheet.typed.extend(tool::typed(document, table));
        }
        tool::check(document, &sheet);
        sheet.values = top
            .take("values")
            .and_then(|item| document.table(item, "[values]"))
            .map(|table| tool::values(document, table))
            .unwrap_or_default();
        sheet.derive = top
            .take("derive")
            .and_then(|item| document.table(item, "[derive]"))
            .map(|table| tool::derive(document, table));
        for table in all(document, &mut top, "rule", "[[rule]]") {
            sheet.rules.extend(rule(document, table));
        }
        if let Some(item) = top.take("rules") {
            sheet.rule_files = document.strings(item, "\"rules.cedar\"");
        }
        if let Some(mut table) = top
            .take("net")
            .and_then(|item| document.table(item, "[net]"))
        {
            if let Some(item) = table.take("roots") {
                sheet.roots = document.strings(item, "[\"ca.pem\"]");
            }
            table.finish(document, &[]);
        }
        if let Some(table) = top
            .take("agent")
            .and_then(|item| document.table(item, "[agent]"))
        {
            sheet.agent = agent(document, table);
        }
        if let Some(mut table) = top
            .take("speculation")
            .and_then(|item| document.table(item, "[speculation]"))
        {
            sheet.speculation = table.take("mode").and_then(|item| {
                let word = document.string(item, "\"conservative\"")?;
                document.one_of(
                    &word,
                    "mode",
                    &["conservative", "matched"],
                    |word| match word {
                        "conservative" => Some(Speculation::Conservative),
                        "matched" => Some(Speculation::Matched),
                        _ => None,
                    },
                )
            });
            table.finish(document, &[]);
        }
        if let Some(table) = top
            .take("limits")
            .and_then(|item| document.table(item, "[limits]"))
        {
            sheet.limits(document, table);
        }
        if let Some(mut table) = top
            .take("files")
            .and_then(|item| document.table(item, "[files]"))
        {
            sheet.files.first_reads = table.take("reads").and_then(|item| {
                let word = document.string(item, "\"open\"")?;
                document.one_of(&word, "reads", &["open", "first"], |word| match word {
                    "open" => Some(false),
                    "first" => Some(true),
                    _ => None,
                })
            });
            sheet.files.durable = table
                .take("durable")
                .and_then(|item| document.boolean(item));
            table.finish(document, &[]);
        }
        if let Some(mut table) = top
            .take("oracle")
            .and_then(|item| document.table(item, "[oracle]"))
        {
            sheet.oracle = table
                .take("default")
                .and_then(|item| document.string(item, "\"ask\""));
            sheet.deadline_s = table
                .take("deadline")
                .and_then(|item| quantity(document, item, &DURATIONS, "\"60s\""));
            table.finish(document, &[("timeout", "write `deadline`")]);
        }
        if let Some(table) = top
            .take("defaults")
            .and_then(|item| document.table(item, "[defaults]"))
        {
            sheet.defaults = defaults(document, table);
        }
        if shipped {
            sheet.shipped(document, &mut top);
        }
        top.finish(
            document,
            &[
                ("sources", "write `[[source]]` for each of them"),
                ("parties", "write `[[party]]` for each of them"),
                ("tools", "write `[[tool]]` for each of them"),
                ("providers", "write `[[provider]]` for each of them"),
                ("credentials", "write `[[credential]]` for each of them"),
                ("execute", "write `[[executes]]`"),
                (
                    "permit",
                    "rules only refuse; name a `[[party]]` with `allow` to let requests out",
                ),
            ],
        );
        sheet
    }

    fn limits<'a>(&mut self, document: &Document<'a>, mut table: Table<'a>) {
        self.holds_max = table
            .take("holds")
            .and_then(|item| document.number(item, 1..1_000_001, "10000"));
        self.bytes_max = table
            .take("bytes")
            .and_then(|item| quantity(document, item, &SIZES, "\"4GiB\""));
        self.age_s_max = table
            .take("age")
            .and_then(|item| quantity(document, item, &DURATIONS, "\"7d\""));
        self.net_limits = connection::limits(document, &mut table);
        table.finish(document, &[]);
    }

    fn shipped<'a>(&mut self, document: &Document<'a>, top: &mut Table<'a>) {
        for table in all(document, top, "preset", "[[preset]]") {
            self.presets.extend(party::party(document, table));
        }
        if let Some(mut table) = top
            .take("state")
            .and_then(|item| document.table(item, "[state]"))
        {
            self.state_executes = patterns(document, table.take("executes"));
            self.state_except = patterns(document, table.take("except"));
            table.finish(document, &[]);
        }
        for mut table in all(document, top, "known", "[[known]]") {
            let name = table
                .take("name")
                .and_then(|item| document.string(item, "\"codex\""));
            let mut list = |key| {
                table
                    .take(key)
                    .map(|item| document.strings(item, "[\"~/.codex\"]"))
            };
            let (state, seed) = (
                list("state").unwrap_or_default(),
                list("seed").unwrap_or_default(),
            );
            table.finish(document, &[]);
            self.known.extend(name.map(|name| KnownEntry {
                name: name.text,
                state,
                seed,
            }));
        }
    }
}

fn all<'a>(
    document: &Document<'a>,
    top: &mut Table<'a>,
    key: &'a str,
    name: &'a str,
) -> Vec<Table<'a>> {
    top.take(key)
        .map(|item| document.tables(item, name))
        .unwrap_or_default()
}

/// `true`, `false` or a list of kinds.
pub(crate) fn kinds(document: &Document<'_>, item: Item<'_>) -> Option<KindSet> {
    if item.is_bool() {
        return document
            .boolean(item)
            .map(|all| if all { KindSet::ALL } else { KindSet::NONE });
    }
    if !item.is_string_or_list() {
        document.wrong_help(
            item.span(),
            "`trusted` has to be `true`, `false` or a list of kinds",
            "not a list",
            "write `trusted = [\"path\", \"package\"]`",
        );
        return None;
    }
    let names = Kind::ALL.map(Kind::name);
    Some(
        document
            .strings(item, "[\"path\"]")
            .iter()
            .fold(KindSet::NONE, |set, word| {
                match document.one_of(word, "kind of value", &names, Kind::parse) {
                    Some(kind) => set.union(KindSet::of(&[kind])),
                    None => set,
                }
            }),
    )
}

fn level(document: &Document<'_>, item: Item<'_>) -> Option<Level> {
    let word = document.string(item, "\"confidential\"")?;
    document.one_of(&word, "level", &Level::ALL.map(Level::name), Level::parse)
}

pub(crate) fn clearance(document: &Document<'_>, item: Option<Item<'_>>) -> Option<Level> {
    item.and_then(|item| level(document, item))
}

/// Path patterns, checked one by one.
pub(crate) fn patterns(document: &Document<'_>, item: Option<Item<'_>>) -> Vec<Word> {
    let Some(item) = item else { return Vec::new() };
    document
        .strings(item, "[\"docs/**\"]")
        .into_iter()
        .filter(|word| pattern_is_sound(document, word))
        .collect()
}

fn pattern_is_sound(document: &Document<'_>, word: &Word) -> bool {
    let text = word.text.as_str();
    let wrong = if text.contains(" !") {
        Some((
            "a pattern cannot hold ` !`",
            "write exceptions into `except = [...]`",
        ))
    } else if text.split('/').any(|part| part == "..") {
        Some((
            "a pattern cannot leave its tree with `..`",
            "write the path below the workspace",
        ))
    } else if text
        .split('/')
        .any(|part| part.contains("**") && part != "**")
    {
        Some((
            "`**` stands for whole components",
            "write `**/name` or `dir/**`, or one `*`",
        ))
    } else if text.starts_with("~") && !text.starts_with("~/") {
        Some((
            "`~` stands for your home only before a slash",
            "write `~/.codex/...`",
        ))
    } else if text.contains(['{', '[']) {
        Some((
            "`{` and `[` have no meaning in a pattern",
            "write one pattern for each case, or `?` for one character",
        ))
    } else if text.chars().any(char::is_control) || text.starts_with("./") {
        Some((
            "this is not a path pattern",
            "write it as it reads below the workspace: `docs/**`",
        ))
    } else {
        None
    };
    if let Some((what, help)) = wrong {
        document.wrong_help(word.span.clone(), what, "in this pattern", help);
    }
    wrong.is_none()
}

/// Exactly one of `path`, `party` and `tool`.
fn of<'a>(document: &Document<'a>, table: &mut Table<'a>, name: &str) -> Vec<Of> {
    let path = table.take("path");
    let party = table.take("party");
    let tool = table.take("tool");
    if [path, party, tool].iter().flatten().count() != 1 {
        table.lacks(
            format!("`{name}` has to name exactly one of `path`, `party` and `tool`"),
            "this table",
            "write `path = \"docs/**\"`, `party = \"docs.example.org\"` or `tool = \"search\"`",
        );
        return Vec::new();
    }
    let mut of: Vec<Of> = patterns(document, path).into_iter().map(Of::Path).collect();
    if let Some(item) = party {
        of.extend(party::hosts(document, item).into_iter().map(Of::Party));
    }
    if let Some(item) = tool {
        of.extend(
            document
                .strings(item, "\"search\"")
                .into_iter()
                .map(Of::Tool),
        );
    }
    of
}

fn source<'a>(document: &Document<'a>, mut table: Table<'a>) -> Option<SourceEntry> {
    let of = of(document, &mut table, "[[source]]");
    let except = patterns(document, table.take("except"));
    let trusted = table.take("trusted");
    if trusted.is_none() {
        table.lacks(
            "`[[source]]` has to say what it is trusted for",
            "no `trusted` here",
            "write `trusted = [\"host\"]`; kinds are host, url, path, email, account, command, package, \
             number, date, text",
        );
    }
    let trusted = trusted.and_then(|item| kinds(document, item));
    table.finish(
        document,
        &[
            ("host", "write `party`"),
            ("level", "a level belongs into `[[sensitive]]`"),
        ],
    );
    Some(SourceEntry {
        of,
        except,
        trusted: trusted?,
    })
}

fn sensitive<'a>(document: &Document<'a>, mut table: Table<'a>) -> Option<SensitiveEntry> {
    let of = of(document, &mut table, "[[sensitive]]");
    let except = patterns(document, table.take("except"));
    let said = table.take("level");
    let level = match said {
        Some(item) => level(document, item)?,
        None => Level::Confidential,
    };
    let field = table.take("field");
    if field.is_some() && !of.iter().all(|of| matches!(of, Of::Tool(_))) {
        table.lacks(
            "`field` speaks of the answers of a tool",
            "no `tool` here",
            "write `tool = \"get_profile\"` beside it",
        );
    }
    let fields = field
        .map(|item| document.strings(item, "[\"passport\"]"))
        .unwrap_or_default();
    table.finish(
        document,
        &[("host", "write `party`"), ("fields", "write `field`")],
    );
    Some(SensitiveEntry {
        of,
        except,
        fields,
        level,
    })
}

fn executes<'a>(document: &Document<'a>, mut table: Table<'a>) -> Option<ExecutesEntry> {
    let group = table
        .take("group")
        .and_then(|item| document.string(item, "\"build\""))
        .map(|word| word.text);
    let place = table
        .take("place")
        .and_then(|item| document.string(item, "\"deploy script\""));
    let path = table.take("path");
    if path.is_none() {
        table.lacks(
            "`[[executes]]` has to say where",
            "no `path` here",
            "write `path = \"scripts/deploy/**\"`",
        );
    }
    let paths = patterns(document, path);
    let except = patterns(document, table.take("except"));
    let runs = table
        .take("runs")
        .and_then(|item| document.boolean(item))
        .unwrap_or(true);
    table.finish(document, &[("name", "write `place`")]);
    let place = place.map_or_else(|| "named by the policy".to_string(), |word| word.text);
    Some(ExecutesEntry {
        group,
        place,
        paths,
        except,
        runs,
    })
}

fn rule<'a>(document: &Document<'a>, mut table: Table<'a>) -> Option<RuleEntry> {
    let name = table.take("name");
    let says = table
        .take("says")
        .and_then(|item| document.string(item, "\"uploads go through the release team\""))
        .map(|word| word.text);
    let cedar = table.take("cedar");
    if name.is_none() || cedar.is_none() {
        table.lacks(
            "`[[rule]]` has to have `name` and `cedar`",
            "this table",
            "write `cedar = '''forbid(principal, action, resource);'''`",
        );
    }
    table.finish(
        document,
        &[
            ("permit", "rules only refuse"),
            ("forbid", "write `cedar = '''forbid(...);'''`"),
        ],
    );
    let name = name.and_then(|item| document.string(item, "\"no-uploads\""));
    let example = "'''forbid(principal, action, resource);'''";
    let cedar = cedar.and_then(|item| document.string(item, example));
    Some(RuleEntry {
        name: name?,
        says,
        cedar: cedar?,
    })
}

fn agent<'a>(document: &Document<'a>, mut table: Table<'a>) -> AgentEntry {
    let mut list = |key, example| table.take(key).map(|item| document.strings(item, example));
    let state = list("state", "[\"~/.codex\"]");
    let seed = list("seed", "[\"~/.gitconfig\"]");
    let env = list("env", "[\"CARGO_TERM_COLOR\"]").unwrap_or_default();
    let expose = list("expose", "[\"/opt/tools\"]").unwrap_or_default();
    let nested_namespaces = table
        .take("nested_namespaces")
        .and_then(|item| document.boolean(item));
    table.finish(
        document,
        &[
            ("read_only", "write `expose`"),
            ("readonly", "write `expose`"),
            ("trees", "write `state`"),
            ("environment", "write `env`"),
        ],
    );
    for word in &env {
        let sound = word
            .text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '*');
        if !sound {
            document.wrong_help(
                word.span.clone(),
                format!("`{}` is not the name of a variable", word.text),
                "not a name",
                "write the name only, its value comes from your environment; a `*` at the end stands for any ending",
            );
        }
    }
    AgentEntry {
        state,
        seed,
        env,
        expose,
        nested_namespaces,
    }
}

fn defaults<'a>(document: &Document<'a>, mut table: Table<'a>) -> Defaults {
    let mut flag = |key| {
        table
            .take(key)
            .and_then(|item| document.boolean(item))
            .unwrap_or(true)
    };
    let (sensitive, parties) = (flag("sensitive"), flag("parties"));
    let executes = table.take("executes").and_then(|item| {
        if item.is_bool() {
            document
                .boolean(item)
                .and_then(|all| if all { None } else { Some(Vec::new()) })
        } else {
            Some(document.strings(item, "[\"git\", \"ci\"]"))
        }
    });
    table.finish(document, &[]);
    Defaults {
        sensitive,
        parties,
        executes,
    }
}
