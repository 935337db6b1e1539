"""A person at a terminal: types into `bash -i`, in which Kairos runs an agent, and reads the screen."""

import fcntl, os, pty, select, struct, sys, termios, time

kairos, workspace = sys.argv[1], sys.argv[2]
PROMPT = "READY> "
DEADLINE_S = 60


class Screen:
    def __init__(self):
        pid, self.master = pty.fork()
        if pid == 0:
            os.environ["PS1"] = PROMPT
            os.chdir(workspace)
            os.execvp("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"])
        self.seen = ""
        self.wait_for(PROMPT)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        data = text.encode()
        while data:
            # Whoever pastes reads the screen meanwhile.
            readable, writable, _ = select.select([self.master], [self.master], [], DEADLINE_S)
            if readable:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
            if writable:
                data = data[os.write(self.master, data[:1024]):]

    def wait_for(self, text):
        """Waits until `text` is on the screen, and forgets everything up to it."""
        until = time.monotonic() + DEADLINE_S
        while text not in self.seen:
            if time.monotonic() > until:
                sys.exit(f"no {text!r} on the screen: {self.seen[-2000:]!r}")
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
        self.seen = self.seen[self.seen.index(text) + len(text):]

    def run(self, script):
        with open(os.path.join(workspace, "agent.py"), "w") as file:
            file.write(script)
        self.type(f"{kairos} run --oracle deny --workspace {workspace} -- python3 agent.py\n")
        self.wait_for("agent begins")


COOKED = """
print("agent " + "begins", flush=True)
print("heard", input(), flush=True)
"""

RAW = """
import os, signal, struct, sys, fcntl, termios, tty
def size(*_):
    rows, columns = struct.unpack("HHHH", fcntl.ioctl(0, termios.TIOCGWINSZ, b"0" * 8))[:2]
    os.write(1, b"size %dx%d\\r\\n" % (rows, columns))
signal.signal(signal.SIGWINCH, size)
tty.setraw(0)
os.write(1, b"agent " + b"begins\\r\\n")
pasted = 0
while True:
    try:
        piece = os.read(0, 65536)
    except InterruptedError:
        continue
    if piece == b"\\x1b":
        os.write(1, b"a lone escape\\r\\n")
    elif piece == b"\\x1a":
        # What full-screen programs do on Ctrl-Z.
        os.kill(0, signal.SIGTSTP)
        tty.setraw(0)
        os.write(1, b"goes on\\r\\n")
    elif piece == b"q":
        break
    else:
        pasted += len(piece)
        if piece.endswith(b"\\x1b[201~"):
            os.write(1, b"pasted %d\\r\\n" % pasted)
"""

screen = Screen()

# The line discipline of the agent's own terminal turns Ctrl-Z into a stop.
screen.run(COOKED)
screen.type("\x1a")
screen.wait_for("Stopped")
screen.wait_for(PROMPT)
screen.type("jobs\n")
screen.wait_for("Stopped")
screen.type("fg\n")
screen.wait_for("run --oracle")
screen.type("words\n")
screen.wait_for("heard words")
screen.wait_for(PROMPT)
print("ctrl-z ok")

# A program in raw mode does it by itself; twice, since a terminal that is not put back shows then.
screen.resize(30, 90)
screen.run(RAW)
for rows in (31, 32):
    screen.type("\x1a")
    screen.wait_for("Stopped")
    screen.wait_for(PROMPT)
    screen.type(f"echo still $((40+{rows}))\n")
    screen.wait_for(f"still {40 + rows}")
    # Nobody is told of a new size while stopped; it holds all the same afterwards.
    screen.resize(rows, 90)
    screen.type("fg\n")
    screen.wait_for("goes on")
print("raw ctrl-z ok")

screen.resize(45, 101)
screen.wait_for("size 45x101")
print("resize ok")

screen.type("\x1b")
screen.wait_for("a lone escape")
print("escape ok")

text = "\x1b[200~" + "0123456789abcde\n" * 6400 + "\x1b[201~"
screen.type(text)
screen.wait_for(f"pasted {len(text)}")
print("paste ok")

screen.type("q")
screen.wait_for(PROMPT)
screen.type("stty -a | grep -wo -e -icanon -e icanon; echo over $?\n")
screen.wait_for("\nicanon")
screen.wait_for("over 0")
print("restored ok")
