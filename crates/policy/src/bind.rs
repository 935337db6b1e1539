//! Puts a file's sheet and the built-in default together, binds them to a home and the agent's
//! state trees, and writes the kernel's policy.

use std::path::{Path, PathBuf};

use kernel::KindSet;
use kernel::policy::{
    ExecutesRule, FieldPattern, Glob, HostPattern, Limits, NamePattern, Policy, SensitiveFields,
    SensitiveRule, SourcePattern, SourceRule,
};

use crate::error::listed;
use crate::loaded::{AgentConfig, Credential, PartyConnection, StateTree, UpstreamRule};
use crate::read::{Document, Word};
use crate::sheet::{Of, Sheet};

/// Parties, where they are really reached, and the credentials they get.
mod parties;

use parties::Parties;
pub(crate) use parties::{IdentityEntry, RootEntry};

/// Tree name of the workspace.
pub(crate) const WORKSPACE: &str = "workspace";

/// What came of binding.
pub(crate) struct Bound {
    pub(crate) policy: Policy,
    pub(crate) upstreams: Vec<UpstreamRule>,
    pub(crate) roots: Vec<RootEntry>,
    pub(crate) identities: Vec<IdentityEntry>,
    pub(crate) connections: Vec<PartyConnection>,
    pub(crate) credentials: Vec<Credential>,
    pub(crate) agent: AgentConfig,
}

/// Binds sheets. `file` and `shipped` are the documents they were read from; mistakes are noted
/// there. `present` are the known state directories that the home has.
pub(crate) struct Binder<'a> {
    pub(crate) file: &'a Document<'a>,
    pub(crate) sheet: &'a Sheet,
    pub(crate) default: &'a Sheet,
    pub(crate) home: &'a Path,
    pub(crate) present: &'a [String],
    pub(crate) trees: Vec<StateTree>,
}

impl Binder<'_> {
    pub(crate) fn bind(mut self) -> Bound {
        self.trees = self.state();
        let Parties {
            parties,
            upstreams,
            roots,
            identities,
            connections,
        } = self.parties();
        let policy = Policy {
            epoch: kernel::Digest::default(),
            sources: self.sources(),
            sensitive: self.sensitive(),
            parties,
            executes: self.executes(),
            speculation: self.sheet.speculation.unwrap_or_default(),
            limits: self.limits(),
            tools: self.sheet.tools.clone(),
            typed: self
                .sheet
                .typed
                .iter()
                .flat_map(|entry| entry.rules.iter().cloned())
                .collect(),
            sensitive_fields: self.sensitive_fields(),
            values: self.sheet.values.clone(),
            derive: self.sheet.derive.unwrap_or_default(),
            // A session's own choice, never a file's.
            unbound: None,
        };
        Bound {
            policy,
            upstreams,
            roots,
            identities,
            connections,
            credentials: self.credentials(),
            agent: self.agent(),
        }
    }

    fn limits(&self) -> Limits {
        let default = Limits::default();
        Limits {
            holds_max: self.sheet.holds_max.unwrap_or(default.holds_max),
            bytes_max: self.sheet.bytes_max.unwrap_or(default.bytes_max),
            age_s_max: self.sheet.age_s_max.unwrap_or(default.age_s_max),
        }
    }

    // Trees and the agent.

    fn state(&self) -> Vec<StateTree> {
        let mut trees = Vec::new();
        match &self.sheet.agent.state {
            Some(words) => {
                for word in words {
                    if let Some(path) = self.home_path(word, "state") {
                        self.add_tree(&mut trees, word, &path);
                    }
                }
            }
            None => {
                for known in &self.default.known {
                    for word in known
                        .state
                        .iter()
                        .filter(|word| self.present.contains(&word.text))
                    {
                        if let Some(path) = self.home_path(word, "state") {
                            self.add_tree(&mut trees, word, &path);
                        }
                    }
                }
            }
        }
        trees
    }

    fn add_tree(&self, trees: &mut Vec<StateTree>, word: &Word, path: &Path) {
        if path == self.home {
            self.file.wrong_help(
                word.span.clone(),
                "the whole home cannot be a state tree",
                "the home itself",
                "name the directories that the agent keeps its state in: `~/.codex`",
            );
            return;
        }
        let overlaps =
            |tree: &&StateTree| tree.path.starts_with(path) || path.starts_with(&tree.path);
        if let Some(other) = trees.iter().find(overlaps) {
            self.file.wrong_help(
                word.span.clone(),
                format!("`{}` and `{}` overlap", word.text, other.path.display()),
                "one lies in the other",
                "name only the outer one",
            );
            return;
        }
        trees.push(StateTree {
            name: tree_name(path, self.home),
            path: path.to_path_buf(),
            agent: self
                .default
                .known
                .iter()
                .find(|known| {
                    known
                        .state
                        .iter()
                        .any(|state| expand(&state.text, self.home) == path)
                })
                .map(|known| known.name.clone()),
        });
    }

    fn agent(&self) -> AgentConfig {
        let mine = &self.sheet.agent;
        let seeds: Vec<&Word> = match &mine.seed {
            Some(words) => words.iter().collect(),
            None => {
                let known = self.default.known.iter().flat_map(|known| &known.seed);
                self.default
                    .agent
                    .seed
                    .iter()
                    .flatten()
                    .chain(known)
                    .collect()
            }
        };
        let paths = |words: &[Word], key| -> Vec<PathBuf> {
            words
                .iter()
                .filter_map(|word| self.home_path(word, key))
                .collect()
        };
        AgentConfig {
            state: self.trees.clone(),
            state_named: mine.state.is_some(),
            seed: seeds
                .into_iter()
                .filter_map(|word| self.home_path(word, "seed"))
                .collect(),
            seed_named: mine.seed.is_some(),
            env: mine.env.iter().map(|word| word.text.clone()).collect(),
            expose: paths(&mine.expose, "expose"),
            nested_namespaces: mine.nested_namespaces.unwrap_or(true),
        }
    }

    /// An absolute path, or one below the home.
    fn home_path(&self, word: &Word, key: &str) -> Option<PathBuf> {
        let path = expand(&word.text, self.home);
        let clean = path.components().all(|part| {
            matches!(
                part,
                std::path::Component::RootDir | std::path::Component::Normal(_)
            )
        });
        if path.is_absolute() && clean && !word.text.contains('*') {
            return Some(path.components().collect());
        }
        self.file.wrong_help(
            word.span.clone(),
            format!("`{}` is not a place that `{key}` can name", word.text),
            "here",
            "write `~/...` or a path from `/`, without `..` and `*`",
        );
        None
    }

    // Patterns.

    /// Where a path pattern points: a tree and a pattern below it.
    fn locate(&self, word: &Word, elsewhere: &str, shipped: bool) -> Vec<(String, String)> {
        let Some(below_home) = word.text.strip_prefix("~/") else {
            return vec![(elsewhere.to_string(), word.text.clone())];
        };
        let mut places = Vec::new();
        for tree in &self.trees {
            let Ok(root) = tree.path.strip_prefix(self.home) else {
                continue;
            };
            let root = root.to_string_lossy();
            if below_home == root || below_home.trim_end_matches("/**") == root {
                places.push((tree.name.clone(), "**".to_string()));
            } else if let Some(rest) = below_home.strip_prefix(&format!("{root}/")) {
                // A leading slash binds a single name to the tree's root.
                places.push((tree.name.clone(), format!("/{rest}")));
            } else if Glob(format!("/{below_home}")).matches(&root) {
                places.push((tree.name.clone(), "**".to_string()));
            }
        }
        if places.is_empty() && !shipped {
            self.file.wrong_help(
                word.span.clone(),
                format!("`{}` is not in any tree that the agent sees", word.text),
                "outside of all trees",
                match self.trees.as_slice() {
                    [] => "name its directory in `[agent] state`, or leave this out".to_string(),
                    trees => format!(
                        "the state trees are {}; name its directory in `[agent] state`, or leave this out",
                        listed(trees.iter().map(|tree| tree.path.to_str().unwrap_or("?")))
                    ),
                },
            );
        }
        places
    }

    fn sources(&self) -> Vec<SourceRule> {
        let task = self
            .sheet
            .task
            .or(self.default.task)
            .unwrap_or(KindSet::NONE);
        let workspace = self
            .sheet
            .workspace
            .or(self.default.workspace)
            .unwrap_or(KindSet::NONE);
        let mut rules = vec![
            SourceRule {
                of: SourcePattern::Task,
                trusted: task,
            },
            SourceRule {
                of: SourcePattern::Location {
                    tree: WORKSPACE.to_string(),
                    path: glob("**", &self.sheet.workspace_except),
                },
                trusted: workspace,
            },
        ];
        // An agent's own records are its business; what runs later is held all the same.
        for tree in &self.trees {
            rules.push(SourceRule {
                of: SourcePattern::Location {
                    tree: tree.name.clone(),
                    path: Glob("**".to_string()),
                },
                trusted: KindSet::of(&[kernel::Kind::Path]),
            });
        }
        for entry in &self.sheet.sources {
            for of in &entry.of {
                for of in self.source_patterns(of, WORKSPACE, &entry.except, false) {
                    rules.push(SourceRule {
                        of,
                        trusted: entry.trusted,
                    });
                }
            }
        }
        rules
    }

    fn source_patterns(
        &self,
        of: &Of,
        elsewhere: &str,
        except: &[Word],
        shipped: bool,
    ) -> Vec<SourcePattern> {
        match of {
            Of::Party(host) => vec![SourcePattern::Party(HostPattern(host.text.clone()))],
            Of::Tool(name) => vec![SourcePattern::Tool(NamePattern(name.text.clone()))],
            Of::Path(word) => self
                .locate(word, elsewhere, shipped)
                .into_iter()
                .map(|(tree, path)| SourcePattern::Location {
                    tree,
                    path: glob(&path, except),
                })
                .collect(),
        }
    }

    fn sensitive(&self) -> Vec<SensitiveRule> {
        let shipped = self.default.sensitive.iter().map(|entry| (entry, true));
        let mine = self.sheet.sensitive.iter().map(|entry| (entry, false));
        let mut rules = Vec::new();
        for (entry, shipped) in shipped
            .filter(|_| self.sheet.defaults.sensitive)
            .chain(mine)
        {
            for of in entry.of.iter().filter(|_| entry.fields.is_empty()) {
                for of in self.source_patterns(of, "*", &entry.except, shipped) {
                    rules.push(SensitiveRule {
                        of,
                        level: entry.level,
                    });
                }
            }
        }
        rules
    }

    fn sensitive_fields(&self) -> Vec<SensitiveFields> {
        let entries = self.sheet.sensitive.iter();
        entries
            .filter(|entry| !entry.fields.is_empty())
            .flat_map(|entry| {
                entry.of.iter().flat_map(|of| {
                    self.source_patterns(of, "*", &entry.except, false)
                        .into_iter()
                        .map(|of| SensitiveFields {
                            of,
                            fields: entry
                                .fields
                                .iter()
                                .map(|word| FieldPattern(word.text.clone()))
                                .collect(),
                            level: entry.level,
                        })
                })
            })
            .collect()
    }

    fn executes(&self) -> Vec<ExecutesRule> {
        let groups = self.groups();
        // `runs = false` takes paths out of everything that comes from the default.
        let spared: Vec<Word> = self
            .sheet
            .executes
            .iter()
            .filter(|entry| !entry.runs)
            .flat_map(|entry| entry.paths.iter().cloned())
            .collect();
        let mut rules = Vec::new();
        for entry in self.sheet.executes.iter().filter(|entry| entry.runs) {
            for word in &entry.paths {
                for (tree, path) in self.locate(word, "", false) {
                    let path = if tree.is_empty() {
                        path
                    } else {
                        in_tree(&tree, &path)
                    };
                    rules.push(ExecutesRule {
                        path: glob(&path, &entry.except),
                        place: entry.place.clone(),
                    });
                }
            }
        }
        let in_force = |group: &Option<String>| match (&groups, group) {
            (Some(groups), Some(group)) => groups.contains(group),
            _ => true,
        };
        for entry in self
            .default
            .executes
            .iter()
            .filter(|entry| in_force(&entry.group))
        {
            let except: Vec<Word> = entry.except.iter().chain(&spared).cloned().collect();
            for word in &entry.paths {
                rules.push(ExecutesRule {
                    path: glob(&word.text, &except),
                    place: entry.place.clone(),
                });
            }
        }
        for tree in &self.trees {
            let named: Vec<Word> = self
                .default
                .state_except
                .iter()
                .map(|word| in_tree_word(&tree.name, word))
                .collect();
            let except: Vec<Word> = named
                .into_iter()
                .chain(self.spared_in(tree, &spared))
                .collect();
            for word in &self.default.state_executes {
                rules.push(ExecutesRule {
                    path: glob(&in_tree(&tree.name, &word.text), &except),
                    place: "agent configuration".to_string(),
                });
            }
        }
        rules
    }

    fn spared_in(&self, tree: &StateTree, spared: &[Word]) -> Vec<Word> {
        spared
            .iter()
            .filter(|word| word.text.starts_with("~/"))
            .flat_map(|word| {
                self.locate(word, "", false)
                    .into_iter()
                    .filter(|(name, _)| *name == tree.name)
                    .map(|(name, path)| Word {
                        text: in_tree(&name, &path),
                        span: word.span.clone(),
                    })
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    fn groups(&self) -> Option<Vec<String>> {
        let mut known: Vec<&str> = self
            .default
            .executes
            .iter()
            .filter_map(|entry| entry.group.as_deref())
            .collect();
        known.sort_unstable();
        known.dedup();
        let chosen = self.sheet.defaults.executes.as_ref()?;
        Some(
            chosen
                .iter()
                .filter_map(|word| {
                    self.file.one_of(word, "group of places", &known, |group| {
                        known.contains(&group).then(|| group.to_string())
                    })
                })
                .collect(),
        )
    }
}

/// `~/x` below a home; anything else as it is.
pub(crate) fn expand(text: &str, home: &Path) -> PathBuf {
    match text.strip_prefix("~/") {
        Some(below) => home.join(below),
        None => PathBuf::from(text),
    }
}

/// One path component that reads like the directory: `home:.codex`, `home:.config+opencode`.
fn tree_name(path: &Path, home: &Path) -> String {
    let (prefix, rest) = match path.strip_prefix(home) {
        Ok(rest) => ("home:", rest),
        Err(_) => ("root:", path),
    };
    format!(
        "{prefix}{}",
        rest.to_string_lossy()
            .trim_start_matches('/')
            .replace('/', "+")
    )
}

fn in_tree(tree: &str, path: &str) -> String {
    format!("{tree}/{}", path.trim_start_matches('/'))
}

fn in_tree_word(tree: &str, word: &Word) -> Word {
    Word {
        text: in_tree(tree, &word.text),
        span: word.span.clone(),
    }
}

/// A pattern with its exceptions, as the kernel writes them.
fn glob(path: &str, except: &[Word]) -> Glob {
    let mut text = path.to_string();
    for word in except {
        text.push_str(" !");
        text.push_str(&word.text);
    }
    Glob(text)
}
