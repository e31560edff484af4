//! The tools that a replayed turn is offered.

/// The source tools of a replay: see [`ToolSource`](superstep_llm::toolset::ToolSource).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplayTools {
    /// The tools that the thread recorded, regardless of the sources.
    #[default]
    Recorded,
    /// The tools that the sources have now: the replay ends where they differ from the recorded ones.
    Current,
}
