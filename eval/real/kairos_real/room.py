"""A room without Kairos: the control runs there. Everything but the case's own folder is read-only, processes end with it, and its
network is the world's: nothing in it can hurt the machine, and nothing leaves it."""
import os
import signal
import subprocess


def command(place, words, extra=()):
    """`words` in a room of their own, in the case's workspace."""
    return ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--bind", place.folder, place.folder, *extra,
            "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL", "--die-with-parent", "--new-session", "--chdir", place.work, "--", *words]


def run(words, environment, limit, folder):
    """Runs to its end or its limit; everything of its process group is ended with it. Returns (status, output, error). An ordinary user has
    rights in the worker's own namespace; what is run has none of them."""
    if os.geteuid() != 0:
        words = ["setpriv", "--inh-caps=-all", "--ambient-caps=-all", "--", *words]
    process = subprocess.Popen(words, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               start_new_session=True)
    try:
        out, error = process.communicate(timeout=limit)
        status = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            out, error = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, error = process.communicate()
        status = "limit"
    return status, out.decode("utf-8", "replace"), error.decode("utf-8", "replace")


def environment(place, ca=None):
    """Nothing of whoever runs this. With `ca`, programs trust the world's authority, as its inhabitants would."""
    clean = {"PATH": path(), "HOME": place.home, "XDG_STATE_HOME": place.state, "LANG": "C.UTF-8", "USER": "ann", "PYTHONDONTWRITEBYTECODE": "1"}
    if ca:
        clean.update(dict.fromkeys(("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE"), ca))
    return clean


def path():
    """The system's programs; before them a Node.js that agents can use, where the system's is too old."""
    from . import agents
    system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    modules = os.path.join(agents.folder(), "node/node_modules")
    for name in sorted(os.listdir(modules)) if os.path.isdir(modules) else []:
        if os.path.exists(os.path.join(modules, name, "bin/node")):
            return os.path.join(modules, name, "bin") + ":" + system
    return system
