//! The error of an agent that cannot be built.
//!
//! Start at [`AgentError`].

use superstep_graph::CompileError;
use superstep_llm::toolset::RegistryError;

/// An agent that cannot be built.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// Two tools have the same name, or a schema is not valid.
    #[error(transparent)]
    Tools(#[from] RegistryError),
    /// The graph does not compile.
    #[error(transparent)]
    Graph(#[from] CompileError),
    /// A permission rule has an invalid pattern.
    #[error("invalid pattern in permission rule for `{tool}`: {problem}")]
    Permission {
        /// The rule's pattern for tools.
        tool: String,
        /// The problem.
        problem: String,
    },
    /// Two models have the same name, so replies could not be attributed; see
    /// [`Named`](superstep_llm::Named).
    #[error("duplicate model name `{name}`; set another `name` for one of the models")]
    ModelName {
        /// Their name.
        name: String,
    },
    /// The name of a guard is not valid.
    #[error("invalid name `{name}` of a guard: it has 1 to 100 letters, digits, `-` and `_`")]
    GuardName {
        /// The name.
        name: String,
    },
    /// Two guards have the same name, so verdicts could not be attributed.
    #[error("duplicate guard `{name}`; give one of the two another name")]
    DuplicateGuard {
        /// Their name.
        name: String,
    },
    /// The name of a handoff is not valid.
    #[error("invalid name `{name}` of a handoff: it has 1 to 48 letters, digits, `-` and `_`")]
    HandoffName {
        /// The name.
        name: String,
    },
    /// Two agents of a conversation have the same name.
    #[error("duplicate agent `{name}` among the handoffs; give each agent of a conversation its own name")]
    DuplicateHandoff {
        /// Their name.
        name: String,
    },
    /// The agent of a handoff was made of a custom graph, whose nodes cannot be taken over.
    #[error("the agent of handoff `{name}` has a custom graph; build it with `Agent::builder`")]
    HandoffGraph {
        /// The name of the handoff.
        name: String,
    },
    /// The agent of a handoff reads a summary, and its configuration has no layer that makes one.
    #[error(
        "the agent of handoff `{name}` cannot read a summary: add a layer `consolidate` to its `context.layers`"
    )]
    HandoffSummary {
        /// The name of the handoff.
        name: String,
    },
    /// [`Finish::schema`](crate::config::Finish::schema) cannot be used.
    #[error("invalid schema in `finish.schema`: it {problem}")]
    ReplySchema {
        /// The problem.
        problem: String,
    },
    /// A cost budget without the prices of the model.
    #[error(
        "a cost budget requires the prices of all models; set `per_million_input` and `per_million_output`, or use models whose prices \
         are known"
    )]
    UnknownPrice,
}

superstep_graph::__private::debug_by_chain!(AgentError);
