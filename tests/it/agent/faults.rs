//! C: models that reject, break off, or return too little.

use std::time::Duration;

use superstep::{
    agent::{AgentOutcome, ReactConfig, presets::PRESETS},
    llm::{ModelErrorKind, ModelRetry, Usage, retries::Jitter},
};
use superstep_testing::script::{Answer, call, http, txt};

use super::{Cancel, Ran, Scenario};

const CUTOFF: &str =
    "Error: the call to 'echo' was cut off by the output limit and was not executed. Send smaller arguments.";

/// Sets the default policy, with exact delays in units of `base`.
fn retrying(scenario: Scenario, base: u64) -> Scenario {
    let base = Duration::from_millis(base);
    let retry = ModelRetry { base, jitter: Jitter::None, ..ModelRetry::default() };
    scenario.config(|config| ReactConfig { retry, ..config })
}

fn limited(headers: &[(&str, &str)]) -> Ran {
    retrying(Scenario::new([http(429, headers, "{}"), txt("ok")]), 1000).play_here()
}

#[test]
fn a_retry_waits_as_the_server_requests() {
    for (headers, wait) in [
        (&[("retry-after", "7")][..], 7000),
        (&[("retry-after-ms", "1500"), ("retry-after", "7")], 1500),
        (&[("retry-after", "0.5")], 500),
        (&[("retry-after", "Thu, 01 Jan 1970 00:00:20 GMT")], 20_000),
        (&[("retry-after", "Thu, 01 Jan 1970 00:00:00 GMT")], 1000),
        (&[("retry-after", "soon")], 1000),
        (&[], 1000),
    ] {
        let ran = limited(headers);
        assert_eq!(ran.times, [0, wait], "{headers:?}");
        assert_eq!(ran.events(), format!("a▸ +retry{{2,{wait},429}} tok(ok) ◂a"), "{headers:?}");
        assert_eq!(ran.turn().times("retry"), [0], "the wait is told before it begins");
        assert_eq!((ran.state().llm_calls, ran.state().model_requests), (1, 2));
        assert_eq!(ran.requests[0], ran.requests[1]);
    }
}

#[test]
fn a_retry_over_the_wire() {
    let ran = retrying(Scenario::new([http(429, &[("retry-after-ms", "3")], "{}"), txt("ok")]), 1).play();
    assert_eq!(ran.events(), "a▸ +retry{2,3,429} tok(ok) ◂a");
    assert_eq!(ran.messages(), r#"u:"go", a:"ok""#);
}

#[test]
fn a_wait_that_is_too_long_is_not_begun() {
    let ran = retrying(Scenario::new([http(429, &[("retry-after", "600")], "{}")]), 1).play();
    assert_eq!(ran.times, [0]);
    assert_eq!(ran.turn().ended, 0);
    assert_eq!(ran.events(), "a▸ ◂a");
    let error = ran.state().error.as_ref().unwrap();
    assert_eq!((error.kind, error.status), (ModelErrorKind::RateLimited, Some(429)));
    assert_eq!((error.retry_after_ms, error.retry_at_ms), (Some(600_000), Some(600_000)));
    assert_eq!(ran.outcome(), AgentOutcome::LlmError);
}

#[test]
fn an_exhausted_quota_is_not_retried() {
    let body = r#"{"error":{"message":"no credit","code":"insufficient_quota"}}"#;
    let ran = retrying(Scenario::new([http(429, &[], body)]), 1).play();
    assert_eq!(ran.requests.len(), 1);
    assert_eq!(ran.state().error.as_ref().unwrap().kind, ModelErrorKind::QuotaExceeded);
}

#[test]
fn a_cancelled_wait_ends_at_once() {
    let mut scenario = retrying(Scenario::new([http(429, &[("retry-after", "7")], "{}")]), 1);
    scenario.cancel = Cancel::At(100);
    let ran = scenario.play_here();
    assert_eq!((ran.times.as_slice(), ran.turn().ended), (&[0][..], 100));
    assert_eq!(ran.outcome(), AgentOutcome::Cancelled);
    assert_eq!(ran.messages(), r#"u:"go""#);
    assert_eq!(ran.state().model_requests, 1);
}

#[test]
fn a_refused_request_is_sent_once() {
    for (status, kind) in [
        (400, ModelErrorKind::BadRequest),
        (401, ModelErrorKind::Auth),
        (403, ModelErrorKind::Auth),
        (404, ModelErrorKind::NotFound),
        (422, ModelErrorKind::BadRequest),
    ] {
        let ran = Scenario::new([http(status, &[], r#"{"error":{"message":"no"}}"#)]).play();
        assert_eq!(ran.times, [0]);
        assert_eq!(ran.events(), "a▸ ◂a");
        assert_eq!(ran.outcome(), AgentOutcome::LlmError);
        assert_eq!(ran.messages(), r#"u:"go""#);
        let error = ran.state().error.as_ref().unwrap();
        assert_eq!((error.kind, error.status), (kind, Some(status)));
        assert_eq!(ran.turn().nodes(), "init_state memory_trigger agent finalize");
    }
}

#[test]
fn the_reply_explains_a_failed_model_call() {
    let busy = || http(503, &[], r#"{"error":{"message":"overloaded"}}"#);
    let scenario = Scenario::new([busy(), busy(), busy()]);
    let ran = scenario.play_here();
    assert_eq!(ran.times, [0, 1000, 3000]);
    assert_eq!(ran.events(), "a▸ +retry{2,1000,503} +retry{3,2000,503} ◂a");
    let state = ran.state();
    assert_eq!((state.stop, state.stop_reason.as_str()), (true, "llm_error"));
    assert_eq!((state.llm_calls, state.model_requests), (0, 3));
    assert!(ran.reply().contains("llm_error") && ran.reply().contains("overloaded"), "{}", ran.reply());
    let quick = ModelRetry { base: Duration::from_millis(1), ..scenario.config.retry };
    let ran = scenario.config(|config| ReactConfig { retry: quick, ..config }).play();
    assert_eq!(ran.outcome(), AgentOutcome::LlmError);
}

#[test]
fn transient_failures_are_retried() {
    for status in [500, 502, 503, 504, 529, 408, 409, 425] {
        let ran = retrying(Scenario::new([http(status, &[], "{}"), txt("ok")]), 1).play();
        assert_eq!(ran.events(), format!("a▸ +retry{{2,1,{status}}} tok(ok) ◂a"));
        assert_eq!((ran.state().llm_calls, ran.state().model_requests), (1, 2));
        assert_eq!(ran.messages(), r#"u:"go", a:"ok""#);
    }
    let ran = retrying(Scenario::new([Answer::NoConnection, txt("ok")]), 1).play();
    assert_eq!(ran.events(), "a▸ +retry{2,1,null} tok(ok) ◂a");
}

#[test]
fn a_request_that_is_too_long_is_distinguished_from_a_plain_400() {
    for body in [
        r#"{"error":{"message":"no","code":"context_length_exceeded"}}"#,
        r#"{"error":{"message":"This model's maximum context length is 8192 tokens","code":null}}"#,
        r#"{"error":{"code":400,"message":"no","type":"exceed_context_size_error","n_ctx":4096}}"#,
        r#"{"error":{"message":"The input token count (134123) exceeds the maximum number of tokens allowed (131072)."}}"#,
        r#"{"error":{"message":"Your request exceeded model token limit: 262144"}}"#,
        r#"{"error":{"message":"Range of input length should be [1, 30720]"}}"#,
        r#"{"error":{"message":"This model's maximum prompt length is 131072 but the request contains 140000 tokens."}}"#,
        r#"{"error":{"message":"input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000"}}"#,
    ] {
        let ran = retrying(Scenario::new([http(400, &[], body)]), 1).play();
        let error = ran.state().error.as_ref().unwrap();
        assert_eq!((error.kind, error.status), (ModelErrorKind::ContextOverflow, Some(400)));
        assert_eq!((ran.requests.len(), ran.events().as_str()), (1, "a▸ ◂a"));
    }
}

fn broken() -> Answer {
    Answer::stream().text(["Hel", "lo wor"]).cut()
}

#[test]
fn a_broken_answer_is_void_and_the_next_one_counts() {
    let whole = Answer::stream().text(["Hello", " world"]).end("stop").done();
    let ran = retrying(Scenario::new([broken(), whole]), 5).play();
    assert_eq!(
        ran.events(),
        "a▸ tok(Hel) tok(lo wor) +attempt_discarded{1} +retry{2,5,null} tok(Hello) tok( world) ◂a"
    );
    assert_eq!(ran.messages(), r#"u:"go", a:"Hello world""#);
    assert_eq!((ran.state().llm_calls, ran.state().model_requests), (1, 2));
    assert_eq!(ran.reply(), "Hello world");
}

#[test]
fn an_answer_that_the_server_gave_up_is_void_and_executes_nothing() {
    for reason in ["error", "insufficient_system_resource", "network_error", "abort"] {
        let given_up =
            || Answer::stream().text(["Hel"]).call(0, "c1", "echo", [r#"{"x":"1"}"#]).end(reason).done();
        let ran = retrying(Scenario::new([given_up(), txt("ok")]), 5).play();
        assert_eq!(ran.events(), "a▸ tok(Hel) +attempt_discarded{1} +retry{2,5,null} tok(ok) ◂a", "{reason}");
        assert_eq!((ran.messages().as_str(), ran.kit.n("echo")), (r#"u:"go", a:"ok""#, 0));
        let never = |config| ReactConfig { retry: ModelRetry::never(), ..config };
        let ran = Scenario::new([given_up()]).config(never).play();
        assert_eq!((ran.outcome(), ran.kit.n("echo")), (AgentOutcome::LlmError, 0));
        assert!(ran.reply().contains(reason), "{}", ran.reply());
    }
}

#[test]
fn a_broken_answer_without_retries_leaves_no_message() {
    let scenario = Scenario::new([broken()]);
    let ran = scenario.config(|config| ReactConfig { retry: ModelRetry::never(), ..config }).play();
    assert_eq!(ran.messages(), r#"u:"go""#);
    assert_eq!(ran.outcome(), AgentOutcome::LlmError);
    assert_eq!(ran.state().error.as_ref().unwrap().kind, ModelErrorKind::TruncatedStream);
    assert_eq!(ran.events(), "a▸ tok(Hel) tok(lo wor) +attempt_discarded{1} ◂a");
}

#[test]
fn a_partial_response_is_retained_and_flagged_if_configured() {
    let called = Answer::stream().text(["Hel", "lo"]).call(0, "c1", "echo", [r#"{"x":"1"}"#]).cut();
    for answer in [Answer::stream().text(["Hel", "lo"]).cut(), called] {
        let scenario = Scenario::new([answer, txt("fine")]).turns(&["go", "go on"]);
        let ran = scenario
            .config(|config| ReactConfig { retry: ModelRetry::never(), keep_partial: true, ..config })
            .play();
        assert_eq!(ran.turns[0].shown(), "a▸ tok(Hel) tok(lo) ◂a", "what is kept is not void");
        assert_eq!(ran.turns[0].state.outcome, Some(AgentOutcome::LlmError));
        assert_eq!(ran.turns[0].state.final_reply, "Hello");
        assert_eq!(ran.messages(), r#"u:"go", a:"Hello", u:"go on", a:"fine""#);
        let flagged = ran.state().messages.iter().map(|message| message.interrupted);
        assert_eq!(flagged.collect::<Vec<_>>(), [false, true, false, false]);
        assert_eq!(ran.kit.n("echo"), 0);
    }
    // No text is left to store.
    let blank = Answer::stream().text(["\n"]).cut();
    let ran = Scenario::new([blank])
        .config(|config| ReactConfig { retry: ModelRetry::never(), keep_partial: true, ..config })
        .play();
    assert_eq!(ran.messages(), r#"u:"go""#);
}

#[test]
fn a_cancelled_response_is_retained_if_configured() {
    let scenario = Scenario::new([Answer::stream().text(["Hel", "lo"]).delay(500).text(["no"]).stall()]);
    let mut scenario = scenario.config(|config| ReactConfig { keep_partial: true, ..config });
    scenario.cancel = Cancel::At(100);
    let ran = scenario.play_here();
    assert_eq!((ran.outcome(), ran.reply()), (AgentOutcome::Cancelled, "Hello"));
    assert_eq!(ran.messages(), r#"u:"go", a:"Hello""#);
}

#[test]
fn a_text_that_is_cut_off_is_accepted() {
    let ran = Scenario::new([Answer::stream().text(["The answer "]).end("length").done()]).play();
    assert_eq!(ran.events(), "a▸ tok(The answer ) +truncated_answer ◂a");
    assert_eq!((ran.reply(), ran.outcome()), ("The answer ", AgentOutcome::Completed));
    assert_eq!(ran.messages(), r#"u:"go", a:"The answer ""#);
}

/// Runs a call, complete or not, in an answer that ended for `reason`.
fn cut_call(arguments: &str, reason: &str) -> Ran {
    let cut = Answer::stream().call(0, "c1", "echo", [arguments]).end(reason).done();
    Scenario::new([cut, call("c2", "echo", r#"{"x":"1"}"#), txt("ok")]).play()
}

#[test]
fn a_call_that_is_cut_off_is_answered_and_not_executed() {
    for reason in ["length", "model_length", "MAX_TOKENS"] {
        // Arguments that happen to be complete may still differ from the model's intention.
        for arguments in [r#"{"x":"a"#, r#"{"x":"a"}"#] {
            let ran = cut_call(arguments, reason);
            assert_eq!(ran.kit.n("echo"), 1, "{reason} {arguments}");
            assert_eq!(ran.result("c1"), CUTOFF);
            assert_eq!(ran.result("c2"), "r:1");
            assert_eq!(
                ran.events(),
                concat!(
                    r#"a▸ ◂a +tool_skipped{echo,c1,cut_off} "#,
                    r#"a▸ ◂a tool_start{echo,{"x":"1"},c2} tool_end{echo,c2,"r:1"} a▸ tok(ok) ◂a"#
                )
            );
            assert_eq!((ran.state().current_step, ran.outcome()), (2, AgentOutcome::Completed));
            assert_eq!(ran.state().tools_used, ["echo".to_owned()]);
        }
    }
}

#[test]
fn a_call_that_is_withheld_is_neither_executed_nor_requested_again() {
    for reason in ["content_filter", "sensitive", "SAFETY"] {
        for arguments in [r#"{"x":"a"#, r#"{"x":"a"}"#] {
            let withheld = Answer::stream().call(0, "c1", "echo", [arguments]).end(reason).done();
            let ran = Scenario::new([withheld]).play();
            assert_eq!((ran.kit.n("echo"), ran.requests.len()), (0, 1), "{reason} {arguments}");
            assert_eq!(ran.outcome(), AgentOutcome::ContentFilter);
            assert_eq!(ran.state().ignored_tool_calls[0].id, "c1");
        }
    }
}

#[test]
fn an_empty_answer_is_accepted() {
    let blank = Answer::stream().text(["\n "]).end("stop").done();
    let thought = Answer::stream().reasoning("hm").end("stop").done();
    for (answer, reply) in [(Answer::stream().end("stop").done(), ""), (blank, "\n "), (thought, "")] {
        let ran = Scenario::new([answer]).play();
        assert_eq!((ran.requests.len(), ran.reply()), (1, reply));
        assert_eq!(ran.outcome(), AgentOutcome::Completed);
        assert_eq!(ran.state().stop_reason.as_str(), "");
    }
}

#[test]
fn tokens_of_a_discarded_answer_are_counted() {
    let paid = Answer::stream().text(["x"]).usage(5, 1).cut();
    let whole = Answer::stream().text(["y"]).end("stop").usage(5, 2).done();
    let ran = retrying(Scenario::new([paid.clone(), whole]), 1).play();
    assert_eq!(ran.state().usage, Usage::new(10, 3));
}

#[test]
fn tokens_of_a_failed_turn_are_counted() {
    let paid = || Answer::stream().text(["x"]).usage(5, 1).cut();
    let scenario = Scenario::new([paid(), paid(), paid()]);
    let retry = ModelRetry { base: Duration::from_millis(1), ..scenario.config.retry };
    let ran = scenario.config(|config| ReactConfig { retry, ..config }).play();
    assert_eq!(ran.outcome(), AgentOutcome::LlmError);
    assert_eq!(ran.state().usage, Usage::new(15, 3));
}

#[test]
fn a_refusal_is_the_reply_and_an_outcome_of_its_own() {
    let said = "I cannot help with that.";
    let quoted = format!(r#""{said}""#);
    let by_field = Answer::stream().chunk(&format!(r#"{{"refusal":{quoted}}}"#), None).end("stop").done();
    let by_part = format!(r#"{{"content":[{{"type":"refusal","refusal":{quoted}}}]}}"#);
    let by_part = Answer::stream().chunk(&by_part, None).end("stop").done();
    let by_reason = Answer::stream().text([said]).end("refusal").done();
    let with_call =
        Answer::stream().text([said]).call(0, "c1", "echo", [r#"{"x":"1"}"#]).end("refusal").done();
    for preset in PRESETS {
        for answer in [&by_field, &by_part, &by_reason, &with_call] {
            let scenario = Scenario::new([answer.clone()]).config(|_| (preset.config)());
            let ran = scenario.play_here();
            assert_eq!((ran.outcome(), ran.reply()), (AgentOutcome::Refused, said), "{}", preset.name);
            assert_eq!(ran.state().stop_reason.as_str(), "refusal");
            assert_eq!(ran.messages(), format!(r#"u:"go", a:{quoted}"#), "{}", preset.name);
            assert_eq!((ran.requests.len(), ran.kit.n("echo")), (1, 0));
        }
    }
    // A reply without its schema is an error, and the model is not called again.
    let mut config = ReactConfig::default();
    config.finish.schema = Some(serde_json::json!({"type": "object", "required": ["n"]}));
    let ran = Scenario::new([by_field]).config(|_| config).play_here();
    assert_eq!((ran.outcome(), ran.reply(), &ran.state().output), (AgentOutcome::Refused, said, &None));
}

#[test]
fn a_filtered_response_is_not_empty() {
    for preset in PRESETS {
        let config = || (preset.config)();
        let nothing = Answer::stream().end("content_filter").done();
        let ran = Scenario::new([nothing]).config(|_| config()).play_here();
        assert_eq!((ran.outcome(), ran.requests.len()), (AgentOutcome::ContentFilter, 1), "{}", preset.name);
        assert_eq!(
            ran.reply(),
            "No answer: the provider's content filter withheld the answer (content_filter)."
        );
        let begun = Answer::stream().text(["It begins"]).end("content_filter").done();
        let ran = Scenario::new([begun]).config(|_| config()).play_here();
        assert_eq!(
            (ran.outcome(), ran.reply()),
            (AgentOutcome::ContentFilter, "It begins"),
            "{}",
            preset.name
        );
        assert_eq!(ran.messages(), r#"u:"go", a:"It begins""#);
    }
}
