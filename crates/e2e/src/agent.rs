//! Unmodified agents and what each needs to find the stand-in model: files in the home, variables, the command.

use std::path::{Path, PathBuf};

use crate::place::agents;
use crate::process::Finished;
use crate::run::outside;
use crate::{Policy, Provider, Who, Workspace};

/// The name under which the stand-in model is known to agents that let their user choose one.
pub const MODEL_HOST: &str = "model.example.test";

/// How to start one agent on one task.
#[derive(Debug, Clone)]
pub struct Agent {
    pub command: Vec<String>,
    pub env: Vec<(&'static str, String)>,
    /// The host that it talks to its model at.
    pub host: &'static str,
    /// Its state folders, below the home.
    pub state: Vec<&'static str>,
    /// Where it is installed.
    pub installed: PathBuf,
}

impl Agent {
    /// codex with a provider of the user's own, over plain HTTP.
    pub fn codex(workspace: &Workspace, task: &str) -> Self {
        home_file(
            workspace,
            ".codex/config.toml",
            &format!(
                "model = \"scripted\"\nmodel_provider = \"scripted\"\ncheck_for_update_on_startup = false\n\n\
                 [model_providers.scripted]\nname = \"scripted\"\nbase_url = \"http://{MODEL_HOST}/v1\"\n\
                 env_key = \"SCRIPTED_KEY\"\nwire_api = \"responses\"\n\n\
                 [analytics]\nenabled = false\n\n[features]\nplugins = false\napps = false\n"
            ),
        );
        Self {
            env: vec![("SCRIPTED_KEY", "dummy".into())],
            host: MODEL_HOST,
            ..Self::codex_command(task)
        }
    }

    /// codex as it comes: the built-in provider, which opens a WebSocket first.
    pub fn codex_builtin(workspace: &Workspace, task: &str) -> Self {
        home_file(
            workspace,
            ".codex/config.toml",
            "check_for_update_on_startup = false\n\n[analytics]\nenabled = false\n\n[features]\nplugins = false\napps = false\n\n\
             [otel]\nmetrics_exporter = \"none\"\n",
        );
        Self {
            env: vec![("CODEX_API_KEY", "dummy".into())],
            host: "api.openai.com",
            ..Self::codex_command(task)
        }
    }

    fn codex_command(task: &str) -> Self {
        let program = program("codex", "codex");
        Self {
            command: words(&[
                &program,
                "exec",
                "--json",
                "--dangerously-bypass-approvals-and-sandbox",
                task,
            ]),
            env: Vec::new(),
            host: MODEL_HOST,
            state: vec![".codex"],
            installed: agents().join("codex"),
        }
    }

    /// pi, over one of its four wires: `openai-completions`, `openai-responses`, `anthropic-messages`, `google-generative-ai`.
    pub fn pi(workspace: &Workspace, task: &str, wire: &str) -> Self {
        let path = match wire {
            "anthropic-messages" => "",
            "google-generative-ai" => "/v1beta",
            _ => "/v1",
        };
        home_file(
            workspace,
            ".pi/agent/models.json",
            &format!(
                r#"{{"providers":{{"scripted":{{"baseUrl":"https://{MODEL_HOST}{path}","api":"{wire}","apiKey":"dummy","models":[
                {{"id":"m","name":"m","reasoning":false,"input":["text"],"cost":{{"input":0,"output":0,"cacheRead":0,"cacheWrite":0}},
                "contextWindow":100000,"maxTokens":1000}}]}}}}}}"#
            ),
        );
        Self {
            command: words(&[
                &program("pi", "pi"),
                "--provider",
                "scripted",
                "--model",
                "m",
                "-p",
                task,
                "--mode",
                "json",
            ]),
            env: vec![("PI_OFFLINE", "1".into())],
            host: MODEL_HOST,
            state: vec![".pi"],
            installed: agents().join("pi"),
        }
    }

    /// opencode, over chat completions.
    pub fn opencode(workspace: &Workspace, task: &str) -> Self {
        home_file(
            workspace,
            ".config/opencode/opencode.json",
            &format!(
                r#"{{"model":"scripted/m","autoupdate":false,"provider":{{"scripted":{{"npm":"@ai-sdk/openai-compatible",
                "options":{{"baseURL":"https://{MODEL_HOST}/v1","apiKey":"dummy"}},"models":{{"m":{{}}}}}}}}}}"#
            ),
        );
        Self {
            command: words(&[
                &program("opencode", "opencode"),
                "run",
                "--format",
                "json",
                task,
            ]),
            env: Vec::new(),
            host: MODEL_HOST,
            state: vec![
                ".config/opencode",
                ".local/share/opencode",
                ".cache/opencode",
                ".local/state/opencode",
            ],
            installed: agents().join("opencode"),
        }
    }

    /// gemini-cli, at its real host.
    pub fn gemini(workspace: &Workspace, task: &str) -> Self {
        home_file(
            workspace,
            ".gemini/settings.json",
            r#"{"security":{"auth":{"selectedType":"gemini-api-key"}},"privacy":{"usageStatisticsEnabled":false}}"#,
        );
        Self {
            command: words(&[
                &program("gemini", "gemini"),
                "--yolo",
                "-m",
                "gemini-2.5-pro",
                "-p",
                task,
                "-o",
                "json",
            ]),
            env: vec![
                ("GEMINI_API_KEY", "dummy".into()),
                ("GEMINI_CLI_TRUST_WORKSPACE", "true".into()),
            ],
            host: "generativelanguage.googleapis.com",
            state: vec![".gemini"],
            installed: agents().join("gemini"),
        }
    }

    /// claude-code, at its real host.
    pub fn claude(_: &Workspace, task: &str) -> Self {
        Self {
            command: words(&[
                &program("claude", "claude"),
                "-p",
                task,
                "--dangerously-skip-permissions",
                "--output-format",
                "stream-json",
                "--verbose",
            ]),
            env: vec![
                ("ANTHROPIC_API_KEY", "dummy".into()),
                ("IS_SANDBOX", "1".into()),
                ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".into()),
            ],
            host: "api.anthropic.com",
            state: vec![".claude"],
            installed: agents().join("claude"),
        }
    }

    /// mini-swe-agent, at OpenAI's real host.
    pub fn mini(_: &Workspace, task: &str) -> Self {
        let program = agents().join("mini/bin/mini");
        assert!(
            program.is_file(),
            "mini is not installed: scripts/install-agents mini"
        );
        Self {
            command: words(&[
                program.to_str().unwrap(),
                "-m",
                "openai/gpt-4o",
                "-y",
                "--exit-immediately",
                "-t",
                task,
            ]),
            env: vec![
                ("OPENAI_API_KEY", "dummy".into()),
                ("MSWEA_COST_TRACKING", "ignore_errors".into()),
                ("MSWEA_CONFIGURED", "true".into()),
                ("LITELLM_LOCAL_MODEL_COST_MAP", "True".into()),
            ],
            host: "api.openai.com",
            state: vec![".config/mini-swe-agent"],
            installed: agents().join("mini"),
        }
    }

    /// A policy under which it reaches `provider` as its model.
    pub fn policy(&self, provider: &Provider) -> Policy {
        self.policy_towards(&provider.url())
    }

    /// The same, with the model at any address.
    pub fn policy_towards(&self, upstream: &str) -> Policy {
        let policy = Policy::new()
            .provider(self.host, upstream)
            .expose(&agents());
        let policy = self
            .env
            .iter()
            .fold(policy, |policy, (name, _)| policy.env(name));
        self.state.iter().fold(policy, |policy, folder| {
            policy.state(&format!("~/{folder}"))
        })
    }

    /// The same session without Kairos: the agent talks to `provider` itself. Nothing is between it and the network.
    pub fn alone(&self, workspace: &Workspace, provider: &Provider) -> Finished {
        for folder in self
            .state
            .iter()
            .map(|folder| workspace.home().join(folder))
        {
            towards(&folder, self.host, &provider.url());
        }
        let env = self
            .env
            .iter()
            .map(|(name, value)| (*name, value.clone()))
            .chain([("GOOGLE_GEMINI_BASE_URL", provider.url())])
            .map(|(name, value)| format!("{name}='{value}'"));
        let words = self.command.iter().map(|word| format!("'{word}'"));
        let line: Vec<String> = env.chain(words).collect();
        outside(workspace, Who::Me, None, &line.join(" "))
    }

    pub fn words(&self) -> Vec<&str> {
        self.command.iter().map(String::as_str).collect()
    }
}

/// Lets the settings in a folder name another address of the model.
fn towards(folder: &Path, host: &str, url: &str) {
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            towards(&path, host, url);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            let text = text.replace(&format!("https://{host}"), url);
            std::fs::write(&path, text.replace(&format!("http://{host}"), url)).unwrap();
        }
    }
}

fn program(agent: &str, name: &str) -> String {
    let program = agents().join(agent).join("node_modules/.bin").join(name);
    assert!(
        program.exists(),
        "{} is not there: scripts/install-agents {agent}",
        program.display()
    );
    program.to_str().unwrap().to_owned()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn home_file(workspace: &Workspace, name: &str, text: &str) {
    let path = workspace.home().join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}
