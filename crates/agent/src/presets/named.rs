//! Presets that reproduce the designs of other agents.

use std::time::Duration;

use superstep_llm::{
    ModelRetry,
    retries::{Jitter, RetryClass},
};

use crate::{
    ReactConfig,
    config::{
        AfterEmpty, ApprovalConfig, AtLimit, Budget, ContextBudget, ContextConfig, ContextLayer, EmptyPolicy,
        Exhausted, Finish, FinishBy, Keep, LengthPolicy, Limit, LimitUnit, LoopAction, LoopRule, MediaConfig,
        Repeat, ResultOrder, Retrieve, ToolErrors, ToolMode, Truncate, TruncateSide, prompts,
    },
};

/// A named configuration.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name of the preset.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// Creates its configuration.
    pub config: fn() -> ReactConfig,
}

/// All presets, `default` first.
pub const PRESETS: [Preset; 6] = [
    Preset {
        name: "default",
        about: "recommended: parallel tools, bounded continuations; repeated calls are warned about, then \
            refused, then answered",
        config: ReactConfig::default,
    },
    Preset {
        name: "cococat",
        about: "20 rounds, five tools at once, short results, `continue` after a cut, errors as replies",
        config: ReactConfig::cococat,
    },
    Preset {
        name: "opencode",
        about: "15 model calls with a reminder at the last, retries with jitter, a third identical call refused",
        config: ReactConfig::opencode,
    },
    Preset {
        name: "harness",
        about: "40 model calls, then a fixed reply; sequential tools, results of 16,000 characters",
        config: ReactConfig::harness,
    },
    Preset {
        name: "graph",
        about: "25 rounds, then an answer without tools; two similar calls end the turn",
        config: || ReactConfig::graph(25),
    },
    Preset {
        name: "agentscope",
        about: "10 model calls, then a summary; adds a short reply when it is interrupted",
        config: ReactConfig::agentscope,
    },
];

impl Default for ReactConfig {
    /// Returns the preset `default`.
    fn default() -> Self {
        Self {
            limit: Limit {
                max: 25,
                unit: LimitUnit::ToolRounds,
                at: AtLimit::NoToolsCall { hint: Some(prompts::SUMMARISE.into()) },
            },
            retry: ModelRetry::default(),
            length: LengthPolicy::Continue { max: 3, prompt: prompts::CONTINUE.into() },
            empty: EmptyPolicy::Retry {
                max: 2,
                nudge: Some(prompts::NUDGE.into()),
                then: AfterEmpty::NoToolsCall,
            },
            tool_mode: ToolMode::Parallel { max: 8 },
            truncate: Some(Truncate {
                keep: TruncateSide::HeadTail,
                spill: Some("\n[truncated {omitted} of {total} chars; all of it is in {path}]\n".into()),
                ..Truncate::chars(16_000, "\n[truncated {omitted} of {total} chars]\n")
            }),
            context: ContextConfig {
                layers: vec![
                    ContextLayer::MicroCompact(Truncate {
                        keep: TruncateSide::HeadTail,
                        ..Truncate::chars(2_000, "\n[… {omitted} characters, not shown any more …]\n")
                    }),
                    ContextLayer::Prune {
                        protect: 40_000,
                        min_gain: 20_000,
                        protect_turns: 0,
                        each_turn: false,
                    },
                    ContextLayer::consolidate(10),
                    ContextLayer::Snip { keep_last: 4 },
                ],
                keep: Keep::recommended(),
                ..ContextConfig::default()
            },
            loops: vec![
                LoopRule { when: Repeat::NoProgress { n: 5 }, then: LoopAction::Answer },
                LoopRule { when: Repeat::Period { max_period: 4, repeats: 5 }, then: LoopAction::Answer },
                LoopRule { when: Repeat::NoProgress { n: 4 }, then: LoopAction::Refuse },
                LoopRule { when: Repeat::Period { max_period: 4, repeats: 4 }, then: LoopAction::Refuse },
                LoopRule { when: Repeat::NoProgress { n: 3 }, then: LoopAction::Warn },
                LoopRule { when: Repeat::Period { max_period: 4, repeats: 3 }, then: LoopAction::Warn },
            ],
            repair: true,
            keep_interrupted: true,
            ..Self::bare()
        }
    }
}

impl ReactConfig {
    /// Returns the preset of this name; see [`PRESETS`].
    pub fn preset(name: &str) -> Option<Self> {
        PRESETS.iter().find(|preset| preset.name == name).map(|preset| (preset.config)())
    }

    /// Returns the preset `graph`, the design that the graph follows: tools run sequentially, results are not
    /// truncated, two similar consecutive calls end the turn.
    pub fn graph(max_steps: u32) -> Self {
        Self {
            limit: Limit {
                max: max_steps,
                unit: LimitUnit::ToolRounds,
                at: AtLimit::NoToolsCall { hint: None },
            },
            loops: vec![LoopRule { when: Repeat::Similar { n: 2, threshold: 0.9 }, then: LoopAction::Stop }],
            ..Self::bare()
        }
    }

    /// Returns the preset `cococat`.
    pub fn cococat() -> Self {
        Self {
            limit: Limit { max: 20, unit: LimitUnit::ToolRounds, at: AtLimit::LastMessage },
            retry: ModelRetry {
                max_attempts: 3,
                cap: Duration::from_secs(3600),
                jitter: Jitter::None,
                retries: RetryClass::Any,
                ..ModelRetry::default()
            },
            exhausted: Exhausted::AsContent,
            length: LengthPolicy::Continue { max: 5, prompt: prompts::CONTINUE.into() },
            empty: EmptyPolicy::Retry { max: 3, nudge: None, then: AfterEmpty::Stop },
            tool_mode: ToolMode::Parallel { max: 5 },
            truncate: Some(Truncate::chars(2_000, "[truncated {omitted} chars]")),
            // Its third layer is the truncation of results before they are stored.
            context: ContextConfig {
                window: Some(131_072),
                layers: vec![ContextLayer::consolidate(10), ContextLayer::Snip { keep_last: 4 }],
                ..ContextConfig::default()
            },
            ..Self::bare()
        }
    }

    /// Returns the preset `opencode`.
    pub fn opencode() -> Self {
        Self {
            limit: Limit {
                max: 15,
                unit: LimitUnit::ModelCalls,
                at: AtLimit::Reminder(prompts::REMINDER.into()),
            },
            retry: ModelRetry {
                max_attempts: 3,
                cap: Duration::from_secs(10),
                jitter: Jitter::UpTo(Duration::from_secs(1)),
                retries: RetryClass::Overload,
                ..ModelRetry::default()
            },
            exhausted: Exhausted::Fail,
            truncate: Some(Truncate {
                max_lines: Some(2_000),
                max_bytes: Some(50 * 1024),
                marker: "\n[truncated {omitted} {unit}]".into(),
                spill: Some("\n[truncated {omitted} {unit}; all of it is in {path}]".into()),
                ..Truncate::default()
            }),
            context: ContextConfig {
                budget: ContextBudget::Reserve(32_000),
                layers: vec![
                    ContextLayer::Prune {
                        protect: 40_000,
                        min_gain: 20_000,
                        // A synthetic message is not a user turn in that design, which matters only if turns are protected.
                        protect_turns: 1,
                        each_turn: true,
                    },
                    ContextLayer::consolidate(10),
                ],
                ..ContextConfig::default()
            },
            loops: vec![LoopRule { when: Repeat::Identical { n: 3 }, then: LoopAction::Refuse }],
            synthetic_after_tools: Some(prompts::SYNTHETIC.into()),
            parts: true,
            keep_interrupted: true,
            ..Self::bare()
        }
    }

    /// Returns the preset `harness`.
    pub fn harness() -> Self {
        Self {
            limit: Limit {
                max: 40,
                unit: LimitUnit::ModelCalls,
                at: AtLimit::Fixed(prompts::MAX_ITERATIONS.into()),
            },
            retry: ModelRetry { max_attempts: 4, jitter: Jitter::None, ..ModelRetry::default() },
            exhausted: Exhausted::Fail,
            truncate: Some(Truncate::chars(16_000, "\n... truncated")),
            ..Self::bare()
        }
    }

    /// Returns the preset `agentscope`.
    pub fn agentscope() -> Self {
        Self {
            limit: Limit {
                max: 10,
                unit: LimitUnit::ModelCalls,
                at: AtLimit::NoToolsCall { hint: Some(prompts::SUMMARISE.into()) },
            },
            exhausted: Exhausted::Fail,
            finish: Finish { by: FinishBy::Tool, ..Finish::default() },
            halt: Some(prompts::HALT.into()),
            retrieve: Some(Retrieve::default()),
            keep_interrupted: true,
            ..Self::bare()
        }
    }

    /// Returns the settings common to presets that do not state otherwise.
    fn bare() -> Self {
        Self {
            system_prompt: String::new(),
            limit: Limit { max: 25, unit: LimitUnit::ToolRounds, at: AtLimit::NoToolsCall { hint: None } },
            retry: ModelRetry { max_attempts: 3, ..ModelRetry::default() },
            exhausted: Exhausted::Explain,
            length: LengthPolicy::Accept,
            empty: EmptyPolicy::Accept,
            tool_mode: ToolMode::Sequential,
            result_order: ResultOrder::Call,
            tool_errors: ToolErrors::FeedBack,
            permissions: Vec::new(),
            approval: ApprovalConfig::default(),
            tool_timeout: None,
            cancel_grace: Duration::from_millis(250),
            truncate: None,
            media: MediaConfig::default(),
            context: ContextConfig::default(),
            loops: Vec::new(),
            budget: Budget::default(),
            finish: Finish::default(),
            repair: false,
            text_calls: false,
            keep_partial: false,
            keep_interrupted: false,
            remaining_hint: None,
            synthetic_after_tools: None,
            halt: None,
            parts: false,
            retrieve: None,
            memory_timeout: Duration::from_secs(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_found_by_their_names_and_survive_being_written_down() {
        for preset in PRESETS {
            let config = ReactConfig::preset(preset.name).unwrap();
            let json = serde_json::to_value(&config).unwrap();
            assert_eq!(serde_json::from_value::<ReactConfig>(json).unwrap(), config, "{}", preset.name);
        }
        assert_eq!(ReactConfig::preset("nope"), None);
    }

    #[test]
    fn missing_settings_are_those_of_the_preset_and_unknown_ones_are_rejected() {
        let read = |json| ReactConfig::read(serde_json::from_str(json).unwrap());
        let hi = ReactConfig { system_prompt: "hi".into(), ..ReactConfig::default() };
        assert_eq!(read(r#"{"system_prompt":"hi"}"#).unwrap(), hi);
        let switched = read(r#"{"preset":"cococat","empty":"accept","limit":{"max":3}}"#).unwrap();
        let cococat = ReactConfig::cococat();
        let limit = Limit { max: 3, ..cococat.limit.clone() };
        assert_eq!(switched, ReactConfig { empty: EmptyPolicy::Accept, limit, ..cococat });
        let other =
            read(r#"{"preset":"cococat","tool_mode":"sequential","limit":{"at":{"fixed":"x"}}}"#).unwrap();
        assert_eq!((other.tool_mode, other.limit.at), (ToolMode::Sequential, AtLimit::Fixed("x".into())));
        assert_eq!(read(r#"{"truncate":false}"#).unwrap().truncate, None);
        let lines =
            read(r#"{"preset":"opencode","truncate":{"max_bytes":false}}"#).unwrap().truncate.unwrap();
        assert_eq!((lines.max_lines, lines.max_bytes), (Some(2_000), None));
        for (given, wanted) in [
            (r#"{"max_step":3}"#, "unknown field `max_step`"),
            (r#"{"limit":{"most":3}}"#, "`limit`: unknown field `most`"),
            (
                r#"{"limit":{"max":"x"}}"#,
                "`limit.max`: invalid type: string \"x\", expected a whole number from 0 on",
            ),
            (
                r#"{"retry":{"max_attempts":-1}}"#,
                "`retry.max_attempts`: invalid value: integer `-1`, expected a whole",
            ),
            (r#"{"parts":7}"#, "`parts`: invalid type: integer `7`, expected a boolean"),
            (
                r#"{"permissions":[{"tool":"a","then":"ask"},{"tool":"b","then":"maybe"}]}"#,
                "`permissions`, entry 2: unknown variant `maybe`, expected one of `allow`, `ask`, `deny`",
            ),
            (r#"{"preset":"nope"}"#, "unknown preset `nope`; known presets are default, cococat,"),
            ("[]", "a configuration has to be a table of fields"),
        ] {
            let error = read(given).unwrap_err().to_string();
            assert!(error.starts_with(wanted), "{given}: {error}");
        }
    }
}
