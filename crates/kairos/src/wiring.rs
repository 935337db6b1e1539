//! Puts a running session together; the only place that names concrete types.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kernel::{Channel, Content, EventId, Incoming, Relabel, Source};
use monitor::session::{Parts, PooledChance, SystemChance, SystemClock};
use monitor::{Chance as _, Session};
use policy::Loaded;
use sandbox::{Agent, SandboxError};
use store::{Blobs, Log, Record, SessionDir, WorkspaceLabels};

use crate::control;
use crate::deciding::{Deciding, Mode};
use crate::exit::{Failure, Outcome, Status, at};
use crate::explaining::Explaining;
use crate::keys;
use crate::report::Report;
use crate::setup::{Lock, RunMode, Setup, apart};
use crate::steps;
use crate::surroundings::{Surroundings, identity, now, session_id, workspace};
use crate::telling::Telling;
use crate::watching::{Guarded, Watch, Watching, memory_place};

/// The net channel's settings.
mod network;
/// What the boundary is built from.
mod planning;

use network::Placeholder;
use planning::Planned;

/// What is to be run, and how.
#[derive(Debug)]
pub(crate) struct Order {
    /// Working directory of the agent.
    pub(crate) workspace: Option<PathBuf>,
    /// Policy file.
    pub(crate) policy: Option<PathBuf>,
    /// The task.
    pub(crate) task: String,
    /// Oracle, as on the command line.
    pub(crate) oracle: Option<String>,
    /// Whether decisions bind.
    pub(crate) mode: RunMode,
    /// What the guards may do.
    pub(crate) guards: Watch,
    /// The agent.
    pub(crate) command: Vec<OsString>,
    /// Further host paths it may read.
    pub(crate) expose: Vec<PathBuf>,
    /// Ports of services inside that are reached from this host's loopback.
    pub(crate) publish: Vec<Published>,
}

/// A service inside, and the port of this host that leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    /// On this host.
    pub(crate) outside: u16,
    /// In the boundary.
    pub(crate) inside: u16,
}

impl std::str::FromStr for Published {
    type Err = String;

    /// `PORT`, or `OUTSIDE:INSIDE`.
    fn from_str(text: &str) -> Result<Self, String> {
        let port = |text: &str| {
            text.parse::<u16>()
                .ok()
                .filter(|port| *port > 0)
                .ok_or(format!(
                    "`{text}` is no port; write `3000`, or `8080:3000` for another port outside"
                ))
        };
        let (outside, inside) = text.split_once(':').unwrap_or((text, text));
        Ok(Self {
            outside: port(outside)?,
            inside: port(inside)?,
        })
    }
}

/// How a session ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// What its log tells.
    pub(crate) report: Report,
    /// The agent's status, as a shell gives it.
    pub(crate) code: i32,
    /// What a person should know besides.
    pub(crate) notes: Vec<String>,
}

/// Runs an agent from its first instruction to the end of its session.
pub(crate) fn run(order: Order) -> Outcome<Ended> {
    // It takes a while, and needs nothing of what follows.
    let ahead = sandbox::ahead();
    let surroundings = Surroundings::read()?;
    let workspace = workspace(order.workspace.as_deref())?;
    let found = find_policy(&surroundings, &workspace, order.policy.as_deref())?;
    let mut loaded = found.loaded;
    loaded.kernel.unbound = order.mode.unbound();
    if order.mode != RunMode::Enforce {
        if matches!(order.guards, Watch::Act(_)) {
            return Err(Failure::new(
                "guards that act, in a mode in which nothing is held or refused, contradict each other; \
                 leave `--guards` out (they look and record), or use `--mode enforce`",
            ));
        }
        anstream::eprintln!(
            "kairos: nothing is held or refused in this mode; whatever the agent does happens, and is recorded"
        );
    }
    let interactive = term::Stdio::detect()
        .map(|stdio| stdio.is_interactive())
        .map_err(|e| Failure::new(format!("cannot use standard input and output: {e}")))?;
    let explaining = Explaining::default();
    let mode = mode(order.oracle.as_deref(), &loaded, interactive, &explaining)?;

    let words: Vec<String> = order
        .command
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let trees = trees(
        &loaded,
        &workspace,
        words.first().map_or("", String::as_str),
    )?;
    apart(surroundings.place.root(), &trees)?;
    let placeholders = network::placeholders(&loaded)?;

    let chance = SystemChance;
    let id = session_id(&chance.bytes16().map_err(Failure::new)?);
    let dir = surroundings.place.create(&id).map_err(at(
        "make a directory for the session in",
        surroundings.place.root(),
    ))?;
    let lock = Lock::take(&dir)?;
    let setup = Setup {
        format: 1,
        command: words.clone(),
        identity: identity(&workspace)?,
        workspace: workspace.clone(),
        policy: loaded.text.clone(),
        trees,
        placeholders: placeholders
            .iter()
            .map(|p| (p.env.clone(), p.placeholder.clone()))
            .collect(),
        mode: order.mode,
    };
    let started = start(
        ahead,
        &order,
        &surroundings,
        &setup,
        &loaded,
        &placeholders,
        &dir,
        mode,
        &explaining,
        interactive,
    );
    let ended = match started {
        Ok(ended) => ended,
        Err(failure) => {
            // Nothing ran and nothing is held: a session without content is only in the way.
            let untouched = store::log::read(&dir.log()).map_or(true, |log| {
                !log.entries
                    .iter()
                    .any(|e| matches!(e.record, Record::Proposed { .. }))
            });
            if untouched {
                let _ = std::fs::remove_dir_all(dir.path());
            }
            return Err(failure);
        }
    };
    drop(lock);
    let mut notes = ended.1;
    notes.extend(found.note);
    let entries = store::log::read(&dir.log()).map_err(Failure::new)?.entries;
    Ok(Ended {
        report: Report::of(&id, &entries),
        code: ended.0,
        notes,
    })
}

#[expect(
    clippy::too_many_arguments,
    reason = "each is made in another place and used in this one"
)]
fn start(
    ahead: sandbox::Ahead,
    order: &Order,
    surroundings: &Surroundings,
    setup: &Setup,
    loaded: &Loaded,
    placeholders: &[Placeholder],
    dir: &SessionDir,
    mode: Mode,
    explaining: &Explaining,
    interactive: bool,
) -> Outcome<(i32, Vec<String>)> {
    let telling = Arc::new(Telling::default());
    let memory = memory_place(
        surroundings.place.root(),
        setup.command.first().map_or("", String::as_str),
        &setup.workspace,
    );
    let watching = Watching::new(
        order.guards,
        Arc::clone(&telling),
        steps::settings(&loaded.kernel),
        memory,
    );
    // What the boundary is built from is looked for while the session's records are made durable.
    let (session, planned) = std::thread::scope(|scope| {
        let plan = || planning::plan(order, surroundings, setup, loaded, placeholders);
        let planning = std::thread::Builder::new()
            .name("planning".to_string())
            .spawn_scoped(scope, plan);
        let session = session(surroundings, setup, loaded, dir, &watching)?;
        let planned = match planning.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(planned)) => planned?,
            // It did not come to an end in a thread of its own.
            Ok(Err(_)) | Err(_) => plan()?,
        };
        Ok::<_, Failure>((session, planned))
    })?;
    explaining.of(&session);
    task(&session, &order.task);

    // The boundary, with nothing of the agent in it yet.
    let Planned {
        mut plan,
        authority,
    } = planned;
    planning::seed(&mut plan, &session, surroundings, loaded)?;
    let preparing = ahead.hand_over(&plan).map_err(confinement)?;

    // The channels, as far as they do not need it.
    telling.listen(&session);
    watching.listen(&session);
    let tasks = Some(PathBuf::from("/proc"));
    let trees = file_channel(&session, setup, loaded.files, interactive, tasks)?;
    network::keys_are_hidden(loaded, &plan)?;
    let mut config = network::config(loaded, placeholders, authority, &telling, &watching)?;
    let states = setup.trees.iter().filter(|(name, _)| name != "workspace");
    config.keys = keys::given(plan.env.values(), states.map(|(_, path)| path));
    let deciding = Deciding::start(&session, mode);

    let mut prepared = preparing.ready().map_err(confinement)?;
    let mut notes: Vec<String> = std::mem::take(&mut prepared.notes);
    let mut serving = match prepared.fuse.take() {
        Some(fuse) => trees.serve(fuse).map_err(Failure::new)?,
        None => return Err(Failure::new("the boundary gave no file channel")),
    };
    let sockets = net::Sockets {
        tcp: std::mem::take(&mut prepared.tcp),
        udp: std::mem::take(&mut prepared.udp),
    };
    let net =
        Arc::new(net::Net::start(config, Arc::clone(&session), sockets).map_err(Failure::new)?);
    session.attach(Channel::Net, Arc::clone(&net) as Arc<dyn monitor::Channel>);
    network::publish(&session, &net, &order.publish, prepared.door.take())?;
    control::serve(&session)?;

    // The agent.
    let code = agent(&session, prepared, &watching)?;
    serving.stop();
    trees.drain();
    trees.settle_now();
    session.note(
        "agent ended",
        BTreeMap::from([("status".to_string(), code.to_string())]),
    );
    notes.extend(watching.finish(&dir.id()));
    let resolved = deciding.finish(&session);
    notes.extend(resolved.notes);
    notes.extend(resolved.kept);
    net.shutdown();
    if let Some(why) = session.failure() {
        return Err(Failure::new(format!(
            "the session stopped releasing effects: {why}; what was staged is kept in `{}`",
            dir.path().display()
        )));
    }
    session.sync().map_err(Failure::new)?;
    Ok((code, notes))
}

/// A new session with its records, whose beginning is durable.
fn session(
    surroundings: &Surroundings,
    setup: &Setup,
    loaded: &Loaded,
    dir: &SessionDir,
    watching: &Arc<Watching>,
) -> Outcome<Arc<Session>> {
    setup.write(dir)?;
    let beginning = dir.log().with_extension("part");
    let mut log = Log::create(&beginning, now).map_err(Failure::new)?;
    log.append(&header(setup, loaded, dir))
        .map_err(Failure::new)?;
    log.publish(&dir.log()).map_err(Failure::new)?;
    Ok(Session::new(Parts {
        policy: Arc::new(loaded.kernel.clone()),
        rules: Arc::new(Guarded {
            rules: loaded.rules.clone(),
            watching: Arc::clone(watching),
        }),
        log,
        dir: dir.clone(),
        blobs: Blobs::open_dir(&dir.blobs()).map_err(at("make", &dir.blobs()))?,
        workspace: setup.identity.clone(),
        chance: Arc::new(PooledChance::default()),
        clock: Arc::new(SystemClock::default()),
        labels: Some(labels_of(surroundings.place.root(), setup)?),
        recovered: None,
    }))
}

/// Starts the agent on its terminal and waits for it.
fn agent(
    session: &Arc<Session>,
    prepared: sandbox::Prepared,
    watching: &Arc<Watching>,
) -> Outcome<i32> {
    let running: Arc<Mutex<Option<Arc<Agent>>>> = Arc::default();
    let callbacks = term::Callbacks {
        task: Box::new({
            let session = Arc::clone(session);
            move |line: &str| task(&session, line)
        }),
        signal: Box::new({
            let running = Arc::clone(&running);
            move |signal| {
                let agent = running
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone();
                if let Some(agent) = agent {
                    pass_on(&agent, signal);
                }
            }
        }),
    };
    let stdio = term::Stdio::detect()
        .map_err(|e| Failure::new(format!("cannot use standard input and output: {e}")))?;
    let (mut terminal, streams) = term::Terminal::open(stdio, callbacks).map_err(Failure::new)?;
    let suspender = terminal.suspender();
    let stdio = sandbox::Stdio {
        stdin: streams.stdin,
        stdout: streams.stdout,
        stderr: streams.stderr,
    };
    let interactive = streams.controlling.is_some();
    drop(streams.controlling);
    let agent = Arc::new(prepared.start(stdio).map_err(confinement)?);
    *running.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&agent));
    terminal.start().map_err(Failure::new)?;
    stop_with_the_monitor(session, &agent, watching);
    let exit = agent.wait_with(|| {
        // Without a terminal nobody could continue Kairos; the agent's stop is its own business.
        if interactive {
            suspender.suspend();
            pass_on(&agent, term::Signal::Continue);
        }
    });
    let exit = exit.map_err(confinement);
    terminal.finish();
    Ok(exit?.code())
}

/// A monitor that cannot record anything more stops the agent.
/// So does the backstop of the guards.
fn stop_with_the_monitor(session: &Arc<Session>, agent: &Arc<Agent>, watching: &Arc<Watching>) {
    let (session, agent) = (Arc::downgrade(session), Arc::downgrade(agent));
    let watching = Arc::clone(watching);
    let watch = std::thread::Builder::new().name("watch".into());
    let started = watch.spawn(move || {
        while let (Some(session), Some(agent)) = (session.upgrade(), agent.upgrade()) {
            if session.failure().is_some() || watching.interrupted().is_some() {
                agent.kill();
                return;
            }
            drop((session, agent));
            std::thread::sleep(WATCH);
        }
    });
    // Without the thread effects are refused all the same; the agent only runs on in vain.
    drop(started);
}

const WATCH: Duration = Duration::from_millis(200);

fn pass_on(agent: &Agent, signal: term::Signal) {
    use rustix::process::Signal as Number;
    let number = match signal {
        term::Signal::Interrupt => Number::INT,
        term::Signal::Quit => Number::QUIT,
        term::Signal::Stop => Number::STOP,
        term::Signal::Continue => Number::CONT,
        term::Signal::Terminate | term::Signal::HangUp => {
            // The agent may clean up for a moment; then everything it started ends.
            let number = if signal == term::Signal::HangUp {
                Number::HUP
            } else {
                Number::TERM
            };
            let _ = agent.signal(number.as_raw());
            std::thread::sleep(GRACE);
            agent.kill();
            return;
        }
    };
    // An agent that has just ended needs no signal.
    let _ = agent.signal(number.as_raw());
}

/// How long an agent that has to end may clean up.
const GRACE: Duration = Duration::from_millis(500);

/// Words of the principal.
fn task(session: &Session, text: &str) {
    session.incoming(Incoming {
        channel: Channel::Term,
        source: Source::Task,
        content: Content::new(text.as_bytes()),
        leaves: Vec::new(),
        answers: None,
        layer: None,
    });
}

fn header(setup: &Setup, loaded: &Loaded, dir: &SessionDir) -> Record {
    Record::Header {
        format: store::record::FORMAT,
        session: dir.id(),
        workspace: setup.identity.clone(),
        epoch: loaded.kernel.epoch.hex(),
        command: setup.command.clone(),
        started: now(),
        version: env!("CARGO_PKG_VERSION").to_string(),
    }
}

/// The policy in force for a workspace.
pub(crate) fn find_policy(
    surroundings: &Surroundings,
    workspace: &Path,
    given: Option<&Path>,
) -> Outcome<policy::Discovered> {
    policy::discover(&places(surroundings, workspace), given).map_err(Failure::policy)
}

/// Where policies and approvals are looked for.
pub(crate) fn places(surroundings: &Surroundings, workspace: &Path) -> policy::Places {
    let config_home = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .unwrap_or_else(|| surroundings.home.join(".config"));
    policy::Places {
        workspace: workspace.to_path_buf(),
        home: surroundings.home.clone(),
        config_home,
        state: surroundings.place.root().to_path_buf(),
    }
}

/// Who decides, by the command line, the policy, or what there is.
fn mode(
    given: Option<&str>,
    loaded: &Loaded,
    interactive: bool,
    explaining: &Explaining,
) -> Outcome<Mode> {
    let spec = match given.or(loaded.oracle.default.as_deref()) {
        Some(spec) => spec,
        None if interactive => "ask",
        None => return Ok(Mode::Nobody),
    };
    let deadline = Duration::from_secs(loaded.oracle.deadline_s);
    let mut setting = oracles::Setting::new(deadline, loaded.summary());
    setting.explain = Arc::new(explaining.clone());
    let unusable = |why: String| Failure::new(format!("cannot use the oracle `{spec}`: {why}"));
    let parsed = oracles::parse(spec).map_err(unusable)?;
    let oracle: Arc<dyn monitor::Oracle> =
        Arc::from(oracles::build(&parsed, &setting).map_err(unusable)?);
    // Standard input and output may be files: a person is asked at the terminal itself.
    let nobody = parsed.asks_a_person() && !interactive && !has_terminal();
    if nobody && given.is_some() {
        return Err(Failure::new(format!(
            "the oracle `{spec}` asks a person, and this process has no terminal; leave it out to keep everything \
             for `kairos review`, or name one that needs nobody (`deny`, `rules`, `model:...`, `command:...`)"
        )));
    }
    Ok(match &parsed {
        oracles::OracleSpec::Deny => Mode::AtOnce(oracle),
        oracles::OracleSpec::Ask if nobody => Mode::Nobody,
        oracles::OracleSpec::Ask => Mode::Person(oracle),
        // While the agent has the terminal nobody is asked there.
        spec if spec.asks_a_person() => match spec.without_person() {
            Some(first) => Mode::Mixed {
                first: Arc::from(oracles::build(&first, &setting).map_err(unusable)?),
                all: oracle,
            },
            None => Mode::Person(oracle),
        },
        _ => Mode::Program(oracle),
    })
}

/// Whether somebody can be asked at the process's own terminal, wherever its streams go.
fn has_terminal() -> bool {
    std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/tty")
        .is_ok_and(|terminal| rustix::termios::isatty(&terminal))
}

/// The copy-on-write trees: the workspace, and the agent's own state where it has some.
fn trees(loaded: &Loaded, workspace: &Path, program: &str) -> Outcome<Vec<(String, PathBuf)>> {
    let mut trees = vec![("workspace".to_string(), workspace.to_path_buf())];
    for state in loaded.agent.state_for(program) {
        let Ok(real) = state.path.canonicalize() else {
            continue;
        };
        // A state directory inside the workspace is part of it.
        crate::surroundings::outside_the_system(&real, "state directory")?;
        if real.is_dir() && !real.starts_with(workspace) && !workspace.starts_with(&real) {
            trees.push((state.name.clone(), real));
        }
    }
    Ok(trees)
}

/// Opens the trees of a session and makes them its file channel.
fn file_channel(
    session: &Arc<Session>,
    setup: &Setup,
    said: policy::Files,
    interactive: bool,
    tasks: Option<PathBuf>,
) -> Outcome<Arc<files::Trees>> {
    let specs = setup
        .trees
        .iter()
        .map(|(name, base)| files::TreeSpec {
            name: name.clone(),
            base: base.clone(),
            upper: session.dir().tree(name),
        })
        .collect();
    let options = files::Options {
        ids: ids(),
        own: own(),
        durable: said.durable.unwrap_or(false),
        reads: if said.first_reads.unwrap_or(false) {
            files::Reads::First
        } else {
            files::Reads::Open
        },
        tasks,
        quiet: if interactive {
            QUIET_WITH_SOMEBODY_THERE
        } else {
            NEVER
        },
        ..files::Options::default()
    };
    let trees = files::Trees::new(Arc::clone(session), specs, options).map_err(Failure::new)?;
    session.attach(
        Channel::File,
        Arc::clone(&trees) as Arc<dyn monitor::Channel>,
    );
    let reads = Arc::downgrade(&trees);
    session.before_propose(Box::new(move || {
        if let Some(trees) = reads.upgrade() {
            trees.drain();
        }
    }));
    let rules = Arc::downgrade(session);
    trees.set_precheck(Box::new(move |effect| {
        rules.upgrade().and_then(|session| session.precheck(effect))
    }));
    Ok(trees)
}

/// With somebody at the terminal, files appear in the workspace when they have come to rest, so
/// that an editor beside the agent shows them. Otherwise they do at the end, all together.
const QUIET_WITH_SOMEBODY_THERE: Duration = Duration::from_secs(2);
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The user's own configuration of git, which is for every repository.
fn own() -> files::Own {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let config = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| home.as_ref().map(|home| home.join(".config")));
    let git = [
        Some(PathBuf::from("/etc/gitconfig")),
        config.map(|config| config.join("git/config")),
        home.as_ref().map(|home| home.join(".gitconfig")),
    ];
    files::Own {
        git: git.into_iter().flatten().collect(),
        home,
    }
}

/// Inside there are the user's own ids and no others, unless root runs it.
fn ids() -> files::Ids {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if user.is_root() {
        files::Ids::default()
    } else {
        let (user, group) = (user.as_raw(), group.as_raw());
        files::Ids::one((user, user), (group, group))
    }
}

fn confinement(error: SandboxError) -> Failure {
    let status = match error.exit_code() {
        126 => Status::NotExecutable,
        127 => Status::NotFound,
        _ => Status::Failed,
    };
    Failure {
        status,
        message: error.to_string(),
    }
}

/// A session that is not running, opened to be reviewed and resolved.
pub(crate) struct Reopened {
    /// The session.
    pub(crate) session: Arc<Session>,
    /// Its file channel, which the session holds weakly.
    trees: Arc<files::Trees>,
    missing: Vec<(String, String)>,
    _lock: Lock,
}

impl Reopened {
    /// What a held request was made with and cannot be sent with, for want of a variable.
    pub(crate) fn lacks(&self, held: &monitor::Held) -> Option<String> {
        let stands =
            |placeholder: &str| net::placeholder_stands_in(&self.session, held, placeholder);
        let (env, _) = self
            .missing
            .iter()
            .find(|(_, placeholder)| stands(placeholder))?;
        Some(format!(
            "it is sent with the credential `{env}`, which is not set here; set the variable and try again"
        ))
    }

    /// Its file channel.
    pub(crate) fn trees(&self) -> &Arc<files::Trees> {
        &self.trees
    }
}

/// Opens a session that has ended or was cut off; `None` when it is running.
pub(crate) fn reopen(dir: &SessionDir) -> Outcome<Option<Reopened>> {
    let Some(lock) = Lock::take(dir)? else {
        return Ok(None);
    };
    let setup = Setup::read(dir)?;
    let mut loaded = policy::recorded(&setup.policy).map_err(|errors| {
        Failure::new(format!(
            "the policy of the session cannot be read back\n{}",
            errors.coloured()
        ))
    })?;
    loaded.kernel.unbound = setup.mode.unbound();
    let blobs = Blobs::open_dir(&dir.blobs()).map_err(at("open", &dir.blobs()))?;
    let (log, entries) = Log::resume(&dir.log(), now).map_err(Failure::new)?;
    let recovered =
        store::recover(&entries, &blobs, &loaded.kernel, &loaded.rules).map_err(Failure::new)?;
    let cut_off = !entries
        .iter()
        .any(|entry| matches!(&entry.record, Record::Note { what, .. } if what == "agent ended"));
    let unknown = recovered.unknown.clone();
    let root = dir.path().ancestors().nth(2).unwrap_or(dir.path());
    let mut labels = labels_of(root, &setup)?;
    if cut_off {
        // The log is written first, so the workspace may not have been told everything.
        for relabel in &recovered.relabelled {
            if matches!(relabel, Relabel::Stick(..)) {
                labels.append(relabel).map_err(Failure::new)?;
            }
        }
    }
    let session = Session::new(Parts {
        policy: Arc::new(loaded.kernel.clone()),
        rules: Arc::new(loaded.rules.clone()),
        log,
        dir: dir.clone(),
        blobs,
        workspace: setup.identity.clone(),
        chance: Arc::new(PooledChance::default()),
        clock: Arc::new(SystemClock::default()),
        labels: Some(labels),
        recovered: Some(recovered),
    });
    let trees = file_channel(&session, &setup, loaded.files, false, None)?;
    let sender = network::sender(&session, &setup, &loaded)?;
    session.attach(Channel::Net, Arc::new(sender));
    if cut_off {
        recover(&session, &trees, &unknown);
    }
    Ok(Some(Reopened {
        missing: network::missing(&setup),
        session,
        trees,
        _lock: lock,
    }))
}

/// What sticks to the workspace from earlier sessions.
fn labels_of(root: &Path, setup: &Setup) -> Outcome<WorkspaceLabels> {
    WorkspaceLabels::open(root, &setup.identity).map_err(Failure::new)
}

/// What a session that was cut off left: what is unknown is said, what waited for an answer
/// that nobody waits for any more is refused, what was staged and not decided is held.
fn recover(session: &Session, trees: &files::Trees, unknown: &[EventId]) {
    for event in unknown {
        // The trees know what became of their own commits.
        let known = trees.interrupted().iter().find(|(other, _)| other == event);
        if let Some((_, result)) = known {
            session.done(*event, result.clone());
            continue;
        }
        let what = "the session was cut off while this was being carried out; whether it happened is not known";
        session.done(*event, Err(what.to_string()));
    }
    for held in session.held() {
        if held.effect.class == kernel::Class::Blocking {
            session.expire(held.hold);
        }
    }
    trees.hold_undecided();
    session.note(
        "agent ended",
        BTreeMap::from([("cut-off".to_string(), "true".to_string())]),
    );
}
