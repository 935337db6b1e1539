//! Traces for tests, written by hand.
#![allow(dead_code, reason = "every test file uses some of it")]

use guards::{Any, Guards, Settings, Step, Trace, findings};

pub(crate) const ENV: &str = "API_KEY=dummy-secret-0123456789\nDB_PASSWORD=hunter2-dummy-77\n";
pub(crate) const TASK: &str = "Read DEPLOY.md and write the service port into result.txt";

/// A trace that is written step by step.
pub(crate) struct Script {
    steps: Vec<Step>,
    settings: Settings,
    calls: usize,
}

impl Script {
    pub(crate) fn new() -> Self {
        Self::task(TASK)
    }

    pub(crate) fn task(task: &str) -> Self {
        Self {
            steps: vec![Step::Task(task.into())],
            settings: Settings::default(),
            calls: 0,
        }
    }

    pub(crate) fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    pub(crate) fn says(mut self, text: &str) -> Self {
        self.steps.push(Step::Narration(text.into()));
        self
    }

    /// A shell command and what it gave back.
    pub(crate) fn sh(mut self, command: &str, result: &str) -> Self {
        self.calls += 1;
        let id = format!("c{}", self.calls);
        self.steps.push(Step::Call {
            id: id.clone(),
            name: "bash".into(),
            commands: vec![command.into()],
            writes: vec![],
            paths: vec![],
        });
        self.steps.push(Step::Result {
            id,
            text: result.into(),
        });
        self
    }

    /// A file read by a tool of its own.
    pub(crate) fn reads(mut self, path: &str, content: &str) -> Self {
        self.calls += 1;
        let id = format!("c{}", self.calls);
        self.steps.push(Step::Call {
            id: id.clone(),
            name: "read".into(),
            commands: vec![],
            writes: vec![],
            paths: vec![path.into()],
        });
        self.steps.push(Step::Result {
            id,
            text: content.into(),
        });
        self
    }

    pub(crate) fn writes(mut self, path: &str, content: &str) -> Self {
        self.calls += 1;
        let id = format!("c{}", self.calls);
        self.steps.push(Step::Call {
            id: id.clone(),
            name: "write".into(),
            commands: vec![],
            writes: vec![(path.into(), content.into())],
            paths: vec![path.into()],
        });
        self.steps.push(Step::Result {
            id,
            text: "ok".into(),
        });
        self
    }

    pub(crate) fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    pub(crate) fn trace(self) -> Trace {
        Trace::of(self.settings, self.steps)
    }

    /// What all guards find, as text.
    pub(crate) fn finds(self) -> Vec<String> {
        let trace = self.trace();
        findings(&trace, Guards::All)
            .iter()
            .map(Any::to_string)
            .collect()
    }

    /// The names of what the egress guards find.
    pub(crate) fn egress(self) -> Vec<&'static str> {
        let trace = self.trace();
        findings(&trace, Guards::Egress)
            .iter()
            .map(|f| f.code().name())
            .collect()
    }
}
