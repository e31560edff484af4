# One line each; `just` lists them.
default:
    @just --list

# Everything that must pass.
ci:
    bash .ci/run

test:
    cargo test --workspace --all-features

lint:
    cargo fmt --all --check && cargo clippy --workspace --all-features --all-targets -- -D warnings

docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --no-deps

# The pages of `docs` as a book with a search, in `target/book`; the first time it installs mdBook, which takes minutes.
book:
    bash .ci/book

# Against the reference and other Rust engines, which it installs into .peers; the first time takes ten minutes.
peers *args:
    python3 crates/superstep/benches/peers/run.py {{args}}

# The loop of mini-swe-agent beside the original, which it installs from PyPI, with the same scripted answers.
mini-swe-agent steps="200" rounds="5":
    python3 crates/superstep/benches/mini_swe_agent.py target/mini-swe-agent {{steps}} {{rounds}}

# Draws the pictures in `docs/plots` from the results that `just peers` stored.
plots:
    python3 crates/superstep/benches/peers/plots.py

# Builds the page of the studio into `crates/server/studio/dist`, and checks it; needs npm.
studio:
    bash .ci/studio

# The page of the studio in a browser with the aims for its speed, against an optimized server; needs chromium, and once `just server-clients`.
studio-speed:
    AIMS=1 cargo test --release -p superstep-server --test server -- studio::page --nocapture

# Draws the picture of the studio in `docs/screens`; needs the same.
studio-screens:
    SCREENS="$PWD/docs/screens" ONLY="a thread has" cargo test -p superstep-server --test server -- studio::page

# Draws the pictures of the chat in `docs/screens`; needs tmux.
screens:
    cargo build -p superstep-cli && python3 docs/screens/chat.py target/debug/superstep

# Turns of one chat in a terminal of tmux, with the memory of the process; the tests do 30.
chat-turns turns="3000":
    SUPERSTEP_CHAT_TURNS={{turns}} cargo test -p superstep-cli --all-features --test cli -- chat::many_turns --nocapture

bench:
    cargo bench -p superstep --bench supersteps

# Threads and jobs on PostgreSQL, beside the bare statements and LangGraph's saver, which it installs from PyPI; takes some minutes.
postgres-bench:
    sh crates/worker/benches/postgres.sh target/langgraph-postgres

# Runs over four workers on one PostgreSQL, with killed and stopped processes, lost connections and crashes of the server; the tests do 16.
crash-proof runs="1000" seed="15":
    SUPERSTEP_PROOF_RUNS={{runs}} SUPERSTEP_PROOF_SEED={{seed}} cargo test -p superstep-worker --all-features --test worker -- proof::runs --nocapture

# Runs over two workers and three nodes of Restate that are killed; the tests do 16 on one node.
restate-proof runs="1000" seed="15" nodes="3" work_ms="40": restate
    SUPERSTEP_PROOF_WORK_MS={{work_ms}} SUPERSTEP_PROOF_RUNS={{runs}} SUPERSTEP_PROOF_SEED={{seed}} SUPERSTEP_PROOF_NODES={{nodes}} cargo test --release -p superstep-restate --all-features --test restate -- proof::runs --nocapture --test-threads=1

# A run whose worker ends before or after each request of it; the tests try some of them.
restate-crashes every="1": restate
    SUPERSTEP_CRASH_EVERY={{every}} cargo test -p superstep-restate --all-features --test restate -- crashes --nocapture

# Runs over two workers that are killed and three nodes that are paused, so that a node goes on as the leader that it was.
restate-pauses runs="300" seed="15": restate
    SUPERSTEP_PROOF_RUNS={{runs}} SUPERSTEP_PROOF_SEED={{seed}} SUPERSTEP_PROOF_NODES=3 cargo test -p superstep-restate --all-features --test restate -- runs_over_paused --nocapture

# Runs over three nodes of which one is cut off from the others for twelve seconds; needs root on Linux.
restate-partition runs="200" seed="15": restate
    SUPERSTEP_PARTITIONED={{runs}} SUPERSTEP_PROOF_SEED={{seed}} cargo test -p superstep-restate --all-features --test restate -- runs_over_a_partition --nocapture

# Threads that wait for an answer while no worker runs, runs over two upgrades, stopped workers, a run of many supersteps, and a node of 15 minutes.
restate-limits parked="10000" upgraded="100" stopped="64" steps="10000" seconds="900": restate
    SUPERSTEP_PARKED={{parked}} cargo test -p superstep-restate --all-features --test restate -- limits::threads --nocapture
    SUPERSTEP_UPGRADED={{upgraded}} SUPERSTEP_STOPPED={{stopped}} SUPERSTEP_STEPS={{steps}} SUPERSTEP_LONG_NODE={{seconds}} cargo test -p superstep-restate --all-features --test restate -- endurance --nocapture --test-threads=1

# The cost of a superstep on Restate beside that of the calls that it is made of.
restate-speed rounds="9" steps="300" longest="5000": restate
    SUPERSTEP_SPEED_ROUNDS={{rounds}} SUPERSTEP_SPEED_STEPS={{steps}} SUPERSTEP_SPEED_LONGEST={{longest}} cargo test --release -p superstep-restate --all-features --test restate -- speed --nocapture

# Every scenario of the engine on a Restate server, as on the other databases.
restate-scenarios: restate
    SUPERSTEP_RESTATE_SCENARIOS=1 cargo test -p superstep --all-features --test it -- in_restate

# Graphs and the agent under the simulator, each process from a journal as Restate replays it.
restate-simulation seeds="2000":
    SUPERSTEP_SIM_SEEDS={{seeds}} cargo test -p superstep-restate --all-features --lib -- journaled

# The server of Restate, for the tests that want it.
restate:
    sh crates/restate/tests/install.sh target/restate

# Durability and tampering on superstep and LangGraph, by two kits from PyPI, which it installs the first time.
kits:
    python3 crates/cli/benches/kits/run.py target/kits

# Counts instructions under valgrind, and fails if a case needs 3 % more than stored; `--save` stores, `--only WORD` selects.
instructions *args:
    python3 crates/superstep/benches/instructions.py {{args}}

# Needs `cargo install cargo-deny`; a test checks licences, bans and sources without it.
deny:
    cargo deny check

# Threads that were written to do harm, all 512 kinds; the tests try eight.
forgeries n="512":
    SUPERSTEP_FORGERIES={{n}} cargo test -p superstep-cli --all-features --test cli -- forged

# Flips every bit of a small database, or each nth, one after the other, which takes long; the tests try some of them.
bits nth="1":
    SUPERSTEP_EVERY_BIT={{nth}} cargo test --release -p superstep-sqlite --test sqlite -- bits --nocapture

# Flips bits in the stored rows of a thread before every command; the tests try a dozen for each.
rot n="500":
    SUPERSTEP_ROT={{n}} cargo test -p superstep-cli --all-features --test cli -- rot::

# Simulated crashes of each graph under so many seeds; the tests try a few hundred.
seeds n="2000":
    SUPERSTEP_SIM_SEEDS={{n}} cargo test -p superstep --all-features --test it -- simulation

# Property tests of the agent with other inputs than those of the tests, under so many seeds.
properties n="20":
    for seed in $(seq {{n}}); do PROPTEST_RNG_SEED=$seed cargo test -p superstep --all-features --test it -- agent::property || exit; done

# Other programs that swap folders for links and edit files at the same time, for some minutes; the tests do it for a moment.
races times="200":
    SUPERSTEP_RACES={{times}} cargo test --release -p superstep-tools --all-features --lib -- racing --nocapture

# Accept changed snapshots; needs `cargo install cargo-insta`.
review:
    cargo insta review

# A project as `superstep new` creates it, built, tested and run against this workspace; the first time takes minutes. CI compiles its sources with the tests.
new-project:
    bash tests/cli/new_project.sh

# Real MCP servers, and the protocol's suite for clients, for the tests that want them.
mcp:
    sh tests/it/mcp/install.sh target/mcp

# Clients of the Agent Client Protocol, for the tests that want them: the SDKs for JavaScript and Python, and acpx; takes some minutes.
acp-clients:
    sh tests/cli/acp/clients/install.sh target/acp-clients
    cargo test -p superstep-cli --all-features --test cli -- acp_clients

# Many prompts in one process of `superstep acp`, whose memory stays flat; the tests try a hundred.
acp-prompts n="1000":
    SUPERSTEP_ACP_PROMPTS={{n}} cargo test -p superstep-cli --all-features --test cli -- the_memory_of_a_long_process

# Clients of the server, for the tests that want them: the SDKs of LangGraph for Python and JavaScript, hooks for React, AG-UI; takes some minutes.
server-clients:
    sh crates/server/tests/clients/install.sh target/server-clients
    cargo test -p superstep-server --test server -- clients

# Fifty clients of a server that is killed twenty times; the tests have twelve and four.
server-kills seed="7" kills="20" clients="50":
    SUPERSTEP_KILLS_SEED={{seed}} SUPERSTEP_KILLS={{kills}} SUPERSTEP_KILLS_CLIENTS={{clients}} cargo test -p superstep-server --test server -- kills::accepted --nocapture

# Bodies of any shape for all endpoints of the server; the tests send 1,500.
server-fuzz seed="1" requests="50000":
    SUPERSTEP_SERVER_FUZZ_SEED={{seed}} SUPERSTEP_SERVER_FUZZ={{requests}} cargo test -p superstep-server --test server -- hostile::no_body --nocapture

# Records the exchanges that the tests of the server repeat, with the development server of LangGraph, which it installs from PyPI the first time.
record-exchanges:
    sh crates/server/tests/recorded/install.sh target/langgraph-server
    python3 crates/server/tests/recorded/record.py target/langgraph-server

# The load that a server takes, beside the development server of LangGraph, which it installs from PyPI; takes some minutes.
server-load:
    sh crates/server/benches/load.sh target/langgraph-dev

# A collector of OpenTelemetry with a page for traces, and a trace in it; installs Phoenix from PyPI the first time.
traces:
    sh examples/telemetry.sh

# PostgreSQL with pgvector, for the tests of queries by meaning that want it.
pgvector:
    sh crates/postgres/tests/pgvector.sh target/pgvector

# A kit from PyPI that grades what stays of a conversation over several compactions, for the tests that want it.
compaction:
    sh tests/it/compaction/install.sh target/compaction

# LangGraph for Python, for the test of the page that compares programs.
langgraph:
    sh tests/it/langgraph/install.sh target/langgraph

# A mock server that judges clients, for the test that asks for a second opinion.
llmock:
    python3 -m venv target/llmock && target/llmock/bin/pip install llmock==0.2.2

# Model servers that mean no good, with the default bounds: what the program takes at the most, and how long.
hostile-models:
    HOSTILE_MODELS=1 cargo test --release -p superstep-cli --test cli -- hostile::no_model --nocapture

# MCP servers that mean no good, with the default bounds: what the program takes at the most, and how long. Takes some minutes.
hostile-mcp:
    HOSTILE_MCP=1 cargo test --release -p superstep-cli --test cli -- hostile_mcp --nocapture

# Fuzzes `stored_rows`, `thread_text`, `sse`, `permission_rules` or `configuration` under libFuzzer; the tests try a few thousand inputs of each.
fuzz target minutes="10":
    sh tests/fuzz/run.sh {{target}} {{minutes}}

# Builds every crate from its own tarball, as a registry would hand it out.
package:
    bash .ci/package

# Each feature alone, none, and all; needs `cargo install cargo-hack`.
features:
    cargo hack check --workspace --each-feature --no-dev-deps

# Also all pairs of features, which takes long.
feature-pairs:
    cargo hack check --workspace --feature-powerset --depth 2 --no-dev-deps

# The oldest compiler that the manifest states; needs `rustup toolchain install 1.91.0`.
msrv:
    cargo +1.91.0 check --workspace --all-features

# Changes of the public API since a commit, or, with no argument, since the last release in the registry; needs `cargo install cargo-semver-checks`.
semver rev="":
    cargo semver-checks --workspace --all-features {{ if rev == "" { "" } else { "--baseline-rev " + rev } }}
