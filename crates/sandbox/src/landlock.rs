//! Landlock: a second wall behind the namespaces, where the kernel has it.
//!
//! A process under a Landlock rule set that handles any file-system right can no longer mount,
//! also in a mount namespace of its own; an agent's own bubblewrap would break. So file-system
//! rules are used only when the plan forbids nested namespaces anyway. The scopes (no abstract
//! socket, no signal to the outside) restrict nothing that a nested sandbox needs.

use ::landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope,
};

use crate::SandboxError;
use crate::error::During;
use crate::plan::Plan;

/// Restricts this process and all that come from it. Best effort by design: the namespaces hold
/// without it, and [`crate::doctor`] says what the kernel lacks.
pub(crate) fn restrict(plan: &Plan) -> Result<(), SandboxError> {
    let step = "restrict the agent with Landlock";
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .scope(Scope::AbstractUnixSocket)
        .and_then(|rules| rules.scope(Scope::Signal))
        .during(step)?;
    if plan.nested_namespaces {
        return rules
            .create()
            .and_then(|rules| rules.restrict_self())
            .map(|_| ())
            .during(step);
    }
    rules = rules
        .handle_access(AccessFs::from_all(FILE_RIGHTS))
        .during(step)?;
    let mut created = rules.create().during(step)?;
    let read = AccessFs::from_read(FILE_RIGHTS);
    let everything = AccessFs::from_all(FILE_RIGHTS);
    let writable = ["/tmp", "/var/tmp", "/run", "/dev", "/proc"].map(std::path::Path::new);
    let writable = writable
        .into_iter()
        .chain([plan.home.as_path()])
        .chain(plan.private.iter().map(|path| path.as_path()))
        .chain(plan.trees.iter().map(|tree| tree.target.as_path()));
    let root = PathFd::new("/").during(step)?;
    created = created
        .add_rule(PathBeneath::new(root, read))
        .during(step)?;
    for path in writable {
        let path = PathFd::new(path).during(step)?;
        created = created
            .add_rule(PathBeneath::new(path, everything))
            .during(step)?;
    }
    created.restrict_self().map(|_| ()).during(step)
}

/// The newest rights that this crate knows by name; older kernels handle fewer.
const FILE_RIGHTS: ABI = ABI::V5;
