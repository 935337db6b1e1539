//! What the boundary is built from: the plan, and the authority that is trusted inside.

use std::sync::Arc;

use kernel::{Channel, Content, Incoming, Source};
use monitor::Session;
use policy::Loaded;
use sandbox::Plan;

use super::Order;
use super::network::{self, Placeholder};
use crate::exit::{Failure, Outcome, at};
use crate::inside;
use crate::setup::Setup;
use crate::surroundings::Surroundings;

/// What needs no session.
pub(super) struct Planned {
    /// Without the seeds of the agent's home.
    pub(super) plan: Plan,
    /// Signs what the agent is shown of servers.
    pub(super) authority: Arc<net::Authority>,
}

/// Looks at the host for what the agent is to see.
pub(super) fn plan(
    order: &Order,
    surroundings: &Surroundings,
    setup: &Setup,
    loaded: &Loaded,
    placeholders: &[Placeholder],
) -> Outcome<Planned> {
    let authority = Arc::new(net::Authority::new().map_err(Failure::new)?);
    let mut plan = Plan::new(
        order.command.clone(),
        setup.workspace.clone(),
        surroundings.home.clone(),
    );
    let mut set = inside::variables();
    for item in placeholders {
        set.insert(item.env.clone().into(), item.placeholder.clone().into());
    }
    plan.env = sandbox::plan::environment(
        std::env::vars_os(),
        &loaded.agent.env,
        &surroundings.home,
        set,
    );
    plan.env
        .insert("PWD".into(), setup.workspace.clone().into());
    plan.trees = setup
        .trees
        .iter()
        .map(|(name, path)| sandbox::Tree {
            name: name.clone(),
            target: path.clone(),
        })
        .collect();
    plan.files = inside::files(
        &authority.pem(),
        &plan.hostname,
        &network::known_hosts(loaded),
    );
    plan.read_only.extend(
        loaded
            .agent
            .expose
            .iter()
            .chain(&order.expose)
            .map(|path| sandbox::Bind::same(path.clone())),
    );
    plan.host_ports = loaded.loopback_ports();
    plan.nested_namespaces = loaded.agent.nested_namespaces;
    sandbox::tools::Tools::discover(&plan).add_to(&mut plan);
    Ok(Planned { plan, authority })
}

/// Puts what the agent's home begins with into the plan. It reaches the agent as any file does, so what is
/// secret in it is known.
pub(super) fn seed(
    plan: &mut Plan,
    session: &Session,
    surroundings: &Surroundings,
    loaded: &Loaded,
) -> Outcome<()> {
    for seed in &loaded.agent.seed {
        match std::fs::read(seed) {
            Ok(content) => {
                let path = seed.strip_prefix(&surroundings.home).unwrap_or(seed);
                session.incoming(Incoming {
                    channel: Channel::File,
                    source: Source::Location {
                        tree: "home".to_string(),
                        path: path.to_string_lossy().trim_start_matches('/').to_string(),
                    },
                    content: Content::new(content.clone()),
                    leaves: Vec::new(),
                    answers: None,
                    layer: None,
                });
                plan.files.push(sandbox::SyntheticFile::seed(seed, content));
            }
            Err(_) if !loaded.agent.seed_named => {}
            Err(error) => return Err(at("read", seed)(error)),
        }
    }
    Ok(())
}
