# Recipes for developers. `scripts/setup` installs what they need; without `just`, call the scripts.

# Licences, format, lints, tests.
test:
    scripts/test

# What the tests need, on a fresh machine.
setup:
    scripts/setup

# Every known way round the boundary, each with its witness outside.
security *filter:
    cargo build --package kairos
    cargo test --package kairos-e2e --test security -- {{filter}}

# All agents, each unmodified, on the deploy checklist. claude-code is proprietary: this installs it on your own account.
agents:
    scripts/install-agents all
    cargo build --package kairos
    cargo test --package kairos-e2e --test agents -- --include-ignored --test-threads 1

# Ten thousand requests, ten bodies of 2 GB at once, and fifty thousand held requests; needs 20 GB of disk. KAIROS_LOAD_BODY_BYTES and KAIROS_LOAD_HELD make it smaller.
load:
    cargo test --release --package kairos-net --test load -- --include-ignored --nocapture --test-threads 1

# What the net channel costs beside a direct connection, a minimal Rust proxy and mitmproxy; writes docs/performance.md.
perf-net *arguments:
    cargo build --release --package kairos
    cargo build --release --package kairos-net --example measure
    scripts/measure-net {{arguments}}

# Every runtime trusts the boundary, and real clients work through it: installs what scripts/install-runtimes lists.
runtimes:
    cargo build --package kairos
    KAIROS_RUNTIMES="$(scripts/install-runtimes)" cargo test --package kairos-e2e --test runtimes --test clients -- --include-ignored

# A stream that says nothing for ten minutes is still there afterwards.
idle:
    cargo build --package kairos
    cargo test --package kairos-e2e --test idle -- --include-ignored --nocapture

# The net channel under public conformance suites, inside a real boundary; writes docs/conformance.md.
conformance *arguments:
    cargo build --release --package kairos
    scripts/conformance {{arguments}}

# Kill -9 at 100 random instants (the test command does 25).
crash instants="100":
    cargo build --package kairos
    KAIROS_CRASH_INSTANTS={{instants}} cargo test --package kairos-e2e --test crash -- --nocapture

# Added latency, beside the bare system, kernel overlayfs and mitmproxy; writes docs/performance.md.
perf *arguments:
    cargo build --release --package kairos
    scripts/measure {{arguments}}

# The file channel beside the bare directory, kernel overlayfs and fuse-overlayfs; writes docs/performance.md; needs root.
perf-files *arguments:
    scripts/measure-files {{arguments}}

# Decisions a second through `kairos decide --stdio`, with a harness at the other end.
perf-decide *arguments:
    cargo build --release --package kairos
    scripts/measure-decide {{arguments}}

# The sensitive search with up to 10 million tokens, beside aho-corasick and ripgrep; writes docs/performance.md.
bench-scan *arguments:
    scripts/measure-scan {{arguments}}

# The file channel under pjdfstest, fsx, ten thousand random sequences, and real work (git, cargo, npm, PostgreSQL, ...); needs root.
files *arguments:
    scripts/files {{arguments}}

# Benchmarks of the crates that have some.
bench *arguments:
    cargo bench --workspace {{arguments}}

# Real agents, real effects, witnesses outside: docs/real-effects.md. `just eval-real --sample 3` takes about two minutes.
eval-real *arguments:
    cargo build --release --package kairos
    eval/real/run run {{arguments}}

# What Kairos stops and what it costs, on AgentDojo and AgentDyn: docs/evaluation.md. `just eval DIR` replays the records of a folder, too.
eval data="" *arguments:
    cargo build --release --package kairos
    KAIROS="${CARGO_TARGET_DIR:-target}/release/kairos" "${CARGO_TARGET_DIR:-target}/eval-venv/bin/python" -m kairos_eval all {{ if data != "" { "--data " + quote(data) } else { "" } }} --out eval-results {{arguments}}

# Tables and plots again, from the result files that are kept.
eval-report:
    "${CARGO_TARGET_DIR:-target}/eval-venv/bin/python" -m kairos_eval report

# The simulation from fresh seeds: `just simulate --seconds 3600`; one run again: `just simulate --seed N --steps N --tell`.
simulate *arguments:
    cargo run --release --package kairos-sim --bin simulate -- {{arguments}}

# Every interleaving of three effects, with a crash anywhere.
model:
    cargo test --release --package kairos-sim --test model -- --nocapture

# Which checker finds which planted bug.
planted:
    cargo test --package kairos-sim --features planted --test planted -- --nocapture

# One fuzz target (or `all`) under libFuzzer.
fuzz target="all" seconds="60":
    scripts/fuzz {{target}} {{seconds}}

# A few seconds for each.
fuzz-short:
    scripts/fuzz all 10

# What guards and boundary are worth, on real effects; writes docs/results/guards. `just measure-guards --runs 2` takes minutes.
measure-guards *arguments:
    cargo build --release --package kairos
    python3 tests/guards/measure.py --kairos "${CARGO_TARGET_DIR:-target}/release/kairos" {{arguments}}
