//! Guides. Their code is compiled and run with the tests.

/// Makes a module of each page of `docs/`.
macro_rules! guides {
    ($($(#[$when:meta])? $name:ident = $file:literal;)*) => {
        $(
            $(#[$when])?
            #[doc = superstep_macros::guide!($file)]
            pub mod $name {
                // The compiler learns from it that a change of the page changes this crate.
                const _: &str = include_str!(concat!("../", $file));
            }
        )*
    };
}

guides! {
    #[cfg(all(feature = "openai", feature = "sqlite"))]
    start = "docs/start.md";
    #[cfg(all(feature = "agent", feature = "sqlite"))]
    langgraph = "docs/langgraph.md";
    streaming = "docs/streaming.md";
    #[cfg(feature = "opentelemetry")]
    tracing = "docs/tracing.md";
    state = "docs/state.md";
    nodes = "docs/nodes.md";
    interrupts = "docs/interrupts.md";
    limits = "docs/limits.md";
    subgraphs = "docs/subgraphs.md";
    store = "docs/store.md";
    #[cfg(feature = "postgres")]
    postgres = "docs/postgres.md";
    #[cfg(feature = "sealed")]
    encryption = "docs/encryption.md";
    #[cfg(all(feature = "agent", feature = "worker"))]
    workers = "docs/workers.md";
    #[cfg(feature = "restate")]
    restate = "docs/restate.md";
    #[cfg(all(feature = "server", feature = "sqlite"))]
    server = "docs/server.md";
    axum = "docs/axum.md";
    savers = "docs/savers.md";
    #[cfg(feature = "agent")]
    presets = "docs/presets.md";
    #[cfg(feature = "agent")]
    facades = "docs/facades.md";
    #[cfg(feature = "agent")]
    models = "docs/models.md";
    #[cfg(feature = "agent")]
    budgets = "docs/budgets.md";
    #[cfg(feature = "agent")]
    context = "docs/context.md";
    #[cfg(feature = "workspace-tools")]
    instructions = "docs/instructions.md";
    drawing = "docs/drawing.md";
    checkpoints = "docs/checkpoints.md";
    changing = "docs/changing.md";
    replay = "docs/replay.md";
    #[cfg(feature = "openai")]
    testing = "docs/testing.md";
    text = "docs/text.md";
    #[cfg(feature = "agent")]
    turns = "docs/turns.md";
    #[cfg(feature = "agent")]
    structured = "docs/structured.md";
    #[cfg(feature = "agent")]
    tools = "docs/tools.md";
    #[cfg(feature = "mcp")]
    mcp = "docs/mcp.md";
    #[cfg(feature = "agent")]
    extending = "docs/extending.md";
    #[cfg(all(feature = "agent", feature = "sqlite"))]
    memory = "docs/memory.md";
    #[cfg(feature = "workspace-tools")]
    snapshots = "docs/snapshots.md";
    #[cfg(feature = "workspace-tools")]
    dreams = "docs/dreams.md";
    #[cfg(feature = "agent")]
    subagents = "docs/subagents.md";
    #[cfg(feature = "agent")]
    handoff = "docs/handoff.md";
    #[cfg(feature = "agent")]
    guardrails = "docs/guardrails.md";
    benchmarks = "docs/BENCHMARKS.md";
    compare = "docs/COMPARE.md";
    design = "docs/DESIGN.md";
    architecture = "docs/architecture.md";
    cli = "docs/cli.md";
    acp = "docs/acp.md";
    security = "docs/security.md";
    session = "docs/session.md";
}

#[doc = superstep_macros::guide!("docs/cookbook.md")]
#[cfg(all(feature = "agent", feature = "sqlite"))]
pub mod cookbook {
    // The compiler learns from it that a change of the page changes this crate.
    const _: &str = include_str!("../docs/cookbook.md");

    guides! {
        chat = "docs/cookbook/chat.md";
        approval = "docs/cookbook/approval.md";
        map_reduce = "docs/cookbook/map_reduce.md";
        supervisor = "docs/cookbook/supervisor.md";
        rag = "docs/cookbook/rag.md";
        digest = "docs/cookbook/digest.md";
        signals = "docs/cookbook/signals.md";
    }
}
