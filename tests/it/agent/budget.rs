//! The budget of a turn.

use std::time::Duration;

use serde_json::{Value, json};
use superstep::{
    agent::{
        Agent, AgentError, AgentOutcome, Approval, ReactConfig,
        config::{Budget, Cost, PermissionRule, Permit, ToolMode},
        state::TurnCost,
    },
    llm::{
        ToolCx, ToolSpec,
        models::{ModelTable, NanoDollars},
        tool_fn,
    },
};
use superstep_testing::{
    script::{Answer, Script, call, calls, http, txt},
    scripted::ScriptedModel,
};

use super::{Ran, Scenario};

const NOT_EXECUTED: &str = "Error: budget exhausted, not executed.";

fn echo(id: &str, x: &str, usage: (u64, u64)) -> Answer {
    let args = format!(r#"{{"x":"{x}"}}"#);
    Answer::stream().call(0, id, "echo", [args.as_str()]).end("tool_calls").usage(usage.0, usage.1).done()
}

fn with(budget: Budget, answers: impl IntoIterator<Item = Answer>) -> Scenario {
    Scenario::new(answers).config(|config| ReactConfig { budget, loops: Vec::new(), ..config })
}

fn offered(ran: &Ran) -> Vec<bool> {
    ran.requests.iter().map(|request| request.get("tools").is_some()).collect()
}

#[test]
fn tokens_end_a_turn_with_an_answer() {
    let budget = Budget { tokens: Some(100), reserve_final: true, ..Budget::default() };
    let last = Answer::stream().text(["best effort"]).end("stop").usage(10, 5).done();
    let ran = with(budget, [echo("c1", "1", (40, 20)), echo("c2", "2", (45, 5)), last]).play();
    assert_eq!((ran.kit.n("echo"), ran.result("c2"), ran.reply()), (1, NOT_EXECUTED, "best effort"));
    assert_eq!(offered(&ran), [true, true, false]);
    let state = ran.state();
    assert_eq!((state.stop_reason.as_str(), state.outcome), ("budget_tokens", Some(AgentOutcome::Budget)));
    assert_eq!((state.usage.input_tokens, state.usage.output_tokens), (95, 30));
    assert_eq!(ran.events().matches("+budget_warning").count(), 1, "{}", ran.events());
    assert!(!state.answer.estimated);
}

#[test]
fn a_last_call_is_reserved_unless_that_is_switched_off() {
    let budget = Budget { tokens: Some(50), ..Budget::default() };
    let ran = with(budget, [echo("c1", "1", (40, 20)), txt("best effort")]).play();
    assert_eq!(
        (offered(&ran), ran.reply(), ran.outcome()),
        (vec![true, false], "best effort", AgentOutcome::Budget)
    );

    let budget = Budget { tokens: Some(50), reserve_final: false, ..Budget::default() };
    let ran = with(budget, [echo("c1", "1", (40, 20))]).play();
    assert_eq!((ran.requests.len(), ran.result("c1")), (1, NOT_EXECUTED));
    assert_eq!(
        ran.reply(),
        "No answer: the tokens of the turn were spent before the model gave an answer (budget_tokens)."
    );
}

#[test]
fn calls_beyond_the_budget_are_refused_one_by_one() {
    let budget = Budget { tool_calls: Some(2), reserve_final: true, ..Budget::default() };
    let mut three = Answer::stream();
    for (n, id) in ["c1", "c2", "c3"].into_iter().enumerate() {
        three = three.call(n, id, "echo", [r#"{"x":"1"}"#]);
    }
    let ran = with(budget, [three.end("tool_calls").done(), txt("two will do")]).play();
    assert_eq!((ran.kit.n("echo"), ran.result("c3")), (2, NOT_EXECUTED));
    assert_eq!((ran.state().stop_reason.as_str(), ran.reply()), ("budget_tool_calls", "two will do"));
}

#[test]
fn calls_that_cannot_be_executed_take_nothing_of_the_budget() {
    let budget = Budget { tool_calls: Some(1), reserve_final: true, ..Budget::default() };
    let args = r#"{"x":"1"}"#;
    let round =
        calls([("c1", "nope", "{}"), ("c2", "echo", "{}"), ("c3", "echo", args), ("c4", "echo", args)]);
    let ran = with(budget, [round, txt("one will do")]).play();
    assert_eq!((ran.kit.n("echo"), ran.result("c3"), ran.result("c4")), (1, "r:1", NOT_EXECUTED));
    assert_eq!((ran.state().stop_reason.as_str(), ran.reply()), ("budget_tool_calls", "one will do"));
}

#[test]
fn a_tool_is_stopped_when_the_time_is_over() {
    let budget = Budget { wall: Some(Duration::from_millis(500)), reserve_final: true, ..Budget::default() };
    let ran = with(budget, [call("c1", "hang", "{}"), txt("too slow")]).tools(&["hang"]).play_here();
    assert_eq!(ran.result("c1"), "Error: budget exhausted, the call was stopped.");
    assert_eq!((ran.times.as_slice(), ran.reply()), (&[0, 500][..], "too slow"));
    assert_eq!(ran.state().stop_reason.as_str(), "budget_wall");
}

#[test]
fn a_model_call_is_ended_when_the_time_is_over() {
    let slow = || Answer::stream().text(["Once"]).delay(60_000).text([" upon"]).end("stop").done();
    let budget = Budget { wall: Some(Duration::from_millis(500)), reserve_final: false, ..Budget::default() };
    let ran = with(budget.clone(), [slow()]).play_here();
    assert_eq!((ran.turn().ended, ran.outcome()), (500, AgentOutcome::Budget));
    assert_eq!((ran.state().stop_reason.as_str(), ran.messages().as_str()), ("budget_wall", r#"u:"go""#));
    // The delay of a retry counts as well, and the received text is stored.
    let ran = with(budget.clone(), [http(503, &[], "")]).play_here();
    assert_eq!((ran.turn().ended, ran.outcome()), (500, AgentOutcome::Budget));
    let keeps = with(budget.clone(), [slow()]);
    let ran = keeps.config(|config| ReactConfig { keep_interrupted: true, ..config }).play_here();
    assert_eq!((ran.messages().as_str(), ran.reply()), (r#"u:"go", a:"Once""#, "Once"));

    // The reserved call has no tools, and a quarter of the time.
    let budget = Budget { reserve_final: true, ..budget };
    let ran = with(budget.clone(), [slow(), txt("in short")]).play_here();
    assert_eq!(
        (ran.times.as_slice(), ran.reply(), ran.outcome()),
        (&[0, 500][..], "in short", AgentOutcome::Budget)
    );
    assert!(ran.requests[0].get("tools").is_some() && ran.requests[1].get("tools").is_none());
    assert_eq!(ran.messages(), r#"u:"go", a:"in short""#);
    let ran = with(budget, [slow(), slow()]).play_here();
    assert_eq!((ran.turn().ended, ran.outcome()), (625, AgentOutcome::Budget));
    assert_eq!(
        ran.reply(),
        "No answer: the time of the turn was over before the model gave an answer (budget_wall)."
    );
}

/// Returns the times of the warnings about the turn's time, and their percentages.
fn warned(ran: &Ran) -> Vec<(u64, u64)> {
    let told = ran.turn().told.iter().filter(|told| told.name == "budget_warning");
    told.map(|told| {
        assert_eq!(told.text("budget"), "budget_wall");
        (told.at, told.data["percent"].as_u64().unwrap())
    })
    .collect()
}

#[test]
fn a_turn_is_warned_before_its_time_is_over() {
    let budget = Budget { wall: Some(Duration::from_millis(500)), reserve_final: true, ..Budget::default() };
    let slow = || Answer::stream().text(["Once"]).delay(60_000).text([" upon"]).end("stop").done();
    let hang = || call("c1", "hang", "{}");
    let play = |answers: Vec<Answer>| with(budget.clone(), answers).tools(&["hang", "slow"]).play_here();
    // In a call of the model, also while it waits for a retry, in a call of a tool, and only once.
    for answers in [vec![slow(), txt("ok")], vec![http(503, &[], ""), txt("ok")], vec![hang(), txt("ok")]] {
        let ran = play(answers);
        assert_eq!((warned(&ran), ran.outcome()), (vec![(400, 80)], AgentOutcome::Budget));
        assert!(ran.state().answer.budget_warned);
    }
    let rounds = [r#"{"x":"a"}"#, r#"{"x":"b"}"#, r#"{"x":"c"}"#].map(|args| call("c1", "slow", args));
    let ran = play(rounds.into_iter().chain([txt("ok")]).collect());
    assert_eq!((warned(&ran), ran.outcome()), (vec![(400, 80)], AgentOutcome::Completed));
    // A turn that ends early enough is not warned.
    let ran = play(vec![call("c1", "slow", r#"{"x":"a"}"#), txt("ok")]);
    assert_eq!((warned(&ran), ran.outcome()), (vec![], AgentOutcome::Completed));
    // The warning of a call of the model is not repeated by the call of a tool.
    let ran = play(vec![
        Answer::stream().delay(450).call(0, "c1", "hang", ["{}"]).end("tool_calls").done(),
        txt("ok"),
    ]);
    assert_eq!((warned(&ran), ran.outcome()), (vec![(400, 80)], AgentOutcome::Budget));
}

#[test]
fn no_tool_begins_when_the_time_is_over() {
    let budget = Budget { wall: Some(Duration::from_millis(500)), reserve_final: true, ..Budget::default() };
    let behind = |tool, args, tool_mode| {
        let round = calls([("c0", "hang", "{}"), ("c1", tool, args)]);
        let scenario = with(budget.clone(), [round, txt("too slow")]).tools(&["hang", "ping", "solo"]);
        scenario.config(|config| ReactConfig { tool_mode, ..config }).play_here()
    };
    for ran in [
        behind("ping", "{}", ToolMode::Sequential),
        behind("solo", r#"{"x":"c"}"#, ToolMode::Parallel { max: 8 }),
    ] {
        assert_eq!(ran.result("c0"), "Error: budget exhausted, the call was stopped.");
        assert_eq!((ran.result("c1"), ran.kit.n("ping"), ran.kit.n("solo")), (NOT_EXECUTED, 0, 0));
        assert_eq!((ran.times.as_slice(), ran.state().tools_used.len()), (&[0, 500][..], 1));
        assert!(ran.events().contains(",c1,budget}"), "{}", ran.events());
    }
}

#[test]
fn calls_approved_after_the_time_budget_are_not_executed() {
    // The approval takes a millisecond.
    let budget = Budget { wall: Some(Duration::from_millis(1)), reserve_final: true, ..Budget::default() };
    let scenario = with(budget, [call("c1", "send", r#"{"to":"a"}"#), txt("too slow")]).tools(&["send"]);
    let ran = Scenario { decide: Some(|_| Some(Approval::Approve)), ..scenario }.play_here();
    assert_eq!((ran.kit.asked().len(), ran.kit.n("send")), (1, 0));
    assert_eq!((ran.result("c1"), ran.reply()), (NOT_EXECUTED, "too slow"));
}

#[test]
fn unreported_tokens_are_estimated() {
    let budget = Budget { tokens: Some(5), reserve_final: false, ..Budget::default() };
    let ran = with(budget, [call("c1", "echo", r#"{"x":"1"}"#)]).play();
    assert!(ran.state().answer.estimated);
    assert_eq!((ran.kit.n("echo"), ran.outcome()), (0, AgentOutcome::Budget));
}

#[test]
fn a_server_that_reports_no_number_has_not_reported_the_tokens() {
    for usage in [r#"{"prompt_tokens":0,"completion_tokens":0}"#, "{}", "[]", r#"{"prompt_tokens":-1}"#] {
        let budget = Budget { tokens: Some(5), reserve_final: false, ..Budget::default() };
        let called = Answer::stream().call(0, "c1", "echo", [r#"{"x":"1"}"#]);
        let called = called.data(&format!(r#"{{"choices":[],"usage":{usage}}}"#)).end("tool_calls").done();
        let ran = with(budget, [called]).play();
        assert!(ran.state().answer.estimated, "{usage}");
        assert_eq!((ran.kit.n("echo"), ran.outcome()), (0, AgentOutcome::Budget), "{usage}");
    }
}

#[test]
fn money_needs_prices() {
    let cost = Cost { max: 1.0, per_million_input: Some(1.0), per_million_output: None };
    let budget = Budget { cost: Some(cost), ..Budget::default() };
    let model = std::sync::Arc::new(ScriptedModel::new(Script::new([])));
    let config = ReactConfig { budget, ..ReactConfig::default() };
    let refused = Agent::builder(model).config(config).build().err().unwrap();
    assert!(matches!(refused, AgentError::UnknownPrice), "{refused}");

    let cost = Cost { max: 1.0, per_million_input: None, per_million_output: None };
    let config =
        ReactConfig { budget: Budget { cost: Some(cost), ..Budget::default() }, ..ReactConfig::default() };
    let refused = Agent::builder(ScriptedModel::new(Script::new([]))).config(config).build().err().unwrap();
    assert!(matches!(refused, AgentError::UnknownPrice), "the model's are unknown: {refused}");

    let cost = Cost { max: 1.0, per_million_input: Some(10_000.0), per_million_output: Some(20_000.0) };
    let budget = Budget { cost: Some(cost), reserve_final: false, ..Budget::default() };
    let ran = with(budget, [echo("c1", "1", (60, 20))]).play();
    assert_eq!((ran.state().stop_reason.as_str(), ran.kit.n("echo")), ("budget_cost", 0));
}

#[tokio::test]
async fn known_prices_make_the_cost_of_a_turn_and_its_limit() {
    let table = "[[model]]\nid = \"scripted\"\nas_of = \"2026-11-28\"\n\
                 price = { input = \"1000\", output = \"5000\", above = [{ tokens = 50, input = \"2000\" }] }";
    let table = ModelTable::parse(table).unwrap();
    let info = table.find("scripted").unwrap();
    let ask = async |max: f64| {
        let answers =
            [echo("c1", "1", (40, 10)), Answer::stream().text(["done"]).end("stop").usage(60, 10).done()];
        let model = ScriptedModel::new(Script::new(answers)).knowing((**info).clone());
        let cost = Cost { max, per_million_input: None, per_million_output: None };
        let budget = Budget { cost: Some(cost), reserve_final: false, ..Budget::default() };
        let parameters = json!({ "type": "object" });
        let spec = ToolSpec { name: "echo".into(), description: "Echoes.".into(), parameters };
        let agent =
            Agent::builder(model).tool(tool_fn(spec, |_: Value, _: ToolCx| async { Ok("1".to_owned()) }));
        let config = ReactConfig { budget, permissions: Vec::new(), ..ReactConfig::default() };
        agent.config(config).approve_all().build().unwrap().ask("hi").await.unwrap()
    };
    // 40 * 1000 + 10 * 5000 millionths of a dollar, then 60 * 2000 + 10 * 5000.
    let reply = ask(1.0).await;
    let cost = TurnCost { nano_dollars: NanoDollars(260_000_000), incomplete: false };
    assert_eq!((reply.outcome, reply.estimated_cost), (AgentOutcome::Completed, Some(cost)));
    assert_eq!(reply.metadata.estimated_cost["scripted"].as_of, "2026-11-28");
    let reply = ask(0.09).await;
    assert_eq!((reply.outcome, reply.metadata.stop_reason.as_str()), (AgentOutcome::Budget, "budget_cost"));
}

#[test]
fn calls_that_a_rule_forbids_take_nothing_of_the_budget() {
    let budget = Budget { tool_calls: Some(1), reserve_final: true, ..Budget::default() };
    let args = r#"{"x":"1"}"#;
    let round = calls([("c1", "send", r#"{"to":"a"}"#), ("c2", "echo", args), ("c3", "echo", args)]);
    let scenario = with(budget, [round, txt("one will do")]).tools(&["echo", "send"]);
    let forbidden = [PermissionRule::new("send", Permit::Deny)];
    let ran = scenario.config(|config| ReactConfig { permissions: forbidden.to_vec(), ..config }).play();
    assert_eq!((ran.kit.n("echo"), ran.result("c2"), ran.result("c3")), (1, "r:1", NOT_EXECUTED));
    assert_eq!(ran.result("c1"), "Error: Permission denied: a rule forbids it");
}
