//! The names of metrics and attributes.
//!
//! Those that begin with `gen_ai` are of OpenTelemetry's conventions for generative AI, which are in development; those that begin
//! with `superstep` are of this project.
//!
//! # Source
//! OpenTelemetry, Semantic Conventions for GenAI metrics.

/// The duration of a request to a model, in seconds.
pub const OPERATION_DURATION: &str = "gen_ai.client.operation.duration";

/// The number of tokens of a request to a model, by [`TOKEN_TYPE`].
pub const TOKEN_USAGE: &str = "gen_ai.client.token.usage";

/// The number of tokens of a request that the provider reports as parts of those, by [`TOKEN_TYPE`].
pub const TOKEN_PARTS: &str = "superstep.token.parts";

/// The duration of a run, in seconds.
pub const RUN_DURATION: &str = "superstep.run.duration";

/// The duration of an attempt of a node, in seconds.
pub const NODE_DURATION: &str = "superstep.node.duration";

/// The duration of a call of a tool or a sub-agent, in seconds.
pub const TOOL_DURATION: &str = "superstep.tool.duration";

/// The size of the updates of a stored checkpoint, in bytes.
pub const CHECKPOINT_SIZE: &str = "superstep.checkpoint.size";

/// The number of attempts and requests that failed and were repeated.
pub const REPEATED: &str = "superstep.repeated";

/// The cost of calls of models whose prices are configured, in the currency of the prices.
pub const COST: &str = "superstep.cost";

/// `chat`, `execute_tool` or `invoke_agent`.
pub const OPERATION: &str = "gen_ai.operation.name";

/// The name of the requested model.
pub const MODEL: &str = "gen_ai.request.model";

/// The number of tokens of a request.
pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";

/// The number of tokens of an answer.
pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";

/// The number of input tokens that were read from the provider's cache.
pub const CACHE_READ_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";

/// The number of input tokens that were written to the provider's cache.
pub const CACHE_WRITE_TOKENS: &str = "gen_ai.usage.cache_write.input_tokens";

/// The number of output tokens of the reasoning.
pub const REASONING_TOKENS: &str = "gen_ai.usage.reasoning.output_tokens";

/// `input` or `output`; of parts `cache_read`, `cache_write` or `reasoning`.
pub const TOKEN_TYPE: &str = "gen_ai.token.type";

/// The name of a tool.
pub const TOOL: &str = "gen_ai.tool.name";

/// The name of a sub-agent.
pub const AGENT: &str = "gen_ai.agent.name";

/// The class of a failure.
pub const ERROR: &str = "error.type";

/// The name of a graph.
pub const GRAPH: &str = "graph";

/// The name of a node.
pub const NODE: &str = "node";

/// The end of a run or an attempt, such as `completed`.
pub const STATUS: &str = "status";

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the name that Prometheus gives a metric with this suffix for its unit.
    fn in_prometheus(name: &str, suffix: &str) -> String {
        name.replace('.', "_") + suffix
    }

    #[test]
    fn the_dashboard_has_every_metric_under_its_name_and_no_other() {
        let dashboard = include_str!("../docs/dashboard.json");
        let mut metrics: Vec<_> = [OPERATION_DURATION, RUN_DURATION, NODE_DURATION, TOOL_DURATION]
            .map(|name| in_prometheus(name, "_seconds"))
            .into();
        metrics.push(in_prometheus(TOKEN_USAGE, ""));
        metrics.push(in_prometheus(TOKEN_PARTS, "_total"));
        metrics.push(in_prometheus(CHECKPOINT_SIZE, "_bytes"));
        metrics.push(in_prometheus(REPEATED, "_total"));
        metrics.push(in_prometheus(COST, "_total"));
        for metric in &metrics {
            assert!(dashboard.contains(metric), "{metric}");
        }
        let labels = [MODEL, TOKEN_TYPE, TOOL, AGENT].map(|name| name.replace('.', "_"));
        let words = dashboard.split(|c: char| !c.is_alphanumeric() && c != '_');
        for word in words.filter(|word| word.starts_with("gen_ai_") || word.starts_with("superstep_")) {
            let is_metric = metrics.iter().any(|metric| word.starts_with(metric));
            assert!(is_metric || labels.iter().any(|label| label == word), "{word}");
        }
    }
}
