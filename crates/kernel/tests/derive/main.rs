//! `D(x, T)` against a model that is written down plainly, laws that hold whatever the forms are,
//! and what answers of tools may steer.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

mod laws;
mod model;
mod typed;

use kernel::manifest::Nonce;
use kernel::policy::{NamePattern, NoRules, Policy, SourcePattern, SourceRule};
use kernel::provenance::Steered;
use kernel::{
    Action, Channel, Class, Content, Effect, EventId, Incoming, Input, Kind, KindSet, Leaf, Object,
    Operation, Source, State, step,
};

/// A session under a policy, driven through the kernel's one entry.
pub(crate) struct World {
    pub(crate) policy: Policy,
    pub(crate) state: State,
    events: u64,
}

impl World {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            state: State::default(),
            events: 0,
        }
    }

    pub(crate) fn task(&mut self, text: &str) {
        self.bring(Incoming::new(
            Channel::Term,
            Source::Task,
            Content::new(text.as_bytes()),
        ));
    }

    /// Content of a tool, as the answer to no call in particular.
    pub(crate) fn content(&mut self, tool: &str, text: &str) {
        let source = Source::Tool(tool.to_string());
        self.bring(Incoming::new(
            Channel::Tool,
            source,
            Content::new(text.as_bytes()),
        ));
    }

    pub(crate) fn bring(&mut self, incoming: Incoming) {
        let event = self.next();
        self.step(Input::Incoming { event, incoming });
    }

    /// Proposes a call; tells its event, and whether it was released.
    pub(crate) fn call(&mut self, tool: &str, arguments: &[(&str, &str)]) -> (EventId, bool) {
        let object = Object::Tool {
            name: tool.to_string(),
        };
        let mut effect = Effect::new(Channel::Tool, Operation::Call, object, Class::Blocking);
        effect.arguments = leaves(arguments);
        let event = self.next();
        let actions = self.step(Input::Propose {
            event,
            effect,
            nonce: Nonce([event.0 as u8; 16]),
            in_doubt: false,
        });
        (
            event,
            actions
                .iter()
                .any(|action| matches!(action, Action::Release(_))),
        )
    }

    /// The answer to a call.
    pub(crate) fn answer(
        &mut self,
        call: EventId,
        tool: &str,
        text: &str,
        fields: &[(&str, &str)],
    ) {
        let source = Source::Tool(tool.to_string());
        let mut incoming = Incoming::new(Channel::Tool, source, Content::new(text.as_bytes()));
        incoming.leaves = leaves(fields);
        incoming.answers = Some(call);
        self.bring(incoming);
    }

    pub(crate) fn derives(&self, kind: Kind, value: &str) -> bool {
        self.state
            .provenance()
            .derives(&self.policy, kind, value, None)
    }

    pub(crate) fn steers(&self, kind: Kind, value: &str, tool: &str, argument: &str) -> bool {
        let steered = Some(Steered { tool, argument });
        self.state
            .provenance()
            .derives(&self.policy, kind, value, steered)
    }

    fn next(&mut self) -> EventId {
        self.events += 1;
        EventId(self.events)
    }

    fn step(&mut self, input: Input) -> Vec<Action> {
        step(&mut self.state, &self.policy, &NoRules, "w", input)
    }
}

fn leaves(pairs: &[(&str, &str)]) -> Vec<Leaf> {
    pairs
        .iter()
        .map(|(path, value)| Leaf::new(*path, *value))
        .collect()
}

/// The task is trusted for everything, tool `directory` for what is said here.
pub(crate) fn policy(directory: KindSet) -> Policy {
    let rule = |of, trusted| SourceRule { of, trusted };
    Policy {
        sources: vec![
            rule(SourcePattern::Task, KindSet::ALL),
            rule(
                SourcePattern::Tool(NamePattern("directory".into())),
                directory,
            ),
        ],
        // What is held for one reason is not to hold up the rest.
        speculation: kernel::policy::Speculation::Matched,
        ..Policy::default()
    }
}
