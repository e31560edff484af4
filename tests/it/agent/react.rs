//! K: the agent in the engine's list.

use std::sync::Arc;

use superstep::{
    State, Status,
    agent::{
        AgentOutcome, AgentState, ReactConfig,
        config::{AtLimit, Limit, ToolMode},
    },
    llm::{Message, Role, ToolCall},
};
use superstep_testing::{
    script::{Answer, Script, call, calls, txt},
    scripted::ScriptedModel,
};

use super::{Kit, Scenario, paused};
use crate::support::{head, names, on_every_store};

#[test]
fn a_call_and_its_result_lead_to_the_answer() {
    let ran = Scenario::new([call("c1", "add", r#"{"a":1,"b":2}"#), txt("3")]).play();
    assert_eq!(ran.messages(), r#"u:"go", a:[c1 add{"a":1,"b":2}], t(c1):"3", a:"3""#);
    assert_eq!(ran.turn().nodes(), "init_state memory_trigger agent tools agent finalize");
}

/// In one update, where the reference has one for each call: `tools` is one node with one task.
#[test]
fn results_stand_in_call_order_although_the_second_tool_is_faster() {
    let two = calls([("c1", "slow", r#"{"x":"a"}"#), ("c2", "slow", r#"{"x":"b"}"#)]);
    let scenario = Scenario::new([two, txt("ok")]).tools(&["slow"]);
    let tool_mode = ToolMode::Parallel { max: 8 };
    let ran = scenario.config(|config| ReactConfig { tool_mode, ..config }).play_here();
    assert_eq!(
        ran.messages(),
        r#"u:"go", a:[c1 slow{"x":"a"}, c2 slow{"x":"b"}], t(c1):"r:a", t(c2):"r:b", a:"ok""#
    );
    let ended = ran.turn().told.iter().filter(|told| told.name == "tool_end");
    assert_eq!(
        ended.map(|told| (told.at, told.data["id"].as_str().unwrap())).collect::<Vec<_>>(),
        [(100, "c2"), (300, "c1")]
    );
    assert_eq!(ran.turn().updates("tools").len(), 1);
}

#[test]
fn invalid_arguments_are_a_result_with_the_reason() {
    let ran = Scenario::new([call("c1", "add", r#"{"a":"two","b":3}"#), txt("sorry")]).play();
    assert_eq!(ran.result("c1"), "Error: invalid args for 'add': `a`: expected integer, got a string");
    assert_eq!((ran.kit.n("add"), ran.reply()), (0, "sorry"));
}

#[test]
fn an_unknown_tool_is_a_result_that_lists_the_tools() {
    let ran = Scenario::new([call("c1", "ghost", "{}"), txt("sorry")]).tools(&["add"]).play();
    assert_eq!(ran.result("c1"), "Error: unknown tool 'ghost'. Available tools: add");
    assert_eq!(ran.reply(), "sorry");
}

/// Creates a model that calls tools as long as it may.
fn endless(rounds: u32) -> Vec<Answer> {
    let echo = |n| call(&format!("c{n}"), "echo", &format!(r#"{{"x":"{n}"}}"#));
    (0..rounds).map(echo).chain([txt("I need more steps.")]).collect()
}

#[test]
fn endless_calls_end_with_a_reply_at_every_limit() {
    for max in 0..=7 {
        let at = AtLimit::NoToolsCall { hint: None };
        for (at, reply) in [(at, "I need more steps."), (AtLimit::Fixed("More?".into()), "More?")] {
            let mut scenario = Scenario::new(endless(max));
            scenario.exact = false;
            let limit = Limit { max, at, ..scenario.config.limit.clone() };
            let ran = scenario.config(|config| ReactConfig { limit, ..config }).play_here();
            assert_eq!((ran.reply(), ran.outcome()), (reply, AgentOutcome::Limit), "{max}");
            assert_eq!((ran.kit.n("echo"), ran.state().current_step), (max as usize, max));
        }
    }
}

#[test]
fn the_step_limit_of_the_run_does_not_cut_a_turn_short() {
    for step_limit in 1..=7 {
        let model = ScriptedModel::new(Script::new(endless(5)));
        let agent = Scenario::new([]).agent(Arc::new(model), &Kit::default()).build().unwrap();
        let reply = paused(agent.without_thread().step_limit(step_limit).ask("go")).unwrap();
        assert_eq!(reply.outcome, AgentOutcome::Limit, "{step_limit}");
        assert_eq!(reply.text, "I need more steps.");
    }
}

on_every_store! {
    async fn a_call_without_a_result_in_the_history_gets_one_that_says_so(backend: Backend) {
        let model = ScriptedModel::new(Script::new([txt("ok")]));
        let agent = Scenario::new([]).agent(Arc::new(model.clone()), &Kit::default()).checkpointer(backend.open());
        let agent = agent.build().unwrap();
        let cut = Message::assistant("").with_tool_calls([ToolCall::new("c1", "echo", r#"{"x":"1"}"#)]);
        let input = AgentState::update().messages([Message::user("go"), cut, Message::user("well?")]);
        let end = agent.graph().thread("t").run(input).await.unwrap();
        assert_eq!((end.status, end.state.final_reply.as_str()), (Status::Completed, "ok"));
        let requests = model.requests();
        let [request] = &requests[..] else { panic!("one request") };
        let sent: Vec<_> = request.messages.iter().map(|sent| (sent.role, sent.tool_call_id.as_str())).collect();
        assert_eq!(sent, [(Role::User, ""), (Role::Assistant, ""), (Role::Tool, "c1"), (Role::User, "")]);
        assert_eq!(request.messages[2].content, "[Tool result unavailable — call was interrupted or lost]");
        assert_eq!(end.state.messages.len(), 4, "what is stored is what was said");
    }

    /// The reference has a task for each call, and `tools` twice in `next`; here it is one task for both.
    async fn a_breakpoint_before_tools_holds_both_calls_and_a_resume_runs_them(backend: Backend) {
        let kit = Kit::default();
        let two = || calls([("c1", "echo", r#"{"x":"1"}"#), ("c2", "echo", r#"{"x":"2"}"#)]);
        let program = |answers: Vec<Answer>| {
            let model = ScriptedModel::new(Script::new(answers));
            Scenario::new([]).agent(Arc::new(model), &kit).checkpointer(backend.open()).build().unwrap()
        };
        let input = AgentState::update().messages([Message::user("go")]);
        let agent = program(vec![two()]);
        let stopped = agent.graph().thread("t").break_before(["tools"]).run(input).await.unwrap();
        assert_eq!((stopped.status, stopped.interrupts.len(), kit.n("echo")), (Status::Interrupted, 0, 0));
        assert_eq!(names(&head(agent.graph()).await.next), "tools");
        drop(agent);
        let reply = program(vec![txt("ok")]).thread("t").resume().await.unwrap();
        assert_eq!((reply.text.as_str(), kit.n("echo")), ("ok", 2));
    }
}
