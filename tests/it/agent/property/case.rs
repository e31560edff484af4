//! The combinations: any script, preset, tools, moment of cancellation and moment of a crash.

use std::{fmt, time::Duration};

use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::json;
use superstep::{
    agent::{
        Approval, ReactConfig,
        approval::ApprovalRequest,
        config::{
            AfterEmpty, AtLimit, Budget, ContextBudget, ContextConfig, ContextLayer, EmptyPolicy, FinishBy,
            LengthPolicy, Limit, LimitUnit, LoopAction, LoopRule, OutputMode, PermissionRule, Permit, Repeat,
            ToolMode, Truncate,
        },
        presets::PRESETS,
    },
    llm::{Message, ModelRetry, retries::Jitter, wire::WirePolicy},
};
use superstep_testing::script::{Answer, Script, http};

use super::{
    super::{Cancel, Scenario},
    hooked::{HOOKED, Hooked},
};

const TOOLS: [&str; 13] =
    ["add", "again", "big", "boom", "deaf", "echo", "fails", "hang", "late", "poll", "send", "slow", "tell"];
/// The finish tool, which no program has registered.
const FINISH: &str = "generate_response";
const TURNS: [&str; 3] = ["go", "go on", "remember that I like añ😀b"];

/// One change of a preset, by its name.
pub(super) type Change = (&'static str, fn(&mut ReactConfig));

/// Counts tokens like a vocabulary, except that tools have none, so that a context has space for some
/// messages.
fn tokens(message: &Message) -> u64 {
    10 + u64::try_from(message.content.len()).unwrap_or(u64::MAX) / 20
}

/// Sets a small context.
fn tight(config: &mut ReactConfig, tokens: u64, layers: Vec<ContextLayer>) {
    config.context =
        ContextConfig { budget: ContextBudget::Tokens(tokens), layers, ..ContextConfig::default() };
}

/// Sets a schema of the reply.
fn schema(config: &mut ReactConfig, output: OutputMode) {
    let answer =
        json!({"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]});
    config.finish.schema = Some(answer);
    (config.finish.output, config.finish.retries) = (output, 1);
}

const CHANGES: [Change; 34] = [
    ("sequential", |config| config.tool_mode = ToolMode::Sequential),
    ("parallel 0", |config| config.tool_mode = ToolMode::Parallel { max: 0 }),
    ("parallel 3", |config| config.tool_mode = ToolMode::Parallel { max: 3 }),
    ("rounds", |config| config.limit.unit = LimitUnit::ToolRounds),
    ("calls", |config| config.limit.unit = LimitUnit::ModelCalls),
    ("last message", |config| config.limit.at = AtLimit::LastMessage),
    ("reminder", |config| config.limit.at = AtLimit::Reminder("last one".into())),
    ("fixed", |config| config.limit.at = AtLimit::Fixed("enough".into())),
    ("no tools", |config| config.limit.at = AtLimit::NoToolsCall { hint: Some("sum up".into()) }),
    ("fail", |config| config.limit.at = AtLimit::Fail),
    ("never retry", |config| config.retry = ModelRetry::never()),
    ("continue 1", |config| config.length = LengthPolicy::Continue { max: 1, prompt: "continue".into() }),
    ("continue 0", |config| config.length = LengthPolicy::Continue { max: 0, prompt: "continue".into() }),
    ("empty 0", |config| {
        config.empty = EmptyPolicy::Retry { max: 0, nudge: None, then: AfterEmpty::NoToolsCall };
    }),
    ("empty 1", |config| {
        config.empty = EmptyPolicy::Retry { max: 1, nudge: Some("say".into()), then: AfterEmpty::Stop };
    }),
    ("no loops", |config| config.loops.clear()),
    ("loop stop", |config| {
        config.loops = vec![LoopRule { when: Repeat::Identical { n: 2 }, then: LoopAction::Stop }];
    }),
    ("loop refuse", |config| {
        config.loops = vec![LoopRule { when: Repeat::Identical { n: 2 }, then: LoopAction::Refuse }];
    }),
    ("loop answer", |config| {
        config.loops = vec![LoopRule { when: Repeat::NoProgress { n: 2 }, then: LoopAction::Answer }];
    }),
    ("tokens", |config| {
        config.budget = Budget { tokens: Some(40), reserve_final: true, ..Budget::default() };
    }),
    ("tool calls", |config| {
        config.budget = Budget { tool_calls: Some(2), reserve_final: false, ..Budget::default() };
    }),
    ("wall", |config| {
        let wall = Some(Duration::from_millis(150));
        config.budget = Budget { wall, reserve_final: true, ..Budget::default() };
    }),
    ("repair", |config| config.repair = true),
    ("text calls", |config| config.text_calls = true),
    ("finish tool", |config| config.finish.by = FinishBy::Tool),
    ("finish tool only", |config| {
        (config.finish.by, config.finish.convert_text) = (FinishBy::Tool, false);
    }),
    ("schema by tool", |config| schema(config, OutputMode::Tool)),
    ("schema by format", |config| schema(config, OutputMode::Native)),
    ("schema by prompt", |config| schema(config, OutputMode::Prompted)),
    ("snip", |config| tight(config, 50, vec![ContextLayer::Snip { keep_last: 2 }])),
    ("summaries", |config| {
        tight(config, 60, vec![ContextLayer::consolidate(2), ContextLayer::Snip { keep_last: 2 }]);
    }),
    ("short results", |config| {
        tight(config, 90, vec![ContextLayer::MicroCompact(Truncate::chars(50, "…"))]);
    }),
    ("parts", |config| config.parts = true),
    ("deny send", |config| config.permissions = vec![PermissionRule::new("send", Permit::Deny)]),
];

/// The place of a crash: before or after the nth write of the store, counted over the whole case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crash {
    pub(super) write: usize,
    pub(super) after: bool,
}

#[derive(Clone)]
pub(super) struct Case {
    pub(super) scenario: Scenario,
    pub(super) crash: Option<Crash>,
    /// `true` if calls are approved by an interrupt, and not by a person in the process.
    pub(super) outside: bool,
    /// The event of the first turn at which the user sends another message.
    pub(super) says: Option<usize>,
    preset: &'static str,
    changes: Vec<&'static str>,
    hooked: &'static str,
}

/// Formats a case like a written scenario.
impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, crash, outside, says, preset, changes, hooked } = self;
        let Scenario { config, tools, turns, hints, cancel, script, wire, .. } = scenario;
        writeln!(f, "\npreset {preset}, max {}, {changes:?}, wire {:?}", config.limit.max, wire.arguments)?;
        writeln!(
            f,
            "tools {tools:?}, turns {turns:?}, cancel {cancel:?}, crash {crash:?}, outside {outside}"
        )?;
        writeln!(f, "hooks {hooked}, hints {hints:?}, steered at {says:?}")?;
        write!(f, "{script}")
    }
}

fn arguments() -> impl Strategy<Value = &'static str> {
    select(&[
        r#"{"x":"a"}"#,
        r#"{"x":"b"}"#,
        r#"{"a":1,"b":2}"#,
        r#"{"n":3000}"#,
        r#"{"to":"a"}"#,
        r#"{"to":"b"}"#,
        r#"{"id":"j"}"#,
        r#"{"response":"done"}"#,
        r#"{"response":"done","answer":42}"#,
        "{}",
        "",
        "null",
        "{x:1",
        "[1]",
        "```json\n{\"x\":\"c\"}\n```",
    ])
}

/// Generates calls; each part of a call may be missing or repeated.
fn calls() -> impl Strategy<Value = Vec<(&'static str, &'static str, &'static str)>> {
    let name = prop_oneof![
        14 => select(&TOOLS),
        3 => Just(FINISH),
        1 => select(&["nope", "Echo", "", "fs.read ü"]),
    ];
    let id = select(&["c0", "c1", "c2", "c3", "c4", "c5", "", "c1"]);
    vec((id, name, arguments()), 0..4)
}

fn answer() -> impl Strategy<Value = Answer> {
    let ends =
        &["stop", "stop", "stop", "tool_calls", "tool_calls", "length", "content_filter", "odd", "cut"];
    let texts = &[
        "fine",
        " ",
        "añ😀b",
        r#"{"answer":42}"#,
        r#"<tool_call>{"name":"echo","arguments":{"x":"a"}}</tool_call>"#,
        r#"So. <tool_call>{"name":"echo","arguments":{"x":"a"#,
        r#"<tool_call>{"name":"ec"#,
    ];
    let streamed = (option::of(select(texts)), any::<bool>(), calls(), select(ends), 0..60u64).prop_map(
        |(text, thinks, calls, end, wait)| {
            let mut answer = Answer::stream();
            if thinks {
                answer = answer.reasoning("hm");
            }
            answer = answer.text(text).delay(wait);
            for (at, (id, name, arguments)) in calls.into_iter().enumerate() {
                answer = answer.call(at, id, name, [arguments]);
            }
            answer = answer.usage(10, 1);
            if end == "cut" { answer.cut() } else { answer.end(end).usage(10, 2).done() }
        },
    );
    let statuses = &[400u16, 401, 429, 500, 503];
    prop_oneof![
        20 => streamed,
        1 => select(statuses).prop_map(|status| http(status, &[], "{}")),
        1 => Just(http(429, &[("retry-after", "3")], "{}")),
        1 => Just(Answer::stream().data("no json")),
        1 => Just(Answer::NoConnection),
    ]
}

fn cancel() -> impl Strategy<Value = Cancel> {
    let events = &["tool_start", "tool_end"];
    prop_oneof![
        3 => Just(Cancel::Never),
        1 => (0..800u64).prop_map(Cancel::At),
        1 => (select(events), select(&["c0", "c1", "c2"])).prop_map(|(name, id)| Cancel::On(name, id)),
    ]
}

pub(super) fn case() -> impl Strategy<Value = Case> {
    let crash = option::of((1..25usize, any::<bool>()).prop_map(|(write, after)| Crash { write, after }));
    (
        (vec(answer(), 0..10), vec(select(&TOOLS), 0..7), 1..=TURNS.len()),
        (0..PRESETS.len(), vec(select(&CHANGES), 0..4), 0..5u32),
        (cancel(), crash, any::<bool>(), any::<bool>()),
        (select(&HOOKED), any::<bool>(), option::of(0..30usize)),
    )
        .prop_map(
            |(
                (answers, mut tools, turns),
                (preset, changes, max),
                (cancel, crash, outside, wraps),
                (hooked, is_hinted, says),
            )| {
                tools.sort_unstable();
                tools.dedup();
                let preset = &PRESETS[preset];
                let mut config = (preset.config)();
                for (_, change) in &changes {
                    change(&mut config);
                }
                let retry = ModelRetry { jitter: Jitter::None, ..config.retry };
                let limit = Limit { max, ..config.limit.clone() };
                let tool_timeout = Some(Duration::from_millis(500));
                let config = ReactConfig { limit, retry, tool_timeout, ..config };
                let decide = |request: &ApprovalRequest| {
                    let yes = request.args["to"] == "a";
                    Some(if yes { Approval::Approve } else { Approval::Deny("no".into()) })
                };
                let plain = Scenario::new([]).tools(&tools).turns(&TURNS[..turns]);
                let Hooked { name: hooked, hooks } = hooked;
                let hints = if is_hinted { vec!["be brief"] } else { Vec::new() };
                let plain = Scenario { hooks, hints, tokens: Some(tokens), ..plain };
                let mut scenario = Scenario { config, cancel, decide: Some(decide), exact: false, ..plain };
                scenario.script = Script::new(answers);
                scenario.wire.arguments = if wraps { WirePolicy::Wrap } else { WirePolicy::Verbatim };
                let changes = changes.into_iter().map(|(name, _)| name).collect();
                Case { scenario, crash, outside, says, preset: preset.name, changes, hooked }
            },
        )
}
