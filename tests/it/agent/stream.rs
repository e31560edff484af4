//! A: streamed texts, calls and reasoning.

use futures::StreamExt as _;
use serde_json::{Value, json};
use superstep::{
    MemoryCheckpointer,
    agent::{
        Agent, AgentEvent, AgentOutcome, ReactConfig,
        config::ToolMode,
        state::{Metadata, ToolCallRecord},
    },
    llm::{Usage, wire::ReasoningPolicy},
};
use superstep_testing::{
    script::{Answer, Script, call, calls, txt},
    scripted::{ScriptedModel, ScriptedTool},
};

use super::Scenario;

/// The first answer of a turn, complete on the wire.
pub(crate) const ADD_CALL: &str = r#"data: {"id":"cc-1","object":"chat.completion.chunk","created":0,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"add","arguments":""}}]},"finish_reason":null}]}

data: {"id":"cc-1","object":"chat.completion.chunk","created":0,"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\": 2,"}}]},"finish_reason":null}]}

data: {"id":"cc-1","object":"chat.completion.chunk","created":0,"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":" \"b\":3}"}}]},"finish_reason":null}]}

data: {"id":"cc-1","object":"chat.completion.chunk","created":0,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: {"id":"cc-1","object":"chat.completion.chunk","created":0,"model":"m","choices":[],"usage":{"prompt_tokens":20,"completion_tokens":9,"total_tokens":29}}

data: [DONE]

"#;

#[tokio::test]
async fn a_turn_streams_its_events_and_ends_in_a_reply() {
    let script = Script::new([call("c1", "weather", "{}"), txt("It rains."), txt("Still.")]);
    let weather = ScriptedTool::named("weather").expect_any().returns("rain");
    let agent = Agent::builder(ScriptedModel::new(script))
        .tool(weather.tool())
        .checkpointer(MemoryCheckpointer::new())
        .build()
        .unwrap();
    let stopped = agent.thread("t").break_before(["tools"]).ask("How is Oslo?").await.unwrap();
    assert_eq!((stopped.outcome, &*stopped.text), (AgentOutcome::Stopped, ""));

    let mut turn = agent.thread("t").resume_stream().await.unwrap();
    let (mut tools, mut text) = (Vec::new(), String::new());
    while let Some(event) = turn.next().await {
        match event {
            AgentEvent::ToolEnd { tool, result, .. } => tools.push((tool, result)),
            AgentEvent::LlmToken { token, .. } => text.push_str(&token),
            _ => {}
        }
    }
    assert_eq!(tools, [("weather".to_owned(), "rain".to_owned())]);
    let reply = turn.reply().await.unwrap();
    assert_eq!((reply.outcome, &*reply.text, &*text), (AgentOutcome::Completed, "It rains.", "It rains."));

    let mut next = agent.thread("t").ask_stream("And now?");
    assert!(matches!(next.next().await, Some(AgentEvent::NodeStart { node }) if node == "agent"));
    assert_eq!(next.reply().await.unwrap().text, "Still.");
}

#[test]
fn plain_text_is_the_reply() {
    let answer = Answer::stream().text(["Hel", "lo"]).end("stop").usage(5, 2).done();
    let ran = Scenario::new([answer]).turns(&["hi"]).play();
    assert_eq!(ran.events(), "a▸ tok(Hel) tok(lo) ◂a");
    assert_eq!(ran.messages(), r#"u:"hi", a:"Hello""#);
    assert_eq!(ran.turn().nodes(), "init_state memory_trigger agent finalize");
    assert_eq!(ran.reply(), "Hello");
    let state = ran.state();
    assert_eq!((state.current_step, state.llm_calls, state.model_requests), (0, 1, 1));
    assert_eq!((state.stop, state.stop_reason.as_str()), (false, ""));
    assert_eq!(state.outcome, Some(AgentOutcome::Completed));
    assert_eq!(state.usage, Usage::new(5, 2));
    let metadata = Metadata { llm_calls: 1, ..Metadata::default() };
    assert_eq!(state.metadata, metadata);
    assert_eq!(
        serde_json::to_value(&state.metadata).unwrap(),
        json!({"steps_taken": 0, "tools_used": [], "stop_reason": "", "llm_calls": 1})
    );
}

#[test]
fn arguments_in_pieces_are_executed_and_go_back_byte_for_byte() {
    let ran = Scenario::new([Answer::sse(ADD_CALL), txt("5")]).turns(&["2+3?"]).play();
    assert_eq!(
        ran.events(),
        r#"a▸ ◂a tool_start{add,{"a":2,"b":3},call_1} tool_end{add,call_1,"5"} a▸ tok(5) ◂a"#
    );
    assert_eq!(
        ran.requests[1]["messages"],
        json!([
            {"role": "user", "content": "2+3?"},
            {"role": "assistant", "content": null, "tool_calls": [{
                "id": "call_1", "type": "function",
                "function": {"name": "add", "arguments": "{\"a\": 2, \"b\":3}"}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "5"},
        ])
    );
    let state = ran.state();
    assert_eq!((state.current_step, state.llm_calls), (1, 2));
    assert_eq!(
        state.tool_call_history,
        [ToolCallRecord { name: "add".into(), args: json!({"a": 2, "b": 3}) }]
    );
    assert_eq!(state.tool_result_history, ["5".to_owned()]);
    assert_eq!(state.tools_used, ["add".to_owned()]);
    assert_eq!(state.usage, Usage::new(20, 9));
}

#[test]
fn the_system_prompt_stands_before_the_conversation_and_not_in_it() {
    let scenario = Scenario::new([Answer::sse(ADD_CALL), txt("5")]);
    let ran = scenario.config(|config| ReactConfig { system_prompt: "Be brief.".into(), ..config });
    let ran = ran.play();
    for request in &ran.requests {
        assert_eq!(request["messages"][0], json!({"role": "system", "content": "Be brief."}));
        assert_eq!(request["messages"][1]["role"], "user");
    }
    assert_eq!(ran.messages(), r#"u:"go", a:[call_1 add{"a": 2, "b":3}], t(call_1):"5", a:"5""#);
}

fn slow_first() -> Scenario {
    let three =
        [("c0", "slow", r#"{"x":"a"}"#), ("c1", "slow", r#"{"x":"b"}"#), ("c2", "slow", r#"{"x":"c"}"#)];
    Scenario::new([calls(three), txt("ok")]).tools(&["slow"])
}

const SLOW_MESSAGES: &str = r#"u:"go", a:[c0 slow{"x":"a"}, c1 slow{"x":"b"}, c2 slow{"x":"c"}], t(c0):"r:a", t(c1):"r:b", t(c2):"r:c", a:"ok""#;

#[test]
fn parallel_calls_end_as_they_finish_and_are_stored_as_they_were_called() {
    let scenario =
        slow_first().config(|config| ReactConfig { tool_mode: ToolMode::Parallel { max: 8 }, ..config });
    let ran = scenario.play_here();
    assert_eq!(
        ran.events(),
        concat!(
            r#"a▸ ◂a tool_start{slow,{"x":"a"},c0} tool_start{slow,{"x":"b"},c1} tool_start{slow,{"x":"c"},c2} "#,
            r#"tool_end{slow,c2,"r:c"} tool_end{slow,c1,"r:b"} tool_end{slow,c0,"r:a"} a▸ tok(ok) ◂a"#
        )
    );
    assert_eq!(ran.turn().times("tool_start"), [0, 0, 0]);
    assert_eq!(ran.turn().times("tool_end"), [10, 100, 300]);
    assert_eq!(ran.turn().ended, 300);
    assert_eq!(ran.messages(), SLOW_MESSAGES);
    assert_eq!(ran.state().current_step, 1);
}

#[test]
fn sequential_calls_wait_for_each_other() {
    let ran = slow_first().play();
    assert_eq!(
        ran.events(),
        concat!(
            r#"a▸ ◂a tool_start{slow,{"x":"a"},c0} tool_end{slow,c0,"r:a"} "#,
            r#"tool_start{slow,{"x":"b"},c1} tool_end{slow,c1,"r:b"} "#,
            r#"tool_start{slow,{"x":"c"},c2} tool_end{slow,c2,"r:c"} a▸ tok(ok) ◂a"#
        )
    );
    assert_eq!(ran.turn().times("tool_start"), [0, 300, 400]);
    assert_eq!(ran.turn().ended, 410);
    assert_eq!(ran.messages(), SLOW_MESSAGES);
    assert_eq!(ran.state().current_step, 1);
    assert_eq!(ran.kit.most_at_once(), 1);
}

#[test]
fn no_more_tools_run_at_once_than_may() {
    let scenario =
        slow_first().config(|config| ReactConfig { tool_mode: ToolMode::Parallel { max: 2 }, ..config });
    let ran = scenario.play_here();
    assert_eq!(ran.kit.most_at_once(), 2);
    assert_eq!(ran.turn().times("tool_start"), [0, 0, 100]);
    assert_eq!(ran.turn().times("tool_end"), [100, 110, 300]);
    assert_eq!(ran.messages(), SLOW_MESSAGES);
}

#[test]
fn interleaved_pieces_go_to_their_calls() {
    let interleaved = Answer::stream()
        .call(0, "c0", "echo", [])
        .call(1, "c1", "echo", [])
        .arguments(1, r#"{"x":"#)
        .arguments(0, r#"{"x":"A"#)
        .arguments(1, r#""B"}"#)
        .arguments(0, r#""}"#)
        .end("tool_calls")
        .done();
    let ran = Scenario::new([interleaved, txt("ok")]).play();
    assert_eq!(
        ran.events(),
        concat!(
            r#"a▸ ◂a tool_start{echo,{"x":"A"},c0} tool_end{echo,c0,"r:A"} "#,
            r#"tool_start{echo,{"x":"B"},c1} tool_end{echo,c1,"r:B"} a▸ tok(ok) ◂a"#
        )
    );
    assert_eq!(
        ran.messages(),
        r#"u:"go", a:[c0 echo{"x":"A"}, c1 echo{"x":"B"}], t(c0):"r:A", t(c1):"r:B", a:"ok""#
    );
}

#[test]
fn calls_are_executed_despite_finish_reason_stop() {
    let stop = Answer::stream().call(0, "c1", "echo", [r#"{"x":"1"}"#]).end("stop").done();
    let ran = Scenario::new([stop, txt("done")]).play();
    assert_eq!(ran.kit.n("echo"), 1);
    assert_eq!(ran.reply(), "done");
    assert_eq!(ran.outcome(), AgentOutcome::Completed);
}

#[test]
fn a_text_is_the_reply_despite_finish_reason_tool_calls() {
    let ran = Scenario::new([Answer::stream().text(["hi"]).end("tool_calls").done()]).play();
    assert_eq!((ran.reply(), ran.outcome()), ("hi", AgentOutcome::Completed));
    assert_eq!(ran.turn().nodes(), "init_state memory_trigger agent finalize");
}

#[test]
fn an_empty_response_is_accepted_despite_finish_reason_tool_calls() {
    let ran = Scenario::new([Answer::stream().end("tool_calls").done()]).play();
    assert_eq!((ran.reply(), ran.outcome()), ("", AgentOutcome::Completed));
    assert_eq!((ran.state().llm_calls, ran.requests.len()), (1, 1));
}

fn thinking(reasoning: ReasoningPolicy) -> [Vec<Value>; 2] {
    let first = Answer::stream().reasoning("think ").reasoning("hard");
    let first = first.call(0, "c1", "echo", [r#"{"x":"1"}"#]).end("tool_calls").done();
    let second = Answer::stream().reasoning("fine").text(["done"]).end("stop").done();
    let scenario = Scenario::new([first, second, txt("x")]).turns(&["go", "more"]);
    let wire = superstep::llm::wire::WireConfig { reasoning, ..scenario.wire.clone() };
    let ran = Scenario { wire, ..scenario }.play();
    assert_eq!(
        ran.turns[0].shown(),
        concat!(
            r#"a▸ think(think ) think(hard) ◂a tool_start{echo,{"x":"1"},c1} tool_end{echo,c1,"r:1"} "#,
            "a▸ think(fine) tok(done) ◂a"
        )
    );
    assert_eq!(ran.turns[1].shown(), "a▸ tok(x) ◂a");
    let assistants = ran.state().messages.iter().map(|message| (&*message.content, &*message.reasoning));
    assert_eq!(
        assistants.collect::<Vec<_>>(),
        [("go", ""), ("", "think hard"), ("r:1", ""), ("done", "fine"), ("more", ""), ("x", "")]
    );
    [1, 2].map(|request: usize| {
        let messages = ran.requests[request]["messages"].as_array().unwrap();
        let assistants = messages.iter().filter(|message| message["role"] == "assistant");
        assistants.map(|message| message["reasoning_content"].clone()).collect()
    })
}

#[test]
fn reasoning_goes_back_within_its_tool_round() {
    let [second, third] = thinking(ReasoningPolicy::ToolRound);
    assert_eq!((second, third), (vec![json!("think hard")], vec![Value::Null, Value::Null]));
}

#[test]
fn a_synthetic_user_message_does_not_end_the_round() {
    let first = Answer::stream().reasoning("hm").call(0, "c1", "echo", [r#"{"x":"1"}"#]);
    let scenario = Scenario::new([first.end("tool_calls").done(), txt("ok")]).config(|config| ReactConfig {
        synthetic_after_tools: Some("Go on.".into()),
        remaining_hint: Some("{left} left".into()),
        ..config
    });
    let ran = scenario.play();
    let messages = ran.requests[1]["messages"].as_array().unwrap();
    let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "user", "user"]);
    assert_eq!(messages[1]["reasoning_content"], "hm");
}

#[test]
fn think_tags_are_split_only_if_configured() {
    let answers = || {
        let first = Answer::stream().text(["<thi", "nk>h", "m</think>", "\n\nSo "]);
        [first.call(0, "c1", "echo", [r#"{"x":"1"}"#]).end("tool_calls").done(), txt("<think>a</think>b")]
    };
    let mut scenario = Scenario::new(answers());
    let plain = scenario.play();
    assert_eq!(plain.reply(), "<think>a</think>b");
    scenario.wire.think_tags = true;
    let ran = scenario.play();
    assert_eq!(
        ran.events(),
        r#"a▸ think(h) think(m) tok(So ) ◂a tool_start{echo,{"x":"1"},c1} tool_end{echo,c1,"r:1"} a▸ think(a) tok(b) ◂a"#
    );
    assert_eq!(ran.requests[1]["messages"][1]["reasoning_content"], "hm");
    assert_eq!(ran.requests[1]["messages"][1]["content"], "So ");
}

#[test]
fn reasoning_never_goes_back() {
    let [second, third] = thinking(ReasoningPolicy::Never);
    assert_eq!((second, third), (vec![Value::Null], vec![Value::Null, Value::Null]));
}

#[test]
fn reasoning_always_goes_back() {
    let [second, third] = thinking(ReasoningPolicy::Always);
    assert_eq!((second, third), (vec![json!("think hard")], vec![json!("think hard"), json!("fine")]));
}

#[test]
fn calls_of_two_rounds_may_have_one_id() {
    let ran =
        Scenario::new([call("c1", "echo", r#"{"x":"1"}"#), call("c1", "echo", r#"{"x":"2"}"#), txt("ok")]);
    let ran = ran.play();
    assert_eq!(
        ran.messages(),
        r#"u:"go", a:[c1 echo{"x":"1"}], t(c1):"r:1", a:[c1 echo{"x":"2"}], t(c1):"r:2", a:"ok""#
    );
    let keys = ran.kit.keys();
    assert_ne!(keys[0], keys[1], "the keys of different calls");
    // Some providers reject a conversation with two calls of one id, so that one is renamed on the wire.
    let sent = ran.requests[2]["messages"].as_array().unwrap();
    assert_eq!([&sent[3]["tool_calls"][0]["id"], &sent[4]["tool_call_id"]], ["c1_2", "c1_2"]);
}
