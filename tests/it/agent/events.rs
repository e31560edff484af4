//! The events of the agent as a type, and the page that lists them.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::StreamExt;
use serde_json::json;
use superstep::{
    CompiledGraph, Event, StreamMode, Streaming,
    agent::{
        AgentEvent,
        guards::GuardAt,
        state::{BudgetLimit, PartKind, ToolStatus},
    },
    llm::{
        calls::ToolQuestion,
        snapshots::{FileChange, FileChangeKind, FileChanges},
    },
    prelude::*,
};

fn all() -> Vec<AgentEvent> {
    use AgentEvent::*;
    let text = |text: &str| text.to_owned();
    let (tool, id, reason) = (text("shell"), text("c1"), text("why"));
    let part = superstep::agent::state::Part {
        id: text("m1.0"),
        session_id: text("t"),
        message_id: text("m1"),
        kind: PartKind::Text,
        tool: None,
        state: None,
    };
    let made = FileChange { path: text("x"), kind: FileChangeKind::Made, diff: String::new() };
    let files = FileChanges { before: text("a"), after: text("b"), changes: vec![made], more: 0 };
    let form =
        ToolQuestion { from: text("MCP server `bank`"), message: text("How much?"), schema: json!({}) };
    vec![
        NodeStart { node: text("agent") },
        NodeEnd { node: text("agent") },
        LlmToken { token: text("Hel"), reasoning_token: text("") },
        ToolStart { tool: tool.clone(), args: json!({"command": "ls"}), id: id.clone() },
        ToolEnd { tool: tool.clone(), id: id.clone(), result: text("a"), status: ToolStatus::Completed },
        ToolOutput { id: id.clone(), tool: tool.clone(), chunk: text("a"), truncated: false },
        ToolOutput { id: id.clone(), tool: tool.clone(), chunk: text("b"), truncated: true },
        ToolSkipped { tool: tool.clone(), id: id.clone(), reason: text("budget") },
        LateResult { tool: tool.clone(), id: id.clone() },
        Spilled { id: id.clone(), path: text("c1.txt"), chars: 9 },
        SpillFailed { id: id.clone(), reason: reason.clone() },
        Retry { attempt: 2, delay_ms: 500, status: Some(503), reason: reason.clone() },
        ModelFallback { from: text("a"), to: text("b"), status: None, reason: reason.clone() },
        ReasoningDropped { path: text("messages.1.content.0"), reason: reason.clone() },
        AttemptDiscarded { attempt: 1 },
        TextCalls { n: 2 },
        Part(part),
        OutputPartial { output: json!({"n": 1}) },
        Steered { id: text("steered.1"), text: text("in French") },
        TruncatedAnswer {},
        Compacted { before: 9, after: 5, dropped: 3, over: 0, pins_left_out: 0 },
        Compacted { before: 9, after: 5, dropped: 3, over: 1, pins_left_out: 2 },
        CompactionPaused {},
        Loop { rule: text("repeat"), tool: tool.clone(), n: 3 },
        Handoff { from: text(""), to: text("billing"), reason: text("an invoice") },
        Guardrail {
            guard: text("output_secrets"),
            at: GuardAt::Output,
            action: text("rewrite"),
            reason: text(""),
        },
        Guardrail {
            guard: text("policy"),
            at: GuardAt::Input,
            action: text("block"),
            reason: reason.clone(),
        },
        BudgetWarning { budget: BudgetLimit::Tokens, percent: 80 },
        ToolRepaired { id: id.clone(), from: text("Shell"), to: tool.clone() },
        ArgsRepaired { id: id.clone(), tool: tool.clone() },
        ApprovalRequested {
            id: id.clone(),
            tool: tool.clone(),
            args: json!({}),
            allowed: vec![text("approve"), text("deny")],
            form: None,
        },
        ApprovalRequested { id, tool, args: json!({}), allowed: vec![text("answer")], form: Some(form) },
        FilesChanged(files),
        SnapshotFailed { reason: reason.clone() },
        TurnRecorded { id: text("t/1") },
        TurnNotRecorded { reason: reason.clone() },
        Retrieved { id: text("m2"), memories: 1, passages: 2 },
        RetrievalFailed { source: text("memory"), reason: reason.clone() },
        InstructionsLoaded { path: text("/w/AGENTS.md"), bytes: 9 },
        InstructionsSkipped { path: text("/w/AGENTS.md"), reason: reason.clone() },
        MemoryStored {},
        MemoryFailed { reason },
    ]
}

#[test]
fn the_json_form_of_every_event_is_stable() {
    let lines: Vec<_> = all().iter().map(|event| serde_json::to_string(event).unwrap()).collect();
    assert_eq!(
        lines,
        [
            r#"{"event":"node_start","data":{"node":"agent"}}"#,
            r#"{"event":"node_end","data":{"node":"agent"}}"#,
            r#"{"event":"llm_token","data":{"token":"Hel","reasoning_token":""}}"#,
            r#"{"event":"tool_start","data":{"tool":"shell","args":{"command":"ls"},"id":"c1"}}"#,
            r#"{"event":"tool_end","data":{"tool":"shell","id":"c1","result":"a","status":"completed"}}"#,
            r#"{"event":"tool_output","data":{"id":"c1","tool":"shell","chunk":"a"}}"#,
            r#"{"event":"tool_output","data":{"id":"c1","tool":"shell","chunk":"b","truncated":true}}"#,
            r#"{"event":"tool_skipped","data":{"tool":"shell","id":"c1","reason":"budget"}}"#,
            r#"{"event":"late_result","data":{"tool":"shell","id":"c1"}}"#,
            r#"{"event":"spilled","data":{"id":"c1","path":"c1.txt","chars":9}}"#,
            r#"{"event":"spill_failed","data":{"id":"c1","reason":"why"}}"#,
            r#"{"event":"retry","data":{"attempt":2,"delay_ms":500,"status":503,"reason":"why"}}"#,
            r#"{"event":"model_fallback","data":{"from":"a","to":"b","status":null,"reason":"why"}}"#,
            r#"{"event":"reasoning_dropped","data":{"path":"messages.1.content.0","reason":"why"}}"#,
            r#"{"event":"attempt_discarded","data":{"attempt":1}}"#,
            r#"{"event":"text_calls","data":{"n":2}}"#,
            r#"{"event":"part","data":{"id":"m1.0","session_id":"t","message_id":"m1","type":"text"}}"#,
            r#"{"event":"output_partial","data":{"output":{"n":1}}}"#,
            r#"{"event":"steered","data":{"id":"steered.1","text":"in French"}}"#,
            r#"{"event":"truncated_answer","data":{}}"#,
            r#"{"event":"compacted","data":{"before":9,"after":5,"dropped":3}}"#,
            r#"{"event":"compacted","data":{"before":9,"after":5,"dropped":3,"over":1,"pins_left_out":2}}"#,
            r#"{"event":"compaction_paused","data":{}}"#,
            r#"{"event":"loop","data":{"rule":"repeat","tool":"shell","n":3}}"#,
            r#"{"event":"handoff","data":{"from":"","to":"billing","reason":"an invoice"}}"#,
            r#"{"event":"guardrail","data":{"guard":"output_secrets","at":"output","action":"rewrite"}}"#,
            r#"{"event":"guardrail","data":{"guard":"policy","at":"input","action":"block","reason":"why"}}"#,
            r#"{"event":"budget_warning","data":{"budget":"budget_tokens","percent":80}}"#,
            r#"{"event":"tool_repaired","data":{"id":"c1","from":"Shell","to":"shell"}}"#,
            r#"{"event":"args_repaired","data":{"id":"c1","tool":"shell"}}"#,
            r#"{"event":"approval_requested","data":{"id":"c1","tool":"shell","args":{},"allowed":["approve","deny"]}}"#,
            r#"{"event":"approval_requested","data":{"id":"c1","tool":"shell","args":{},"allowed":["answer"],"form":{"from":"MCP server `bank`","message":"How much?","schema":{}}}}"#,
            r#"{"event":"files_changed","data":{"before":"a","after":"b","changes":[{"path":"x","kind":"made"}]}}"#,
            r#"{"event":"snapshot_failed","data":{"reason":"why"}}"#,
            r#"{"event":"turn_recorded","data":{"id":"t/1"}}"#,
            r#"{"event":"turn_not_recorded","data":{"reason":"why"}}"#,
            r#"{"event":"retrieved","data":{"id":"m2","memories":1,"passages":2}}"#,
            r#"{"event":"retrieval_failed","data":{"in":"memory","reason":"why"}}"#,
            r#"{"event":"instructions_loaded","data":{"path":"/w/AGENTS.md","bytes":9}}"#,
            r#"{"event":"instructions_skipped","data":{"path":"/w/AGENTS.md","reason":"why"}}"#,
            r#"{"event":"memory_stored","data":{}}"#,
            r#"{"event":"memory_failed","data":{"reason":"why"}}"#,
        ]
    );
}

#[test]
fn every_event_is_read_from_its_name_and_data() {
    for event in all() {
        let json = serde_json::to_value(&event).unwrap();
        assert_eq!(json["event"], event.name());
        assert_eq!(AgentEvent::read(event.name(), &json["data"]), Some(event));
    }
    assert_eq!(AgentEvent::read("mine", &json!({"node": "agent"})), None);
    assert_eq!(AgentEvent::read("node_start", &json!({"tool": "shell"})), None);
}

/// The names of all variants, as serde lists them for an unknown one.
fn names() -> BTreeSet<String> {
    let error =
        serde_json::from_value::<AgentEvent>(json!({"event": "?", "data": {}})).unwrap_err().to_string();
    let (_, listed) = error.split_once("expected one of").expect("the error lists the variants");
    listed.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_event_has_an_example_here() {
    assert_eq!(all().iter().map(|event| event.name().to_owned()).collect::<BTreeSet<_>>(), names());
}

#[test]
fn the_page_lists_every_event() {
    let page = include_str!("../../../docs/cli.md");
    let (_, table) = page.split_once("\n| event | data |\n|---|---|\n").expect("the table of events");
    let (table, _) = table.split_once("\n\n").expect("the table ends");
    let rows: Vec<(&str, &str)> =
        table.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | ")).collect();
    let listed: Vec<_> = rows.iter().flat_map(|(names, _)| names.split('`').skip(1).step_by(2)).collect();
    for event in all() {
        let name = event.name();
        assert!(listed.contains(&name), "docs/cli.md has no row for `{name}`");
        let row = rows.iter().find(|(names, _)| names.contains(&format!("`{name}`"))).expect("its row").1;
        let json = serde_json::to_value(&event).unwrap();
        let fields = json["data"].as_object().expect("the data is an object");
        for field in fields.keys() {
            assert!(row.contains(&format!("`{field}`")), "docs/cli.md has no field `{field}` of `{name}`");
        }
    }
    let listed: BTreeSet<_> = listed
        .into_iter()
        .filter(|name| !["finish_step", "discarded", "lagged", "final"].contains(name))
        .collect();
    let known = names();
    assert_eq!(listed, known.iter().map(String::as_str).collect::<BTreeSet<_>>());
}

#[test]
fn the_page_of_dreams_lists_their_events() {
    let page = include_str!("../../../docs/dreams.md");
    for row in [
        "| `dream_begun` | `why`: `turns`, `time` or `asked`; `turns` |",
        "| `dream_ended` | `outcome`, `turns`, `settled` |",
        "| `dream_failed` | `user`, `reason` |",
    ] {
        assert!(page.contains(row), "docs/dreams.md has no row {row}");
    }
}

#[derive(State, Clone, Debug, Default)]
struct Empty {
    done: bool,
}

fn emitting(event: impl Fn(&Cx) + Clone + Send + Sync + 'static) -> CompiledGraph<Empty> {
    let mut graph = StateGraph::<Empty>::new("mine");
    let node = graph.add_node("mine", move |_: Empty, cx: Cx| {
        let event = event.clone();
        async move {
            event(&cx);
            Empty::update().done(true)
        }
    });
    graph.add_edge(START, node);
    graph.add_edge(node, END);
    graph.compile().unwrap()
}

#[tokio::test]
async fn an_event_without_a_listener_is_not_made() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = made.clone();
    let graph = emitting(move |cx| {
        cx.emit_with(|| {
            counted.fetch_add(1, Ordering::Relaxed);
            ("progress", json!({"percent": 50}))
        });
        cx.emit("encoded", Encoded(&counted));
        AgentEvent::TruncatedAnswer {}.emit(cx);
    });
    graph.run(Empty::update()).await.unwrap();
    let other = [StreamMode::Updates, StreamMode::Messages, StreamMode::Tasks];
    assert_eq!(graph.stream(Empty::update(), other).count().await, 3);
    assert_eq!(made.load(Ordering::Relaxed), 0);
    assert_eq!(graph.stream(Empty::update(), [StreamMode::Custom]).count().await, 3);
    assert_eq!(made.load(Ordering::Relaxed), 2, "each is made once");
}

/// Counts how often it is encoded.
struct Encoded<'a>(&'a AtomicUsize);

impl serde::Serialize for Encoded<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.fetch_add(1, Ordering::Relaxed);
        serializer.serialize_unit()
    }
}

#[tokio::test]
async fn events_of_called_graphs_are_read_with_their_path() {
    let skipped = || AgentEvent::ToolSkipped { tool: "t".into(), id: "c1".into(), reason: "budget".into() };
    let inner = Arc::new(emitting(move |cx| skipped().emit(cx)));
    let between = {
        let mut graph = StateGraph::<Empty>::new("between");
        let node = graph.add_node("calls", move |_: Empty, cx: Cx| {
            let inner = inner.clone();
            async move {
                cx.emit("progress", json!({"percent": 50}));
                cx.call(&*inner, Empty::update()).key("inner").await.map(|_| Empty::update().done(true))
            }
        });
        graph.add_edge(START, node);
        graph.add_edge(node, END);
        graph.compile().unwrap()
    };
    let mut graph = StateGraph::<Empty>::new("outer");
    let node = graph.add_subgraph("between", &between);
    graph.add_edge(START, node);
    graph.add_edge(node, END);
    let graph = graph.compile().unwrap();
    let mut seen = Vec::new();
    let streaming = Streaming::from(StreamMode::Custom).subgraphs();
    let mut run = graph.stream(Empty::update(), streaming);
    while let Some(event) = run.next().await {
        let custom = event.custom().unwrap_or_else(|| panic!("{event:?}"));
        let nodes = custom.path.nodes().map(ToString::to_string).collect::<Vec<_>>().join("/");
        seen.push((nodes, custom.node.to_owned(), custom.name.to_owned(), AgentEvent::of(&event)));
    }
    let text = |text: &str| text.to_owned();
    assert_eq!(
        seen,
        [
            (text("between"), text("calls"), text("progress"), None),
            (text("between/calls"), text("mine"), text("tool_skipped"), Some(skipped())),
        ]
    );
}

#[tokio::test]
async fn a_node_of_ones_own_emits_events_of_the_agent_beside_its_own() {
    let mut graph = StateGraph::<Empty>::new("mine");
    let node = graph.add_node("mine", async |_: Empty, cx: Cx| {
        AgentEvent::ToolSkipped { tool: "t".into(), id: "c1".into(), reason: "budget".into() }.emit(&cx);
        cx.emit("progress", json!({"percent": 50}));
        Empty::update().done(true)
    });
    graph.add_edge(START, node);
    graph.add_edge(node, END);
    let graph = graph.compile().unwrap();
    let mut run = graph.stream(Empty::update(), [StreamMode::Custom]);
    let mut read = Vec::new();
    while let Some(event) = run.next().await {
        let Event::Custom { name, .. } = &event else { panic!("{event:?}") };
        read.push((*name, AgentEvent::of(&event).is_some()));
    }
    assert_eq!(read, [("tool_skipped", true), ("progress", false)]);
}
