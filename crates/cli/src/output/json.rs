//! The JSON output: one object per line.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;
use superstep::{
    agent::{
        AgentOutcome,
        facades::opencode::{NextStep, Steps},
        state::Metadata,
    },
    llm::Usage,
    node::NodeName,
};
use superstep_session::text::json_line;

use crate::output::{
    cost::EstimatedCost,
    note::print_note,
    run_output::{End, Output},
};

/// Writes events to `out`, everything else to stderr. The format of its lines is a promise, see
/// `docs/cli.md`.
pub(crate) struct Json<W> {
    out: W,
    steps: Steps,
}

#[derive(Serialize)]
struct Line<'a, D> {
    event: &'a str,
    data: D,
}

#[derive(Serialize)]
struct Final<'a> {
    final_reply: &'a str,
    metadata: Metadata,
    thread: &'a str,
    outcome: &'a str,
    usage: Usage,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    usage_estimated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimated_cost: Option<EstimatedCost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a Value>,
    #[serde(skip_serializing_if = "str::is_empty")]
    output_problem: &'a str,
}

#[derive(Serialize)]
struct FinishStep {
    next: NextStep,
}

#[derive(Serialize)]
struct Discarded<'a> {
    nodes: &'a [NodeName],
}

#[derive(Serialize)]
struct Lagged {
    skipped: u64,
}

impl<W: Write> Json<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, steps: Steps::default() }
    }

    fn line(&mut self, event: &str, data: impl Serialize) -> io::Result<()> {
        self.out.write_all(json_line(&Line { event, data })?.as_bytes())?;
        self.out.flush()
    }
}

impl<W: Write> Output for Json<W> {
    fn event(&mut self, name: &str, data: &Value) -> io::Result<()> {
        if self.steps.end_before(name) {
            self.line("finish_step", FinishStep { next: NextStep::Continue })?;
        }
        self.line(name, data)
    }

    fn discarded(&mut self, nodes: &[NodeName]) -> io::Result<()> {
        self.line("discarded", Discarded { nodes })
    }

    fn lagged(&mut self, skipped: u64) -> io::Result<()> {
        self.line("lagged", Lagged { skipped })
    }

    fn note(&mut self, text: &str) {
        print_note(text);
    }

    fn end(&mut self, end: &End<'_>) -> io::Result<()> {
        // A waiting call is a part of its step.
        if end.outcome != AgentOutcome::AwaitingApproval && self.steps.end() {
            self.line("finish_step", FinishStep { next: NextStep::Stop })?;
        }
        let End { thread, state, .. } = *end;
        let (outcome, metadata) = (end.outcome.as_str(), end.metadata());
        let (final_reply, output_problem) = (state.final_reply.as_str(), state.output_problem.as_str());
        let output = state.output.as_ref();
        let (usage, usage_estimated) = (state.usage, state.answer.estimated);
        let estimated_cost = EstimatedCost::of(state);
        self.line(
            "final",
            Final {
                final_reply,
                metadata,
                thread,
                outcome,
                usage,
                usage_estimated,
                estimated_cost,
                output,
                output_problem,
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use superstep::agent::AgentState;

    use super::*;

    #[test]
    fn the_page_lists_the_outcomes() {
        use AgentOutcome::*;
        let all = [
            Completed,
            Limit,
            LoopDetected,
            Budget,
            Length,
            Empty,
            Refused,
            ContentFilter,
            Guarded,
            InvalidOutput,
            Denied,
            ToolFailed,
            HookFailed,
            Cancelled,
            LlmError,
            AwaitingApproval,
        ];
        let page = include_str!("../../docs/cli.md");
        let (_, listed) = page.split_once("`outcome` is ").unwrap();
        let (listed, _) = listed.split_once(". ").unwrap();
        let listed: Vec<&str> = listed.split('`').skip(1).step_by(2).collect();
        assert_eq!(listed, all.map(AgentOutcome::as_str));
    }

    #[test]
    fn lines_have_the_promised_form() {
        let mut out = Vec::new();
        let mut output = Json::new(&mut out);
        output.event("node_start", &json!({"node": "agent"})).unwrap();
        output.event("tool_skipped", &json!({"tool": "t", "id": "c1", "reason": "why"})).unwrap();
        output.event("node_start", &json!({"node": "agent"})).unwrap();
        output.event("llm_token", &json!({"token": "5", "reasoning_token": ""})).unwrap();
        output.discarded(&["tools".into()]).unwrap();
        output.lagged(7).unwrap();
        let state = AgentState { final_reply: "5".into(), ..AgentState::default() };
        let (outcome, took) = (AgentOutcome::Completed, Duration::ZERO);
        output.end(&End { thread: "t", state: &state, outcome, took }).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"event":"node_start","data":{"node":"agent"}}
{"event":"tool_skipped","data":{"id":"c1","reason":"why","tool":"t"}}
{"event":"node_start","data":{"node":"agent"}}
{"event":"finish_step","data":{"next":"continue"}}
{"event":"llm_token","data":{"reasoning_token":"","token":"5"}}
{"event":"discarded","data":{"nodes":["tools"]}}
{"event":"lagged","data":{"skipped":7}}
{"event":"finish_step","data":{"next":"stop"}}
{"event":"final","data":{"final_reply":"5","metadata":{"steps_taken":0,"tools_used":[],"stop_reason":"","llm_calls":0},"thread":"t","outcome":"completed","usage":{"input_tokens":0,"output_tokens":0}}}
"#
        );
    }
}
