"""The agents: unmodified codex and pi, as scripts/install-agents put them there, told where the stand-in model is."""
import json
import os

MODEL = "model.example.test"
MODEL_PORT = 8088


def folder():
    """Where scripts/install-agents put them."""
    if "KAIROS_AGENTS" in os.environ:
        return os.environ["KAIROS_AGENTS"]
    if os.geteuid() == 0:
        return "/var/cache/kairos/agents"
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kairos/agents")


def version(name):
    with open(os.path.join(folder(), name, ".version"), encoding="utf-8") as file:
        return file.read().strip()


def program(name):
    path = os.path.join(folder(), name, "node_modules/.bin", name)
    if not os.path.exists(path):
        raise SystemExit("eval-real: %s is not there: scripts/install-agents %s" % (path, name))
    return path


def configuration(name):
    """Files below the home that a user of this agent would have."""
    base = "http://%s:%d/v1" % (MODEL, MODEL_PORT)
    if name == "codex":
        return {".codex/config.toml":
                "model = \"scripted\"\nmodel_provider = \"scripted\"\ncheck_for_update_on_startup = false\n\n"
                "[model_providers.scripted]\nname = \"scripted\"\nbase_url = \"%s\"\nenv_key = \"SCRIPTED_KEY\"\nwire_api = \"responses\"\n\n"
                "[analytics]\nenabled = false\n\n[features]\nplugins = false\napps = false\n" % base}
    model = {"id": "m", "name": "m", "reasoning": False, "input": ["text"], "contextWindow": 100000, "maxTokens": 1000,
             "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}}
    provider = {"baseUrl": base, "api": "openai-completions", "apiKey": "dummy", "models": [model]}
    return {".pi/agent/models.json": json.dumps({"providers": {"scripted": provider}})}


def command(name, prompt):
    if name == "codex":
        return [program("codex"), "exec", "--json", "--dangerously-bypass-approvals-and-sandbox", prompt]
    return [program("pi"), "--provider", "scripted", "--model", "m", "-p", prompt, "--mode", "json"]


def environment(name):
    return {"SCRIPTED_KEY": "dummy"} if name == "codex" else {"PI_OFFLINE": "1"}


def state(name):
    return "~/.codex" if name == "codex" else "~/.pi"


def policy(name, ca, narrow=False):
    """What the operator writes: where the model is, what the agent needs, who signs. Nothing about tasks or attacks. A narrow policy does
    not trust the workspace for paths: only a place that the task names is changed without asking."""
    return ("[workspace]\ntrusted = []\n\n" if narrow else "") + ("[net]\nroots = [%s]\n\n[agent]\nstate = [%s]\nexpose = [%s]\nenv = [%s]\n\n[[party]]\nhost = %s\nports = [%d]\nprovider = true\n"
            % (json.dumps(ca), json.dumps(state(name)), json.dumps(folder()), ", ".join(map(json.dumps, environment(name))), json.dumps(MODEL), MODEL_PORT))
