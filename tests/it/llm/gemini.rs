//! The API of Gemini, also on Vertex AI, against a strict server.

mod agents;

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use superstep::llm::{
    Assembler, Delta, FinishReason, GeminiConfig, GeminiModel, Message, ModelErrorKind, Request, ToolCall,
    auth::AccessToken, complete, media::Media, wire::OriginItem,
};

use super::{
    drain,
    rounds::{behind, tools},
    strict::Strict,
};

const KEY: &str = "AIza-test-0123456789";

/// Starts a server with a script and creates a model for it; `None` without Python.
fn served(answers: Value) -> Option<(Strict, GeminiModel)> {
    served_as(answers, json!({}), |_| ())
}

fn served_as(
    answers: Value,
    settings: Value,
    change: impl FnOnce(&mut GeminiConfig),
) -> Option<(Strict, GeminiModel)> {
    let mut script = json!({"config": {"key": KEY, "repeat_last": false}, "answers": answers});
    script["config"].as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let server = Strict::start("gemini", &script)?;
    let mut config = GeminiConfig::new(server.origin(), KEY, "m");
    change(&mut config);
    let model = GeminiModel::new(config).unwrap().with_clock(|| 0);
    Some((server, model))
}

fn hi() -> Request {
    Request {
        tools: tools(),
        ..Request::new([Message::system("Be kind."), Message::user("hi").with_id("u1")])
    }
}

fn signatures(body: &Value) -> Vec<(usize, String)> {
    let contents = body["contents"].as_array().unwrap();
    let parts = contents.iter().flat_map(|content| content["parts"].as_array().unwrap()).enumerate();
    parts.filter_map(|(at, part)| Some((at, part["thoughtSignature"].as_str()?.to_owned()))).collect()
}

#[tokio::test]
async fn signatures_go_back_on_the_parts_that_they_came_with() {
    for change in [
        json!({}),
        json!({"split": 3, "crlf": true}),
        json!({"pieces": 9, "ascii": true}),
        json!({"late": true, "parts": [{"text": "I add."}]}),
        json!({"insert": {"1": ": a comment\n\ndata: {\"new\":1}\n\ndata: {\"candidates\":[{\"content\":{\"parts\":[{},null]}}]}\n\n"}}),
    ] {
        let parts = json!([{"thought": "Hm — 😀"}, {"text": "I add.", "signed": true},
            {"call": ["add", {"x": "ü"}], "signed": true}, {"call": ["add", {"x": 2}]}]);
        let mut answer = json!({ "parts": parts });
        answer.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let has_calls = change.get("parts").is_none();
        let Some((server, model)) = served(json!([answer, {"parts": [{"text": "ok"}]}])) else { return };
        let first = complete(&model, hi()).await.unwrap();
        let message: Message = serde_json::from_str(&serde_json::to_string(&first.message).unwrap()).unwrap();
        assert_eq!(message, first.message);
        let next = complete(&model, behind(&hi(), &message)).await.unwrap();
        assert_eq!((message.content.as_str(), next.message.content.as_str()), ("I add.", "ok"), "{change}");
        let log = server.accepted();
        let all = if has_calls { 2 } else { 1 };
        assert_eq!(log[1].other["signed"], json!([all, all]), "{change}");
        assert_eq!(log[0].headers["x-goog-api-key"], KEY);
        if has_calls {
            assert_eq!((message.reasoning.as_str(), first.finish), ("Hm — 😀", FinishReason::ToolCalls));
            assert_eq!(
                message.tool_calls[0].arguments,
                if change["ascii"] == true { "{\"x\":\"\\u00fc\"}" } else { "{\"x\":\"ü\"}" }
            );
            let usage = first.usage.unwrap();
            assert_eq!((usage.reasoning_tokens, usage.output_tokens), (2, 7));
            // Behind the user's text: the thought, the text, its signature, and the calls.
            let places: Vec<_> = signatures(&log[1].body).into_iter().map(|(at, _)| at).collect();
            assert_eq!(places, [3, 4], "{change}");
        }
    }
}

#[tokio::test]
async fn parallel_calls_are_paired_by_their_order_or_their_ids() {
    for ids in [false, true] {
        let calls = json!([{"call": ["add", {"x": 1}]}, {"call": ["add", {"x": 2}]}]);
        let script = json!([{"parts": calls}, {"parts": [{"text": "ok"}]}]);
        let Some((server, model)) = served_as(script, json!({ "ids": ids }), |_| ()) else { return };
        let first = complete(&model, hi()).await.unwrap().message;
        let mut next = behind(&hi(), &first);
        assert_ne!(first.tool_calls[0].id, first.tool_calls[1].id);
        next.messages[3].to_mut().content = "one".into();
        next.messages[4].to_mut().content = "two".into();
        next.messages.swap(3, 4);
        complete(&model, next).await.unwrap();
        let log = server.accepted();
        let results = log[1].body["contents"][2]["parts"].as_array().unwrap();
        let outputs: Vec<_> =
            results.iter().map(|part| &part["functionResponse"]["response"]["output"]).collect();
        assert_eq!(outputs, ["one", "two"]);
        assert_eq!(results[0]["functionResponse"].get("id").is_some(), ids);
        assert_eq!(log[1].other["signed"], json!([1, 1]));
    }
}

#[tokio::test]
async fn repeated_ids_are_made_unique() {
    let round = |x: i32| json!({"parts": [{"call": ["add", {"x": x}], "id": "call_1"}, {"call": ["add", {"x": -x}], "id": "call_1"}]});
    let Some((server, model)) = served(json!([round(1), round(2), {"parts": [{"text": "ok"}]}])) else {
        return;
    };
    let mut request = hi();
    for _ in 0..2 {
        let answer = complete(&model, request.clone()).await.unwrap().message;
        request = behind(&request, &answer.with_id(format!("a{}", request.messages.len())));
    }
    complete(&model, request).await.unwrap();
    let log = server.accepted();
    let ids: Vec<_> = log[2].body["contents"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|content| content["parts"].as_array().unwrap())
        .filter_map(|part| part["functionCall"]["id"].as_str())
        .collect();
    let unique: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!((ids.len(), unique.len(), ids[0]), (4, 4, "call_1"));
    assert_eq!(log[2].other["signed"], json!([2, 2]));
}

#[tokio::test]
async fn calls_of_another_provider_have_the_signature_that_is_defined_for_them() {
    let Some((server, model)) = served(json!([{"parts": [{"text": "ok"}]}])) else { return };
    let calls = [ToolCall::new("toolu.1 é", "add", "{}"), ToolCall::new("", "my tool", "x")];
    let mut request = hi();
    request.messages.push(Message::assistant("").with_tool_calls(calls));
    request.messages.extend([Message::tool("", "2"), Message::tool("toolu.1 é", "1")]);
    complete(&model, request).await.unwrap();
    let log = server.log();
    assert!(log[0].error.is_none(), "{:?}", log[0].error);
    assert_eq!(signatures(&log[0].body), [(1, "skip_thought_signature_validator".to_owned())]);
}

#[tokio::test]
async fn refused_signatures_stay_out_once() {
    let script = json!([{"parts": [{"call": ["add", {}]}]}, {"parts": [{"text": "ok"}]}]);
    let Some((server, model)) = served(script) else { return };
    let first = complete(&model, hi()).await.unwrap();
    let mut next = behind(&hi(), &first.message);
    let origin = next.messages[2].to_mut().origin.as_mut().unwrap();
    let OriginItem::Call { rest } = &mut origin.items[0] else { panic!() };
    *rest = r#"{"thoughtSignature":"AAAA"}"#.into();
    let mut answer = Assembler::new();
    let mut dropped = 0;
    for delta in drain(&model, next).await.into_iter().map(Result::unwrap) {
        dropped += usize::from(matches!(&delta, Delta::ReasoningDropped { all: true, .. }));
        answer.push(&delta);
    }
    assert_eq!((answer.finish().unwrap().message.content.as_str(), dropped), ("ok", 1));
    let log = server.log();
    assert_eq!(log.iter().map(|line| line.status).collect::<Vec<_>>(), [200, 400, 200]);
    assert_eq!(signatures(&log[2].body)[0].1, "skip_thought_signature_validator");
}

#[tokio::test]
async fn ends_have_the_kinds_of_the_provider() {
    let script = json!([
        {"parts": [{"text": "a"}], "finish": "MAX_TOKENS"},
        {"parts": [{"text": "a"}], "finish": "SAFETY"},
        {"block": "PROHIBITED_CONTENT"},
        {"block": "SAFETY", "message": "Not that."},
        {"parts": [{"text": "a"}], "finish": "OTHER"},
    ]);
    let Some((_server, model)) = served(script) else { return };
    for (finish, text) in [
        (FinishReason::Length, "a"),
        (FinishReason::ContentFilter, "a"),
        (FinishReason::ContentFilter, ""),
        (FinishReason::ContentFilter, "Not that."),
        (FinishReason::Other("OTHER".into()), "a"),
    ] {
        let response = complete(&model, hi()).await.unwrap();
        assert_eq!((response.finish, response.message.content.as_str()), (finish, text));
        assert!(response.usage.is_some_and(|usage| usage.input_tokens > 0));
    }
}

#[tokio::test]
async fn errors_have_the_kinds_of_the_provider() {
    let body = |code: u16, status: &str, message: &str, details: Value| json!({"http": code, "body": {"error": {"code": code, "message": message, "status": status, "details": details}}});
    let wait = json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"});
    let quota = json!({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "RequestsPerDay"}]});
    let busy = json!({"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"});
    let text = json!([{"text": "abcdef"}]);
    let script = json!([
        body(503, "UNAVAILABLE", "The model is overloaded.", json!([])),
        body(429, "RESOURCE_EXHAUSTED", "Slow down", json!([wait])),
        body(429, "RESOURCE_EXHAUSTED", "Slow down", json!([quota])),
        body(400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number of tokens allowed (8).", json!([])),
        body(403, "PERMISSION_DENIED", "Your key AIza-test-0123456789 may not", json!([])),
        body(504, "DEADLINE_EXCEEDED", "Deadline", json!([])),
        {"parts": text, "error_at": {"index": 2, "error": busy}},
        {"parts": text, "eof": 2},
        {"parts": text, "cut": 2},
        {"empty": true},
        {"parts": text, "finish": "MALFORMED_FUNCTION_CALL", "message": "Malformed function call: print("},
        {"raw": "data: {\"candidates\": [\n\n"},
        {"raw": "<html>", "headers": {"content-type": "text/html"}},
    ]);
    let Some((_server, model)) = served(script) else { return };
    use ModelErrorKind::*;
    for kind in [
        Server,
        RateLimited,
        QuotaExceeded,
        ContextOverflow,
        Auth,
        Timeout,
        Server,
        TruncatedStream,
        TruncatedStream,
        Malformed,
        Malformed,
        Malformed,
        Malformed,
    ] {
        let error = complete(&model, hi()).await.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(!error.message.contains(KEY), "{error}");
        let waits = (kind == RateLimited).then_some(7);
        assert_eq!(error.retry_after.map(|wait| wait.as_secs()), waits, "{error}");
    }
}

#[tokio::test]
async fn an_answer_is_complete_with_its_reason_for_the_end() {
    for change in [
        json!({"eof": 4}),
        json!({"cut": 4}),
        json!({"tail": "data: {\"error\":{\"code\":500,\"message\":\"x\"}}\n\ndata: {\n\n"}),
    ] {
        let mut answer = json!({"parts": [{"text": "abc", "signed": false}]});
        answer.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let Some((_server, model)) = served(json!([answer])) else { return };
        assert_eq!(complete(&model, hi()).await.unwrap().message.content, "abc", "{change}");
    }
}

#[tokio::test]
async fn a_long_thread_has_the_same_prefix_in_every_request() {
    const ROUNDS: usize = 30;
    let mut answers: Vec<_> = (0..ROUNDS)
        .map(|n| json!({"parts": [{"thought": format!("Hm {n}")}, {"text": "So."}, {"call": ["add", {"x": n}]}]}))
        .collect();
    answers.push(json!({"parts": [{"text": "ok"}]}));
    let Some((server, model)) = served(answers.into()) else { return };
    let mut request = hi();
    for _ in 0..ROUNDS {
        let answer = complete(&model, request.clone()).await.unwrap();
        request = behind(&request, &answer.message);
    }
    complete(&model, request).await.unwrap();
    let log = server.accepted();
    for pair in log.windows(2) {
        let [before, behind] = [&pair[0], &pair[1]].map(|line| line.body["contents"].as_array().unwrap());
        assert_eq!((&behind[..before.len()], behind.len()), (&before[..], before.len() + 2));
    }
    assert_eq!(log[ROUNDS].other["signed"], json!([ROUNDS, ROUNDS]));
}

#[tokio::test]
async fn images_of_a_result_are_in_it() {
    for signs in [true, false] {
        let script = json!([{"parts": [{"text": "ok"}]}]);
        let name = if signs { "gemini-3.5-flash" } else { "gemini-2.5-flash" };
        let before = |config: &mut GeminiConfig| config.model = name.into();
        let Some((server, model)) = served_as(script, json!({ "signs": signs }), before) else { return };
        let media = [("image/png", "iVBORw0KGgo="), ("image/gif", "R0lGODlh")];
        let media = media.map(|(mime, data)| Media::new(mime, data).unwrap());
        let mut request = hi();
        request.messages.push(Message::assistant("").with_tool_calls([ToolCall::new("a", "add", "{}")]));
        request.messages.push(Message::tool("a", "two").with(|message| message.media = media.into()));
        complete(&model, request).await.unwrap();
        let parts = &server.accepted()[0].body["contents"][2]["parts"];
        let image = if signs { &parts[0]["functionResponse"]["parts"][0] } else { &parts[1] };
        assert_eq!(image["inlineData"]["mimeType"], "image/png", "{parts}");
        assert!(!parts.to_string().contains("gif"), "{parts}");
    }
}

#[tokio::test]
async fn settings_are_accepted() {
    let script = json!([{"parts": [{"text": "{}"}]}, {"parts": [{"text": "ok"}]}]);
    let change = |config: &mut GeminiConfig| {
        (config.effort, config.temperature, config.max_tokens) = (Some("low".into()), Some(0.5), Some(100));
        config.extra =
            serde_json::from_value(json!({"safetySettings": [], "generationConfig": {"topP": 0.5}})).unwrap();
    };
    let Some((server, model)) = served_as(script, json!({}), change) else { return };
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    complete(&model, Request { output_schema: Some(schema), ..hi() }).await.unwrap();
    // A step without tools has those of the steps before.
    let last = Request { earlier_tools: tools(), tools: [].into(), ..hi() };
    complete(&model, last).await.unwrap();
    let log = server.accepted();
    assert_eq!(log[0].body["generationConfig"]["thinkingConfig"]["thinkingLevel"], "LOW");
    assert_eq!(log[1].body["toolConfig"]["functionCallingConfig"]["mode"], "NONE");
    assert_eq!(log[1].body["tools"], log[0].body["tools"]);
}

#[tokio::test]
async fn vertex_has_tokens_that_expire() {
    let script = json!([
        {"parts": [{"call": ["add", {"x": 1}]}]}, {"parts": [{"text": "ok"}]},
        {"http": 403, "body": {"error": {"code": 403, "message": "no ya29.token-1", "status": "PERMISSION_DENIED"}}},
    ]);
    let fetched = std::sync::Arc::new(AtomicUsize::new(0));
    let count = fetched.clone();
    let token = AccessToken::from_fn(move || {
        let n = count.fetch_add(1, Ordering::Relaxed);
        async move { Ok(format!("ya29.token-{n}").into()) }
    });
    let settings = json!({"token": "ya29.token-1", "ids": true});
    let Some((server, _)) = served_as(script, settings, |_| ()) else { return };
    let vertex = GeminiConfig::vertex("p", "europe-west4", token, "gemini-3.5-flash");
    let path = vertex.base_url.split_once(".com").unwrap().1.to_owned();
    let config = GeminiConfig { base_url: server.origin().to_owned() + &path, ..vertex };
    let model = GeminiModel::new(config).unwrap();
    let first = complete(&model, hi()).await.unwrap().message;
    complete(&model, behind(&hi(), &first)).await.unwrap();
    let log = server.log();
    assert_eq!(log.iter().map(|line| line.status).collect::<Vec<_>>(), [401, 200, 200]);
    assert_eq!(log[2].other["signed"], json!([1, 1]));
    assert_eq!(
        log[2].other["path"],
        "/v1/projects/p/locations/europe-west4/publishers/google/models/gemini-3.5-flash:streamGenerateContent"
    );
    let error = complete(&model, hi()).await.unwrap_err();
    assert!(error.kind == ModelErrorKind::Auth && error.message.ends_with("no [key]"), "{error}");
    assert_eq!(fetched.load(Ordering::Relaxed), 2);
}
