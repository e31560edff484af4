//! Replies with a schema.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use superstep::{
    OnUnfinished, RunOptions,
    agent::{
        Agent, AgentError, AgentOutcome, ExtractError, ReactConfig,
        config::{Finish, Limit, OutputMode},
        facades::agentscope::ReActAgent,
    },
};
use superstep_testing::{
    script::{Answer, Script, call, txt},
    scripted::ScriptedModel,
};

use super::{
    Ran, Scenario,
    facades::{Asked, both},
    kit::Kit,
    paused,
};

const FINISH: &str = "generate_response";

fn schema() -> Value {
    json!({"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]})
}

fn asked(output: OutputMode, answers: impl IntoIterator<Item = Answer>) -> Scenario {
    let finish = Finish { output, schema: Some(schema()), ..Finish::default() };
    Scenario::new(answers).config(|config| ReactConfig { finish, ..config })
}

fn finish(id: &str, arguments: &str) -> Answer {
    call(id, FINISH, arguments)
}

fn last(ran: &Ran, request: usize) -> (&str, &str) {
    let message = ran.requests[request]["messages"].as_array().unwrap().last().unwrap();
    (message["role"].as_str().unwrap(), message["content"].as_str().unwrap())
}

#[test]
fn invalid_arguments_are_reported_and_the_next_ones_are_the_output() {
    let wrong = finish("c1", r#"{"response":"x","answer":"many"}"#);
    let ran = asked(OutputMode::Tool, [wrong, finish("c2", r#"{"response":"x","answer":42}"#)]).play();
    assert_eq!(ran.result("c1"), "Arguments Validation Error: `answer`: expected integer, got a string");
    assert_eq!(ran.requests.len(), 2);
    let state = ran.state();
    assert_eq!((state.output.as_ref(), ran.reply()), (Some(&json!({"answer": 42})), "x"));
    assert_eq!((ran.outcome(), state.answer.invalid), (AgentOutcome::Completed, 1));
    assert_eq!(state.output_problem, "");
}

#[test]
fn after_the_last_retry_the_turn_ends_with_the_last_detail_and_the_text() {
    let wrong = |id, answer: &str| finish(id, &format!(r#"{{"response":"about {id}","answer":{answer}}}"#));
    let script = [wrong("c1", "\"a\""), wrong("c2", "1.5"), wrong("c3", "null")];
    let ran = asked(OutputMode::Tool, script).play();
    let state = ran.state();
    assert_eq!((ran.requests.len(), ran.outcome()), (3, AgentOutcome::InvalidOutput));
    assert_eq!(state.stop_reason.as_str(), "structured_output_invalid");
    assert_eq!(state.output_problem, "`answer`: expected integer, got null");
    assert_eq!((ran.reply(), state.output.as_ref()), ("about c3", None));
    // Under a nearly right name, too.
    let wrong = |id| call(id, "generateResponse", &format!(r#"{{"response":"about {id}","answer":"a"}}"#));
    let repairs = asked(OutputMode::Tool, ["c1", "c2", "c3"].map(wrong));
    let ran = repairs.config(|config| ReactConfig { repair: true, ..config }).play();
    assert_eq!((ran.reply(), ran.outcome()), ("about c3", AgentOutcome::InvalidOutput));
}

#[test]
fn a_text_is_answered_with_a_nudge_that_counts_as_a_retry() {
    let ran = asked(OutputMode::Tool, [txt("It is 42."), finish("c1", r#"{"answer":42}"#)]).play();
    assert_eq!(last(&ran, 1), ("user", "Call the tool 'generate_response' to give your reply."));
    assert_eq!((ran.state().answer.invalid, ran.outcome()), (1, AgentOutcome::Completed));
    assert_eq!(ran.reply(), r#"{"answer":42}"#);

    let ran = asked(OutputMode::Tool, [txt("a"), txt("b"), txt("It is 42.")]).play();
    assert_eq!((ran.reply(), ran.outcome()), ("It is 42.", AgentOutcome::InvalidOutput));
}

#[test]
fn a_matching_text_is_the_output() {
    let ran = asked(OutputMode::Tool, [txt("```json\n{\"answer\": 42}\n```")]).play();
    assert_eq!((ran.requests.len(), ran.outcome()), (1, AgentOutcome::Completed));
    assert_eq!(ran.state().output, Some(json!({"answer": 42})));
}

#[test]
fn prose_is_not_a_reply_even_if_the_schema_requires_nothing() {
    let schema = json!({"type": "object", "properties": {"nick": {"type": "string"}}});
    let finish = Finish { schema: Some(schema), ..Finish::default() };
    let scenario = |answers: Vec<Answer>| {
        Scenario::new(answers).config(|config| ReactConfig { finish: finish.clone(), ..config }).play()
    };
    let ran = scenario(vec![txt(r#"{"nick":"Bob"}"#)]);
    assert_eq!((ran.requests.len(), ran.outcome()), (1, AgentOutcome::Completed));
    assert_eq!(ran.state().output, Some(json!({"nick": "Bob"})));

    let ran = scenario(vec![txt("Let me think."), call("c1", FINISH, r#"{"nick":"Bob"}"#)]);
    assert_eq!(last(&ran, 1), ("user", "Call the tool 'generate_response' to give your reply."));
    assert_eq!((ran.state().output.as_ref(), ran.state().answer.invalid), (Some(&json!({"nick": "Bob"})), 1));

    let ran = scenario(vec![Answer::stream().text([" "]).end("stop").done(), txt(r#"{"nick":"Bob"}"#)]);
    assert_eq!((ran.requests.len(), ran.state().output.as_ref()), (2, Some(&json!({"nick": "Bob"}))));

    // A text that contains only the response gives the value, too.
    let ran = scenario(vec![txt(r#"{"response":"Nobody has one."}"#)]);
    assert_eq!((ran.reply(), ran.state().output.as_ref()), ("Nobody has one.", Some(&json!({}))));
}

#[test]
fn native_output_is_a_text_that_the_provider_holds_to_the_schema() {
    let script = [call("c1", "echo", r#"{"x":"1"}"#), txt(r#"{"answer":"many"}"#), txt(r#"{"answer":42}"#)];
    let ran = asked(OutputMode::Native, script).play();
    for request in &ran.requests {
        let format = &request["response_format"];
        assert_eq!((&format["type"], &format["json_schema"]["schema"]), (&json!("json_schema"), &schema()));
        let tools = request["tools"].as_array().unwrap();
        assert!(tools.iter().all(|tool| tool["function"]["name"] != FINISH));
    }
    let (role, told) = last(&ran, 2);
    assert!(role == "user" && told.contains("`answer`: expected integer, got a string"), "{told}");
    assert_eq!(ran.state().output, Some(json!({"answer": 42})));
    assert_eq!((ran.reply(), ran.state().answer.invalid), (r#"{"answer":42}"#, 1));

    let ran = asked(OutputMode::Native, [txt("no"), txt("JSON"), txt("today")]).play();
    assert_eq!((ran.reply(), ran.outcome()), ("today", AgentOutcome::InvalidOutput));
    assert!(ran.state().output_problem.starts_with("expected"), "{}", ran.state().output_problem);
}

#[test]
fn prompted_output_is_requested_in_the_system_prompt() {
    let ran = asked(OutputMode::Prompted, [txt(r#"{"answer":42}"#)]).play();
    let system = ran.requests[0]["messages"][0]["content"].as_str().unwrap();
    assert!(system.contains(&schema().to_string()), "{system}");
    assert_eq!(ran.requests[0].get("response_format"), None);
    assert_eq!(ran.state().output, Some(json!({"answer": 42})));
}

#[test]
fn the_call_at_the_step_limit_carries_the_schema() {
    for output in [OutputMode::Tool, OutputMode::Native, OutputMode::Prompted] {
        let script = [call("c1", "echo", r#"{"x":"1"}"#), txt("no idea"), txt(r#"{"answer":42}"#)];
        let ran = asked(output, script)
            .config(|config| ReactConfig { limit: Limit { max: 1, ..config.limit.clone() }, ..config })
            .play();
        for request in &ran.requests[1..] {
            assert_eq!(request.get("tools"), None);
            let carries = request["response_format"]["json_schema"]["schema"] == schema()
                || request["messages"].to_string().contains("JSON Schema");
            assert!(carries, "{output:?}: {request}");
        }
        assert_eq!(ran.state().output, Some(json!({"answer": 42})), "{output:?}");
        assert_eq!((ran.outcome(), ran.reply()), (AgentOutcome::Limit, r#"{"answer":42}"#));
    }
}

#[test]
fn every_end_at_the_step_limit_requests_json() {
    use superstep::agent::config::{AtLimit, LimitUnit};
    let fixed = AtLimit::Fixed("Max iterations reached.".into());
    let reminder = AtLimit::Reminder("last call".into());
    for (at, unit, max) in [
        (fixed, LimitUnit::ToolRounds, 1),
        (AtLimit::LastMessage, LimitUnit::ToolRounds, 1),
        (AtLimit::NoToolsCall { hint: None }, LimitUnit::ToolRounds, 1),
        (reminder, LimitUnit::ModelCalls, 2),
    ] {
        let script = [call("c1", "echo", r#"{"x":"1"}"#), txt("no idea"), txt(r#"{"answer":42}"#)];
        let limit = Limit { max, unit, at: at.clone() };
        let ran = asked(OutputMode::Tool, script).config(|config| ReactConfig { limit, ..config }).play();
        for request in &ran.requests[1..] {
            let messages = request["messages"].to_string();
            assert_eq!(request.get("tools"), None, "{at:?}");
            assert_eq!(messages.contains("last call"), matches!(at, AtLimit::Reminder(_)), "{at:?}");
            assert!(messages.contains("JSON Schema"), "{at:?}: {messages}");
        }
        assert_eq!(ran.state().output, Some(json!({"answer": 42})), "{at:?}");
        assert_eq!((ran.outcome(), ran.reply()), (AgentOutcome::Limit, r#"{"answer":42}"#));
    }
}

#[test]
fn a_summary_at_the_limit_carries_the_schema_and_its_hint() {
    let script = [call("c1", "echo", r#"{"x":"1"}"#), txt("no idea"), txt(r#"{"answer":42}"#)];
    let ran = Scenario::new(script).config(|_| {
        let config = ReactConfig::agentscope();
        let finish = Finish { schema: Some(schema()), ..config.finish };
        ReactConfig { finish, limit: Limit { max: 1, ..config.limit }, ..config }
    });
    let ran = ran.play();
    assert_eq!(ran.requests[0]["tools"].as_array().map(Vec::len), Some(3));
    for request in &ran.requests[1..] {
        assert_eq!(request.get("tools"), None);
        let messages = request["messages"].to_string();
        assert!(
            messages.contains("You have failed to generate response within the maximum iterations"),
            "{messages}"
        );
        assert!(messages.contains("JSON Schema") && messages.contains("integer"), "{messages}");
    }
    assert_eq!(
        (ran.state().output.as_ref(), ran.outcome()),
        (Some(&json!({"answer": 42})), AgentOutcome::Limit)
    );
}

#[test]
fn as_many_retries_as_there_may_be() {
    for retries in [0, 1, 3] {
        let wrong = (0..=retries).map(|n| finish(&format!("c{n}"), &format!(r#"{{"answer":"{n}"}}"#)));
        let tolerant =
            |config: ReactConfig| ReactConfig { finish: Finish { retries, ..config.finish }, ..config };
        let ran = asked(OutputMode::Tool, wrong).config(tolerant).play();
        assert_eq!((ran.requests.len(), ran.outcome()), (retries as usize + 1, AgentOutcome::InvalidOutput));
        assert_eq!(ran.state().output_problem, "`answer`: expected integer, got a string");
        assert_eq!(
            (ran.state().stop_reason.as_str(), ran.state().output.as_ref()),
            ("structured_output_invalid", None)
        );
    }
}

#[derive(Debug, PartialEq, Deserialize, schemars::JsonSchema)]
struct City {
    name: String,
    inhabitants: Option<u32>,
}

fn agent(config: ReactConfig, answers: impl IntoIterator<Item = Answer>) -> (Agent, ScriptedModel) {
    let model = ScriptedModel::new(Script::new(answers));
    let scenario = Scenario { config, ..Scenario::new([]) };
    let agent = scenario.agent(Arc::new(model.clone()), &Kit::default());
    let agent = agent.checkpointer(Arc::new(superstep::MemoryCheckpointer::new()));
    (agent.build().unwrap(), model)
}

#[test]
fn a_turn_may_bring_a_schema_of_its_own_and_give_a_value_of_a_type() {
    paused(async {
        let (agent, model) = agent(
            super::preset(),
            [finish("c1", r#"{"name":"Aarhus"}"#), txt("hello"), txt("a"), txt("b"), txt("c")],
        );
        let city: City = agent.thread("t").extract("the second city?").await.unwrap();
        assert_eq!(city, City { name: "Aarhus".into(), inhabitants: None });
        // The next turn has no schema.
        let reply = agent.thread("t").ask("hi").await.unwrap();
        assert_eq!((reply.text.as_str(), reply.output.as_ref()), ("hello", None));
        assert!(model.requests()[1].tools.iter().all(|tool| tool.name != FINISH));

        let error = agent.thread("t").extract::<City>("and the third?").await.unwrap_err();
        let ExtractError::Invalid { problem, reply } = error else { panic!("{error}") };
        assert_eq!(
            (problem.as_str(), reply.text.as_str()),
            ("a text instead of a call of `generate_response`", "c")
        );
    });
}

#[test]
fn a_value_of_a_type_is_the_same_at_both_levels() {
    let script =
        [txt("Aarhus"), finish("c1", r#"{"name":7}"#), finish("c2", r#"{"name":"Aarhus"}"#), txt("hello")];
    let (made, sent) = both(&script, async |asked: Asked| {
        let agent =
            asked.agent.config(super::preset()).checkpointer(Arc::new(superstep::MemoryCheckpointer::new()));
        let agent = agent.build().unwrap();
        let city: City = agent.thread("t").extract("the second city?").await.unwrap();
        // The schema was that turn's only.
        (city, agent.thread("t").ask("hi").await.unwrap().text)
    });
    let city = City { name: "Aarhus".into(), inhabitants: None };
    assert_eq!((made, sent.requests), ((city, "hello".to_owned()), 4));
}

#[test]
fn an_integer_out_of_range_of_its_type_is_reported() {
    paused(async {
        let script =
            [finish("c1", r#"{"name":"a","inhabitants":5000000000}"#), finish("c2", r#"{"name":"a"}"#)];
        let (agent, _) = agent(super::preset(), script);
        agent.thread("t").extract::<City>("the second city?").await.unwrap();
        let state = agent.graph().thread("t").state().await.unwrap().values;
        let told = &state.messages.iter().find(|message| message.tool_call_id == "c1").unwrap().content;
        assert!(told.starts_with("Arguments Validation Error: `inhabitants`: "), "{told}");
        assert!(told.contains("4294967295"), "{told}");
    });
}

#[test]
fn a_value_that_fits_the_schema_and_not_the_type_is_an_error_of_its_own() {
    #[derive(Debug, Deserialize, schemars::JsonSchema)]
    struct Server {
        #[allow(dead_code, reason = "only its reading counts")]
        #[schemars(with = "String")]
        address: std::net::IpAddr,
    }
    paused(async {
        let (agent, _) = agent(super::preset(), [finish("c1", r#"{"address":"here"}"#)]);
        let error = agent.thread("t").extract::<Server>("where?").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the reply matches the schema of its type but cannot be read as that type: invalid IP address \
             syntax"
        );
        let ExtractError::Type { reply, .. } = error else { panic!("{error}") };
        assert_eq!(reply.outcome, AgentOutcome::Completed);
        assert_eq!(reply.output, Some(json!({"address": "here"})));
    });
}

#[derive(Debug, PartialEq, Deserialize, schemars::JsonSchema)]
enum Expr {
    Num(i64),
    Add(Box<Expr>, Box<Expr>),
}

#[test]
fn a_recursive_type_that_is_not_an_object() {
    let right = r#"{"result":{"Add":[{"Num":1},{"Add":[{"Num":2},{"Num":3}]}]}}"#;
    let script = [finish("c1", r#"{"result":{"Add":[{"Num":"x"},{"Num":2}]}}"#), finish("c2", right)];
    let (made, sent) = both(&script, async |asked: Asked| {
        let agent = asked.agent.config(super::preset()).build().unwrap();
        agent.without_thread().extract::<Expr>("1 + (2 + 3)?").await.unwrap()
    });
    let [one, two, three] = [1, 2, 3].map(|n| Box::new(Expr::Num(n)));
    assert_eq!((made, sent.requests), (Expr::Add(one, Box::new(Expr::Add(two, three))), 2));
}

#[test]
fn a_map_retains_entries_with_any_keys() {
    use std::collections::BTreeMap;

    #[derive(Debug, PartialEq, Deserialize, schemars::JsonSchema)]
    struct Named {
        name: String,
        #[serde(flatten)]
        rest: BTreeMap<String, u32>,
    }
    let counts = BTreeMap::from([("request".to_owned(), 1), ("response".to_owned(), 2)]);
    paused(async {
        for output in [OutputMode::Tool, OutputMode::Native, OutputMode::Prompted] {
            let config = || {
                let preset = super::preset();
                ReactConfig { finish: Finish { output, ..preset.finish }, ..preset }
            };
            let answer = |given: &str| match output {
                OutputMode::Tool => finish("c1", given),
                _ => txt(given),
            };
            let (agent, _) = agent(config(), [answer(r#"{"result":{"request":1,"response":2}}"#)]);
            let given: BTreeMap<String, u32> = agent.thread("t").extract("count the words").await.unwrap();
            assert_eq!(given, counts, "{output:?}");

            let entries = r#"{"result":{"name":"n","request":1,"response":2}}"#;
            let (agent, _) = self::agent(config(), [answer(entries)]);
            let given: Named = agent.thread("t").extract("count the words").await.unwrap();
            assert_eq!(given, Named { name: "n".into(), rest: counts.clone() }, "{output:?}");
        }
    });
    // If additional fields are allowed, a text may have one of this name, too.
    let ran = asked(OutputMode::Native, [txt(r#"{"answer":42,"response":2}"#)]).play();
    assert_eq!(ran.state().output, Some(json!({"answer": 42, "response": 2})));
}

#[test]
fn a_type_that_is_not_an_object() {
    paused(async {
        let (agent, _) = agent(super::preset(), [finish("c1", r#"{"result":[1,2]}"#)]);
        assert_eq!(agent.thread("t").extract::<Vec<u32>>("numbers").await.unwrap(), [1, 2]);
        let (agent, _) = self::agent(super::preset(), [superstep_testing::script::http(401, &[], "{}")]);
        let error = agent.thread("t").extract::<Vec<u32>>("numbers").await.unwrap_err();
        assert!(
            matches!(&error, ExtractError::NoOutput { reply } if reply.outcome == AgentOutcome::LlmError)
        );
        assert!(error.to_string().starts_with("the turn ended without a value: No answer: "), "{error}");
    });
}

#[test]
fn the_schema_of_a_turn_that_is_given_up_is_gone_with_it() {
    paused(async {
        let model = ScriptedModel::new(Script::new([call("c1", "send", r#"{"to":"a"}"#), txt("hello")]));
        let scenario = Scenario::new([]).tools(&["send"]);
        let agent = scenario.agent(Arc::new(model.clone()), &Kit::default()).approve_by_interrupt();
        let agent = agent.checkpointer(Arc::new(superstep::MemoryCheckpointer::new())).build().unwrap();
        let asked = agent.thread("t").extract::<City>("the second city?").await.unwrap_err();
        let ExtractError::NoOutput { reply } = asked else { panic!("{asked}") };
        assert_eq!(reply.outcome, AgentOutcome::AwaitingApproval);
        let on_unfinished = OnUnfinished::Discard;
        let reply = agent.thread("t").on_unfinished(on_unfinished).ask("hi").await;
        let reply = reply.unwrap();
        assert_eq!((reply.text.as_str(), reply.outcome), ("hello", AgentOutcome::Completed));
        assert!(model.requests()[1].tools.iter().all(|tool| tool.name != FINISH));
    });
}

#[test]
fn a_facade_does_not_inherit_the_schema_of_a_turn_that_is_given_up() {
    paused(async {
        let model = ScriptedModel::new(Script::new([call("c1", "send", r#"{"to":"a"}"#), txt("hello")]));
        let agent = Scenario::new([]).tools(&["send"]).agent(Arc::new(model), &Kit::default());
        let friday = ReActAgent::new("Friday", agent.approve_by_interrupt()).unwrap();
        friday.agent().thread(friday.thread()).extract::<City>("the second city?").await.unwrap_err();
        let options = RunOptions::new().on_unfinished(OnUnfinished::Discard);
        assert_eq!(friday.reply_with("hi", options).await.unwrap().content, "hello");
    });
}

#[test]
fn an_invalid_schema_of_a_turn_fails_it_before_the_model_is_called() {
    paused(async {
        let (agent, model) = agent(super::preset(), [txt("hello")]);
        let input = agent.input("go").output_schema(json!({"type": "nunber"}));
        let error = agent.thread("t").run(input).await.unwrap_err();
        let text = superstep::error::chain(&error);
        assert!(
            text.contains("invalid schema in `output_schema`: it is not a valid JSON Schema: "),
            "{text}"
        );
        assert_eq!(model.requests().len(), 0);
        // A caller can continue without it.
        let on_unfinished = OnUnfinished::Discard;
        let reply = agent.thread("t").on_unfinished(on_unfinished).ask("hi").await;
        assert_eq!(reply.unwrap().text, "hello");
    });
}

#[test]
fn an_invalid_schema_is_rejected_before_the_model_is_called() {
    let build = |schema: Value| {
        let finish = Finish { schema: Some(schema), ..Finish::default() };
        let builder = Agent::builder(Arc::new(ScriptedModel::new(Script::new([]))));
        builder.config(ReactConfig { finish, ..ReactConfig::default() }).build()
    };
    assert!(build(schema()).is_ok());
    assert!(build(json!({"type": "integer", "minimum": 3})).is_ok());
    let refused = build(json!({"type": "object", "properties": {"n": {"type": "nunber"}}})).err().unwrap();
    assert!(matches!(refused, AgentError::ReplySchema { .. }), "{refused}");
    let text = refused.to_string();
    assert!(text.starts_with("invalid schema in `finish.schema`: it is not a valid JSON Schema: "), "{text}");
    assert!(matches!(build(json!("a city")).err(), Some(AgentError::ReplySchema { .. })));
}
