//! Turns that end with a call of the finish tool.

use serde_json::{Value, json};
use superstep::agent::{
    AgentOutcome, Approval, ReactConfig,
    config::{Finish, FinishBy, Limit, LoopAction, LoopRule, Repeat},
    hooks::{Acting, Hooks},
};
use superstep_testing::script::{Answer, Script, call, calls, txt};

use super::{Kit, Scenario, show};

const FINISH: &str = "generate_response";

fn agentscope(answers: impl IntoIterator<Item = Answer>) -> Scenario {
    Scenario::new(answers).config(|_| ReactConfig::agentscope())
}

fn finish(id: &str, arguments: &str) -> Answer {
    call(id, FINISH, arguments)
}

fn offered(request: &Value) -> Vec<&str> {
    let tools = request["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect()
}

#[test]
fn a_call_of_the_finish_tool_ends_the_turn_with_its_reply() {
    let script = [call("c1", "echo", r#"{"x":"1"}"#), finish("c2", r#"{"response":"It is 1."}"#)];
    let ran = agentscope(script).play();
    assert_eq!(
        ran.events(),
        concat!(
            r#"a▸ ◂a tool_start{echo,{"x":"1"},c1} tool_end{echo,c1,"r:1"} a▸ ◂a "#,
            r#"tool_start{generate_response,{"response":"It is 1."},c2} "#,
            r#"tool_end{generate_response,c2,"Successfully generated response."} a▸ ◂a"#
        )
    );
    assert_eq!((ran.reply(), ran.outcome()), ("It is 1.", AgentOutcome::Completed));
    assert_eq!(ran.result("c2"), "Successfully generated response.");
    let state = ran.state();
    assert_eq!((state.current_step, state.llm_calls, state.model_requests), (1, 2, 2));
    assert_eq!(state.metadata.tools_used, ["echo"]);
    assert_eq!((state.stop_reason.as_str(), state.output.as_ref()), ("", None));
}

#[test]
fn the_reply_of_the_finish_tool_ends_the_conversation_once() {
    let given = finish("c1", r#"{"response":"It is 1."}"#);
    let ran = agentscope([given, txt("bye")]).turns(&["go", "so long"]).play();
    assert_eq!(
        ran.messages(),
        concat!(
            r#"u:"go", a:[c1 generate_response{"response":"It is 1."}], t(c1):"Successfully generated response.", "#,
            r#"a:"It is 1.", u:"so long", a:"bye"[11.0.finish generate_response{"response":"bye"}], "#,
            r#"t(11.0.finish):"Successfully generated response.""#,
        )
    );
    let said: Vec<_> =
        ran.requests[1]["messages"].as_array().unwrap().iter().map(|said| &said["content"]).collect();
    assert_eq!(said.iter().filter(|said| ***said == json!("It is 1.")).count(), 1);
}

#[test]
fn the_finish_tool_is_offered_without_registration() {
    let ran = agentscope([txt("hi")]).play();
    assert_eq!(offered(&ran.requests[0]), ["add", "echo", FINISH]);
    let parameters = &ran.requests[0]["tools"][2]["function"]["parameters"];
    assert_eq!(parameters["required"], json!(["response"]));
    assert_eq!(offered(&Scenario::new([txt("hi")]).play().requests[0]), ["add", "echo"]);
}

#[test]
fn the_finish_tool_is_one_of_the_tools_that_are_there() {
    let ran = agentscope([call("c1", "finish", "{}"), finish("c2", r#"{"response":"hi"}"#)]).play();
    let known = "Error: unknown tool 'finish'. Available tools: add, echo, generate_response";
    assert_eq!((ran.result("c1"), ran.reply()), (known, "hi"));
}

#[test]
fn a_plain_text_is_taken_for_a_call_of_the_finish_tool() {
    let ran = agentscope([txt("hi"), txt("bye")]).turns(&["hello", "so long"]).play();
    assert_eq!(
        ran.messages(),
        concat!(
            r#"u:"hello", a:"hi"[3.0.finish generate_response{"response":"hi"}], "#,
            r#"t(3.0.finish):"Successfully generated response.", "#,
            r#"u:"so long", a:"bye"[11.0.finish generate_response{"response":"bye"}], "#,
            r#"t(11.0.finish):"Successfully generated response.""#,
        )
    );
    assert_eq!((ran.reply(), ran.outcome()), ("bye", AgentOutcome::Completed));
    assert_eq!((ran.state().current_step, ran.requests.len()), (0, 2));
}

#[test]
fn without_conversion_the_model_is_reminded_to_call_it_up_to_a_limit() {
    let strict = |answers: Vec<Answer>| {
        agentscope(answers).config(|config| ReactConfig {
            finish: Finish { convert_text: false, ..config.finish },
            ..config
        })
    };
    let ran = strict(vec![txt("hi"), finish("c1", r#"{"response":"hi!"}"#)]).play();
    assert_eq!((ran.reply(), ran.outcome()), ("hi!", AgentOutcome::Completed));
    let told = "Call the tool 'generate_response' to give your reply.";
    let last = ran.requests[1]["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(*last, json!({"role": "user", "content": told}));
    assert_eq!(ran.state().answer.invalid, 1);
    assert!(ran.state().messages.iter().any(|message| message.synthetic && message.content == told));

    let ran = strict(vec![txt("a"), txt("b"), txt("c")]).play();
    assert_eq!((ran.requests.len(), ran.reply(), ran.outcome()), (3, "c", AgentOutcome::InvalidOutput));
    assert_eq!(ran.state().stop_reason.as_str(), "structured_output_invalid");
}

#[test]
fn wrong_arguments_are_reported_and_the_loop_continues() {
    let script = [finish("c1", "{}"), finish("c2", "{x"), finish("c3", r#"{"response":"ok"}"#)];
    let ran = agentscope(script).play();
    assert_eq!(ran.result("c1"), "Arguments Validation Error: `response` is missing");
    assert!(ran.result("c2").starts_with("Arguments Validation Error: "), "{}", ran.result("c2"));
    assert_eq!((ran.reply(), ran.outcome()), ("ok", AgentOutcome::Completed));
    assert_eq!((ran.state().current_step, ran.state().answer.invalid), (2, 2));
    assert_eq!(ran.state().output_problem, "");
}

#[test]
fn other_calls_of_the_answer_still_get_their_results() {
    let script = calls([
        ("c0", "echo", r#"{"x":"1"}"#),
        ("c1", FINISH, r#"{"response":"done"}"#),
        ("c2", "echo", r#"{"x":"2"}"#),
        ("c3", FINISH, r#"{"response":"too late"}"#),
    ]);
    let ran = agentscope([script]).play();
    assert_eq!((ran.reply(), ran.outcome(), ran.kit.n("echo")), ("done", AgentOutcome::Completed, 2));
    assert_eq!((ran.result("c0"), ran.result("c2")), ("r:1", "r:2"));
    assert_eq!((ran.state().current_step, ran.requests.len()), (1, 1));
}

#[test]
fn a_reply_that_is_given_with_the_last_step_or_the_last_of_the_budget_counts() {
    let reply = || finish("c1", r#"{"response":"done"}"#);
    let last = agentscope([reply()]).config(|config| {
        let limit =
            Limit { max: 1, at: superstep::agent::config::AtLimit::Reminder("last".into()), ..config.limit };
        ReactConfig { limit, ..config }
    });
    let mut poor = agentscope([reply()]);
    poor.config.budget.tool_calls = Some(1);
    for ran in [last.play(), poor.play()] {
        assert_eq!(ran.reply(), "done");
        assert_eq!(ran.result("c1"), "Successfully generated response.");
    }
}

#[test]
fn a_truncated_reply_is_not_accepted() {
    let cut = Answer::stream().call(0, "c1", FINISH, [r#"{"response":"do"#]).end("length").done();
    let ran = agentscope([cut, txt("done")]).play();
    assert!(ran.result("c1").contains("was cut off by the output limit"), "{}", ran.result("c1"));
    assert_eq!(ran.reply(), "done");
}

#[test]
fn finishing_is_not_a_loop() {
    let script = [finish("c1", "{}"), finish("c2", "{}"), finish("c3", r#"{"response":"ok"}"#)];
    let ran = agentscope(script).config(|config| {
        let similar = Repeat::Similar { n: 2, threshold: 0.9 };
        ReactConfig { loops: vec![LoopRule { when: similar, then: LoopAction::Stop }], ..config }
    });
    assert_eq!(ran.play().outcome(), AgentOutcome::Completed);
}

#[test]
fn a_summary_at_the_limit_is_a_text_and_a_reply() {
    let script = [call("c1", "echo", r#"{"x":"1"}"#), txt("as far as I got")];
    let ran = agentscope(script)
        .config(|config| ReactConfig { limit: Limit { max: 1, ..config.limit.clone() }, ..config })
        .play();
    assert_eq!(offered(&ran.requests[1]), Vec::<&str>::new());
    assert_eq!((ran.reply(), ran.outcome()), ("as far as I got", AgentOutcome::Limit));
    assert!(show::messages(ran.state().messages.iter()).ends_with(r#"a:"as far as I got""#));
}

#[test]
fn a_tool_cannot_have_the_name_of_the_finish_tool() {
    let finish = Finish { tool: "echo".into(), by: FinishBy::Tool, ..Finish::default() };
    let scenario = Scenario::new([]).config(|config| ReactConfig { finish, ..config });
    let model = superstep_testing::scripted::ScriptedModel::new(Script::default());
    let agent = scenario.agent(std::sync::Arc::new(model), &Kit::default());
    let error = agent.build().expect_err("two tools have one name").to_string();
    assert!(error.contains("two tools are named `echo`"), "{error}");
}

#[test]
fn a_reply_by_call_is_accepted_in_the_call_without_tools() {
    let echo = call("c1", "echo", r#"{"x":"1"}"#);
    let given = calls([("c2", FINISH, r#"{"response":"It is 1."}"#), ("c3", "echo", r#"{"x":"2"}"#)]);
    let at_limit = |script: Vec<Answer>| {
        agentscope(script)
            .config(|config| ReactConfig { limit: Limit { max: 1, ..config.limit.clone() }, ..config })
            .play()
    };
    let ran = at_limit(vec![echo.clone(), given]);
    assert_eq!((ran.reply(), ran.outcome()), ("It is 1.", AgentOutcome::Completed));
    assert_eq!((ran.kit.n("echo"), ran.requests.len()), (1, 2));
    assert_eq!(ran.requests[1].get("tools"), None);
    let ignored: Vec<_> = ran.state().ignored_tool_calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ignored, ["c3"]);
    // Another call is none.
    let ran = at_limit(vec![echo, finish("c2", "{}")]);
    assert_ne!(ran.outcome(), AgentOutcome::Completed);
}

#[test]
fn the_name_of_the_finish_tool_is_repaired_like_that_of_any_other() {
    let repairs = |config| ReactConfig { repair: true, ..config };
    for name in ["generateResponse", "Generate_Response", "GENERATE-RESPONSE"] {
        let given = || call("c1", name, r#"{"response":"It is 1."}"#);
        let ran = agentscope([given()]).config(repairs).play();
        assert_eq!((ran.reply(), ran.outcome()), ("It is 1.", AgentOutcome::Completed), "{name}");
        assert_eq!(ran.events().matches("+tool_repaired").count(), 1, "{}", ran.events());
        let ran = without_steps([given()]).config(repairs).play();
        assert_eq!((ran.reply(), ran.outcome()), ("It is 1.", AgentOutcome::Completed), "{name}");
        // Without repair there is no such tool.
        let ran = agentscope([given(), txt("so be it")]).play();
        assert!(ran.result("c1").starts_with("Error: unknown tool"), "{}", ran.result("c1"));
    }
    // The right name is none to repair.
    let ran = agentscope([finish("c1", r#"{"response":"It is 1."}"#)]).config(repairs).play();
    assert!(!ran.events().contains("repaired"), "{}", ran.events());
}

#[test]
fn a_reply_beside_a_denied_call_is_kept() {
    let round = calls([("c1", "send", r#"{"to":"a"}"#), ("c2", FINISH, r#"{"response":"Not sent."}"#)]);
    let scenario = agentscope([round]).tools(&["send"]).config(|mut config| {
        config.approval.stop_on_deny = true;
        config
    });
    let ran = Scenario { decide: Some(|_| Some(Approval::Deny("no mail".into()))), ..scenario }.play();
    assert_eq!((ran.reply(), ran.outcome()), ("Not sent.", AgentOutcome::Denied));
}

/// An agent whose first call is already the one without tools.
fn without_steps(answers: impl IntoIterator<Item = Answer>) -> Scenario {
    agentscope(answers)
        .config(|config| ReactConfig { limit: Limit { max: 0, ..config.limit.clone() }, ..config })
}

#[test]
fn a_reply_by_call_that_was_cut_off_is_not_accepted_without_tools() {
    let cut_off = Answer::stream().call(0, "c1", FINISH, [r#"{"response":"It is 1."}"#]).end("length").done();
    let ran = without_steps([cut_off]).play();
    assert_eq!((ran.outcome(), ran.requests.len()), (AgentOutcome::Limit, 1));
    let ignored: Vec<_> = ran.state().ignored_tool_calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ignored, ["c1"]);
}

#[test]
fn a_reply_by_call_that_a_hook_denies_in_the_call_without_tools_is_no_step() {
    let hooks = |_: &Kit| {
        let mut hooks = Hooks::default();
        hooks.acting.pre(|mut acting: Acting| async move {
            acting.denied = Some("not yet".to_owned());
            Ok(Some(acting))
        });
        hooks
    };
    let script = [finish("c1", r#"{"response":"It is 1."}"#), txt("so be it")];
    let ran = Scenario { hooks, ..without_steps(script) }.play();
    assert_eq!(ran.result("c1"), "Error: Permission denied: not yet");
    assert_eq!((ran.reply(), ran.state().current_step), ("so be it", 0));
}
