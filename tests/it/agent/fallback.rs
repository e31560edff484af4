//! Several models: fallbacks, and their events.

use std::{collections::BTreeMap, time::Duration};

use superstep::{
    agent::{AgentError, AgentOutcome, ReactConfig},
    llm::{
        ModelErrorKind, ModelRetry, Usage,
        retries::{Jitter, RetryClass},
    },
};
use superstep_testing::{
    script::{Answer, Script, call, http, txt},
    scripted::ScriptedModel,
};

use super::{Cancel, Scenario, kit::Kit};

/// Sets two attempts of each model, with exact delays in units of `base`.
fn retrying(scenario: Scenario, base: u64) -> Scenario {
    let base = Duration::from_millis(base);
    let retry = ModelRetry { base, max_attempts: 2, jitter: Jitter::None, ..ModelRetry::default() };
    scenario.config(|config| ReactConfig { retry, ..config })
}

fn tokens(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage::new(input_tokens, output_tokens)
}

fn busy() -> Answer {
    http(503, &[], "{}")
}

#[test]
fn the_next_model_is_called_when_the_attempts_are_exhausted() {
    let scenario = retrying(Scenario::new([busy(), busy()]), 3).fallback([busy(), txt("ok")]);
    let ran = scenario.play();
    assert_eq!(ran.events(), "a▸ +retry{2,3,503} +model_fallback{m,f1,503} +retry{4,3,503} tok(ok) ◂a");
    assert_eq!(ran.messages(), r#"u:"go", a:"ok""#);
    let state = ran.state();
    assert_eq!((state.llm_calls, state.model_requests), (1, 4));
    assert_eq!((state.model.as_str(), state.metadata.model.as_str()), ("f1", "f1"));
    assert_eq!(ran.fell_back[0][0]["messages"], ran.requests[0]["messages"]);
    assert_eq!(ran.fell_back[0][0]["model"], "f1");
}

#[test]
fn a_failure_of_the_models_own_leads_to_the_next_one_at_once() {
    let quota = r#"{"error":{"code":"insufficient_quota"}}"#;
    for (failure, status) in [
        (http(401, &[], ""), "401"),
        (http(403, &[], ""), "403"),
        (http(404, &[], ""), "404"),
        (http(402, &[], ""), "402"),
        (http(429, &[], quota), "429"),
        (http(429, &[("retry-after", "600")], ""), "429"),
    ] {
        let ran = retrying(Scenario::new([failure]), 60_000).fallback([txt("ok")]).play();
        assert_eq!(ran.events(), format!("a▸ +model_fallback{{m,f1,{status}}} tok(ok) ◂a"));
        assert_eq!(ran.turn().ended, 0, "nobody waits for another model");
        assert_eq!(ran.outcome(), AgentOutcome::Completed);
    }
}

#[test]
fn an_invalid_or_too_long_request_is_not_sent_to_other_models() {
    let long = r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#;
    for (failure, kind) in [
        (http(400, &[], "{}"), ModelErrorKind::BadRequest),
        (http(422, &[], "{}"), ModelErrorKind::BadRequest),
        (http(400, &[], long), ModelErrorKind::ContextOverflow),
    ] {
        let ran = retrying(Scenario::new([failure]), 1).fallback([]).play();
        assert_eq!(ran.state().error.as_ref().unwrap().kind, kind);
        assert_eq!(ran.events(), "a▸ ◂a");
        assert!(ran.state().model.is_empty() && ran.state().usage_by_model.is_empty());
    }
    // Not even if every failure is retried.
    let scenario = retrying(Scenario::new([http(400, &[], "{}"), http(400, &[], "{}")]), 1).fallback([]);
    let any = ModelRetry { retries: RetryClass::Any, ..scenario.config.retry };
    let ran = scenario.config(|config| ReactConfig { retry: any, ..config }).play();
    assert_eq!(ran.events(), "a▸ +retry{2,1,400} ◂a");
}

#[test]
fn partial_text_of_a_failed_model_is_void_when_another_replies() {
    let half = || Answer::stream().text(["Hel"]).usage(5, 1).cut();
    let whole = Answer::stream().text(["Hello"]).end("stop").usage(7, 2).done();
    let ran = retrying(Scenario::new([half(), half()]), 2).fallback([whole]).play();
    assert_eq!(
        ran.events(),
        "a▸ tok(Hel) +attempt_discarded{1} +retry{2,2,null} tok(Hel) +attempt_discarded{2} \
         +model_fallback{m,f1,null} tok(Hello) ◂a"
    );
    assert_eq!(ran.messages(), r#"u:"go", a:"Hello""#);
    assert_eq!(ran.state().usage, tokens(17, 4));
    let by_model = BTreeMap::from([("m".to_owned(), tokens(10, 2)), ("f1".to_owned(), tokens(7, 2))]);
    assert_eq!(ran.state().usage_by_model, by_model);
    assert_eq!(ran.state().metadata.usage_by_model, by_model);
}

#[test]
fn a_tool_call_of_a_broken_answer_is_not_executed() {
    let half = || Answer::stream().call(0, "c1", "echo", [r#"{"x":"1"}"#]).cut();
    let whole = call("c2", "echo", r#"{"x":"2"}"#);
    let ran = retrying(Scenario::new([half(), half()]), 1).fallback([whole, txt("ok")]).play();
    assert_eq!((ran.kit.n("echo"), ran.reply()), (1, "ok"));
    assert_eq!(ran.messages(), r#"u:"go", a:[c2 echo{"x":"2"}], t(c2):"r:2", a:"ok""#);
}

#[test]
fn the_model_that_replied_is_called_first_until_the_turn_is_over() {
    let said = |text| Answer::stream().text([text]).end("stop").usage(1, 1).done();
    let called =
        Answer::stream().call(0, "c1", "echo", [r#"{"x":"1"}"#]).end("tool_calls").usage(1, 1).done();
    let scenario = Scenario::new([http(404, &[], ""), said("back")])
        .fallback([http(401, &[], "")])
        .fallback([called, said("done")])
        .turns(&["go", "again"]);
    let scenario = retrying(scenario, 1);
    let ran = scenario.play();
    assert_eq!(
        ran.turns[0].shown(),
        r#"a▸ +model_fallback{m,f1,404} +model_fallback{f1,f2,401} ◂a tool_start{echo,{"x":"1"},c1} tool_end{echo,c1,"r:1"} a▸ tok(done) ◂a"#
    );
    assert_eq!(ran.turns[0].state.model, "f2");
    assert_eq!(ran.turns[0].state.usage_by_model["f2"], tokens(2, 2));
    assert_eq!(ran.events(), "a▸ tok(back) ◂a", "the next turn begins with the main model again");
    assert!(ran.state().model.is_empty() && ran.state().usage_by_model.is_empty());
}

#[test]
fn models_before_the_one_that_answered_have_their_turn_when_it_fails() {
    let scenario = Scenario::new([http(404, &[], ""), txt("main")])
        .fallback([call("c1", "echo", r#"{"x":"1"}"#), http(401, &[], "")]);
    let ran = retrying(scenario, 1).play();
    assert_eq!(
        ran.events(),
        r#"a▸ +model_fallback{m,f1,404} ◂a tool_start{echo,{"x":"1"},c1} tool_end{echo,c1,"r:1"} a▸ +model_fallback{f1,m,401} tok(main) ◂a"#
    );
    assert_eq!((ran.state().model.as_str(), ran.reply()), ("", "main"), "the main model has no name here");
}

#[test]
fn when_no_model_replies_the_error_names_each() {
    let scenario = Scenario::new([busy(), busy()]).fallback([http(401, &[], "no key")]);
    let ran = retrying(scenario, 1).play();
    let error = ran.state().error.clone().unwrap();
    assert_eq!((error.kind, error.status), (ModelErrorKind::Auth, Some(401)));
    assert_eq!(
        error.message,
        "`f1`: the server answered 401: no key; before it, `m`: the server answered 503"
    );
    assert_eq!((ran.outcome(), ran.state().model_requests), (AgentOutcome::LlmError, 3));
    assert_eq!(ran.state().model, "");
}

#[test]
fn all_waits_together_are_bounded() {
    let scenario = retrying(Scenario::new([busy(), busy()]), 1000).fallback([busy()]).fallback([txt("ok")]);
    let retry = ModelRetry { longest_wait: Duration::from_millis(1500), ..scenario.config.retry };
    let ran = scenario.config(|config| ReactConfig { retry, ..config }).play_here();
    assert_eq!(
        ran.events(),
        "a▸ +retry{2,1000,503} +model_fallback{m,f1,503} +model_fallback{f1,f2,503} tok(ok) ◂a"
    );
    assert_eq!(ran.turn().ended, 1000);
}

#[test]
fn a_cancelled_wait_of_a_fallback_ends_at_once() {
    let mut scenario = retrying(Scenario::new([http(401, &[], "")]), 7000).fallback([busy()]);
    scenario.cancel = Cancel::At(100);
    let ran = scenario.play_here();
    assert_eq!((ran.turn().ended, ran.outcome()), (100, AgentOutcome::Cancelled));
    assert_eq!(ran.state().model_requests, 2);
    assert_eq!(ran.messages(), r#"u:"go""#);
}

#[test]
fn two_models_of_one_name_are_refused() {
    let model = || std::sync::Arc::new(ScriptedModel::new(Script::default()));
    let agent = Scenario::new([]).agent(model(), &Kit::default()).fallback(model()).build();
    let error = agent.err().unwrap();
    assert!(matches!(error, AgentError::ModelName { .. }), "{error}");
    assert_eq!(
        error.to_string(),
        "duplicate model name `scripted`; set another `name` for one of the models"
    );
}
