//! The Messages API of Anthropic against a strict server.

mod agents;

use serde_json::{Value, json};
use superstep::llm::{
    AnthropicConfig, AnthropicModel, Assembler, Delta, FinishReason, Message, ModelErrorKind, Request,
    Response, ToolCall, auth::AccessToken, complete, media::Media, wire::OriginItem,
};

use super::{
    drain,
    rounds::{GIF, behind, tools},
    strict::Strict,
};

const KEY: &str = "sk-ant-test-0123456789";

/// Starts a server with a script and creates a model for it; `None` without Python.
fn served(answers: Value) -> Option<(Strict, AnthropicModel)> {
    served_as(answers, json!({}), |_| ())
}

fn served_as(
    answers: Value,
    settings: Value,
    change: impl FnOnce(&mut AnthropicConfig),
) -> Option<(Strict, AnthropicModel)> {
    let mut script = json!({"config": {"key": KEY, "repeat_last": false}, "answers": answers});
    script["config"].as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let server = Strict::start("anthropic", &script)?;
    let mut config = AnthropicConfig::new(server.origin(), KEY, "m");
    change(&mut config);
    let model = AnthropicModel::new(config).unwrap().with_clock(|| 0);
    Some((server, model))
}

fn hi() -> Request {
    Request {
        tools: tools(),
        ..Request::new([Message::system("Be kind."), Message::user("hi").with_id("u1")])
    }
}

/// Completes a request and the one behind its answer, as it is after storage. The server must accept both.
async fn two_rounds(server: &Strict, model: &AnthropicModel, request: Request) -> (Response, Value) {
    let first = complete(model, request.clone()).await.unwrap();
    let stored: Message = serde_json::from_str(&serde_json::to_string(&first.message).unwrap()).unwrap();
    assert_eq!(stored, first.message);
    let next = complete(model, behind(&request, &stored)).await.unwrap();
    assert_eq!(next.message.content, "ok");
    let last = server.accepted().pop().unwrap();
    assert_eq!((last.status, &last.other["transformations"]), (200, &json!([])));
    assert!(last.other["verbatim"].as_object().unwrap().values().all(|same| same == true));
    (first, last.body)
}

fn kinds(message: &Message) -> Vec<&'static str> {
    let items = message.origin.as_ref().map_or(&[][..], |origin| &origin.items);
    let kind = |item: &OriginItem| match item {
        OriginItem::Opaque(_) => "opaque",
        OriginItem::Text { .. } => "text",
        OriginItem::Call { .. } => "call",
        OriginItem::Refused => "refused",
        _ => "other",
    };
    items.iter().map(kind).collect()
}

fn types(content: &Value) -> Vec<&str> {
    content.as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_round_with_reasoning_goes_back_as_it_was_signed() {
    for change in [
        json!({}),
        json!({"split": 3, "crlf": true}),
        json!({"pieces": 9, "ping": 1}),
        json!({"ascii": true}),
        json!({"drop": ["message_stop"]}),
        json!({"insert": {"3": "event: new\ndata: {\"type\":\"new\",\"index\":\"x\"}\n\n: a comment\n\n\
            data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"new_delta\",\"x\":1}}\n\n"}}),
    ] {
        let mut answer = json!({"blocks": [{"thinking": "Hm — 😀", "signature_pieces": 3}, {"redacted": true},
            {"text": "I add."}, {"use": ["add", "{\"x\": \"ü\"}"]}]});
        answer.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let Some((server, model)) = served(json!([answer, {"blocks": [{"text": "ok"}]}])) else { return };
        let (first, body) = two_rounds(&server, &model, hi()).await;
        let message = &first.message;
        assert_eq!((message.content.as_str(), message.reasoning.as_str()), ("I add.", "Hm — 😀"), "{change}");
        assert_eq!(message.tool_calls[0].arguments, "{\"x\": \"ü\"}", "{change}");
        assert_eq!((first.finish, first.attempts), (FinishReason::ToolCalls, 1));
        assert_eq!(first.usage.unwrap().reasoning_tokens, 2);
        assert_eq!(kinds(message), ["opaque", "opaque", "text", "call"], "{change}");
        let content = &body["messages"][1]["content"];
        assert_eq!(types(content), ["thinking", "redacted_thinking", "text", "tool_use"]);
        assert_eq!(server.log()[0].headers["x-api-key"], KEY);
    }
}

#[tokio::test]
async fn hidden_reasoning_and_calls_without_arguments_are_kept() {
    let uses = json!([{"thinking": ""}, {"use": ["add", "{}"]}, {"use": ["add", ""]}]);
    let Some((server, model)) = served(json!([{"blocks": uses}, {"blocks": [{"text": "ok"}]}])) else {
        return;
    };
    let (first, body) = two_rounds(&server, &model, hi()).await;
    let arguments: Vec<_> = first.message.tool_calls.iter().map(|call| &*call.arguments).collect();
    assert_eq!((arguments, kinds(&first.message)), (vec!["{}", "{}"], vec!["opaque", "call", "call"]));
    assert_eq!(types(&body["messages"][1]["content"]), ["thinking", "tool_use", "tool_use"]);
    assert_eq!(types(&body["messages"][2]["content"]), ["tool_result", "tool_result"]);
}

#[tokio::test]
async fn broken_arguments_go_back_as_a_text() {
    let answer = json!({"blocks": [{"thinking": "Hm"}, {"use": ["add", "{\"x\": "]}]});
    let Some((server, model)) = served(json!([answer, {"blocks": [{"text": "ok"}]}])) else { return };
    let (first, body) = two_rounds(&server, &model, hi()).await;
    assert_eq!(first.message.tool_calls[0].arguments, "{\"x\": ");
    assert_eq!(body["messages"][1]["content"][1]["input"], json!({"_raw": "{\"x\": "}));
}

#[tokio::test]
async fn reasoning_that_was_cut_off_is_not_sent() {
    let cut = json!({"blocks": [{"text": "Well."}, {"thinking": "Hm", "open": true}], "stop": "max_tokens"});
    let Some((server, model)) = served(json!([cut, {"blocks": [{"text": "ok"}]}])) else { return };
    let (first, body) = two_rounds(&server, &model, hi()).await;
    assert_eq!((first.finish, kinds(&first.message)), (FinishReason::Length, vec![]));
    assert_eq!(types(&body["messages"][1]["content"]), ["text"]);
}

#[tokio::test]
async fn a_refusal_is_reported_with_its_reason_and_not_sent_again() {
    let details = json!({"type": "refusal", "category": "cyber", "explanation": "That is not safe."});
    let refusal = |blocks: Value| json!({"blocks": blocks, "stop": "refusal", "stop_details": details});
    for (answer, text) in
        [(refusal(json!([{"text": "I can"}])), "I can"), (refusal(json!([])), "That is not safe.")]
    {
        let Some((server, model)) = served(json!([answer, {"blocks": [{"text": "ok"}]}])) else { return };
        let (first, body) = two_rounds(&server, &model, hi()).await;
        assert_eq!((&*first.message.content, first.finish), (text, FinishReason::Refusal));
        assert_eq!(body["messages"].as_array().unwrap().len(), 1, "{body}");
    }
}

#[tokio::test]
async fn a_paused_answer_is_continued_with_its_content() {
    let search =
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": "x"}});
    let paused = json!({"blocks": [{"thinking": "Hm"}, {"block": search}], "stop": "pause_turn"});
    let script = json!([paused, {"blocks": [{"text": "Found."}]}, {"blocks": [{"text": "ok"}]}]);
    let prefill = json!({"prefill": true});
    let Some((server, model)) = served_as(script, prefill.clone(), |_| ()) else { return };
    let (first, body) = two_rounds(&server, &model, hi()).await;
    assert_eq!((&*first.message.content, first.attempts), ("Found.", 1));
    assert_eq!(types(&body["messages"][1]["content"]), ["thinking", "server_tool_use", "text"]);
    let log = server.log();
    assert_eq!(log[1].body["messages"][1]["content"][1], search);
    assert_eq!(log.len(), 3);
    let script = json!([{"blocks": [{"block": search}], "stop": "pause_turn"}]);
    let mut endless = prefill;
    endless["repeat_last"] = json!(true);
    let Some((server, model)) = served_as(script, endless, |_| ()) else { return };
    let error = complete(&model, hi()).await.unwrap_err();
    assert_eq!((error.kind, server.log().len()), (ModelErrorKind::Server, 11));
}

#[tokio::test]
async fn errors_have_the_kinds_of_the_provider() {
    let body =
        |kind: &str, message: &str| json!({"type": "error", "error": {"type": kind, "message": message}});
    let script = json!([
        {"http": 529, "body": body("overloaded_error", "Overloaded")},
        {"http": 529, "headers": {"x-should-retry": "false"}, "body": body("overloaded_error", "Overloaded")},
        {"http": 429, "headers": {"retry-after": "7"}, "body": body("rate_limit_error", "Slow down")},
        {"http": 429, "body": {"error": {"type": "rate_limit_error", "message": "No", "details": {"error_code": "enforced_spend_limit_reached"}}}},
        {"http": 400, "body": body("invalid_request_error", "You have reached your specified API spend limits.")},
        {"http": 400, "body": body("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum")},
        {"http": 413, "body": body("request_too_large", "Request exceeds the maximum size")},
        {"http": 504, "body": body("timeout_error", "Timed out")},
        {"http": 401, "body": body("authentication_error", "invalid x-api-key sk-ant-test-0123456789")},
        {"blocks": [{"text": "x"}], "error_at": {"index": 3, "error": {"type": "overloaded_error", "message": "Overloaded"}}},
        {"blocks": [{"text": "x"}], "eof": 4},
        {"blocks": [{"text": "x"}], "cut": 4},
    ]);
    let Some((_server, model)) = served(script) else { return };
    use ModelErrorKind::*;
    for kind in [
        Server,
        Server,
        RateLimited,
        QuotaExceeded,
        QuotaExceeded,
        ContextOverflow,
        ContextOverflow,
        Timeout,
        Auth,
        Server,
        TruncatedStream,
        TruncatedStream,
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
        json!({"eof": 6}),
        json!({"cut": 6}),
        json!({"tail": "event: error\ndata: {\"type\":\"error\",\"error\":{}}\n\n"}),
    ] {
        let mut answer = json!({"blocks": [{"text": "abc"}], "pieces": 1});
        answer.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let Some((_server, model)) = served(json!([answer])) else { return };
        assert_eq!(complete(&model, hi()).await.unwrap().message.content, "abc", "{change}");
    }
}

#[tokio::test]
async fn refused_reasoning_stays_out_once() {
    let script =
        json!([{"blocks": [{"thinking": "Hm"}, {"use": ["add", "{}"]}]}, {"blocks": [{"text": "ok"}]}]);
    let Some((server, model)) = served(script) else { return };
    let first = complete(&model, hi()).await.unwrap();
    let mut next = behind(&hi(), &first.message);
    let answer = next.messages[2].to_mut();
    let origin = answer.origin.as_mut().unwrap();
    let OriginItem::Opaque(thinking) = &mut origin.items[0] else { panic!() };
    *thinking = thinking.replace("Hm", "Hmm");
    let deltas = drain(&model, next).await;
    let mut answer = Assembler::new();
    let mut dropped = 0;
    for delta in deltas.into_iter().map(Result::unwrap) {
        dropped += usize::from(matches!(&delta, Delta::ReasoningDropped { all: true, .. }));
        answer.push(&delta);
    }
    assert_eq!((answer.finish().unwrap().message.content.as_str(), dropped), ("ok", 1));
    let log = server.log();
    let statuses: Vec<_> = log.iter().map(|line| line.status).collect();
    assert_eq!(
        (statuses, types(&log[2].body["messages"][1]["content"])),
        (vec![200, 400, 200], vec!["tool_use"])
    );
}

#[tokio::test]
async fn a_beta_that_is_refused_by_name_is_left_out_from_then_on() {
    let unknown = "Unexpected value(s) `new-2027-01-01` for the `anthropic-beta` header.";
    let refused = json!({"http": 400, "body": {"type": "error", "error": {"type": "invalid_request_error", "message": unknown}}});
    let script = json!([refused, {"blocks": [{"text": "one"}]}, {"blocks": [{"text": "two"}]}]);
    let betas = |config: &mut AnthropicConfig| config.betas = vec!["new-2027-01-01".into(), "old".into()];
    let Some((server, model)) = served_as(script, json!({}), betas) else { return };
    for text in ["one", "two"] {
        assert_eq!(complete(&model, hi()).await.unwrap().message.content, text);
    }
    let betas: Vec<_> = server.log().iter().map(|line| line.headers["anthropic-beta"].clone()).collect();
    assert_eq!(betas, ["new-2027-01-01,old", "old", "old"]);
}

#[tokio::test]
async fn reasoning_that_the_provider_drops_is_reported() {
    let script =
        json!([{"blocks": [{"thinking": "Hm"}, {"use": ["add", "{}"]}]}, {"blocks": [{"text": "ok"}]}]);
    let Some((server, model)) = served_as(script, json!({"model_mismatch": "drop"}), |_| ()) else { return };
    let first = complete(&model, hi()).await.unwrap();
    let mut next = behind(&hi(), &first.message);
    // As if the provider read the reasoning of both models.
    next.messages[2].to_mut().origin.as_mut().unwrap().model = "n".into();
    let mut config = AnthropicConfig::new(server.origin(), KEY, "n");
    config.betas = vec!["thinking-binding-controls-2026-08-01".into()];
    let deltas = drain(&AnthropicModel::new(config).unwrap(), next).await;
    let dropped = deltas.into_iter().find_map(|delta| match delta.unwrap() {
        Delta::ReasoningDropped { path, reason, all } => Some((path, reason, all)),
        _ => None,
    });
    let wanted = ("messages.1.content.0".to_owned(), "model_binding_mismatch".to_owned(), false);
    assert_eq!(dropped, Some(wanted));
}

#[tokio::test]
async fn ids_of_other_servers_are_unique_and_fit() {
    let script = json!([{"blocks": [{"text": "ok"}]}]);
    let Some((server, model)) = served(script) else { return };
    let round = |id: &str, message: &str| {
        let calls = [ToolCall::new(id, "add", "{}"), ToolCall::new("call.2 é", "my tool", "x")];
        let calls = Message::assistant("").with_id(message).with_tool_calls(calls);
        [calls, Message::tool(id, "5"), Message::tool("call.2 é", "")]
    };
    let mut request = hi();
    request.messages.extend(round("call_1", "a1").into_iter().chain(round("call_1", "a2")));
    complete(&model, request).await.unwrap();
    let log = server.accepted();
    let uses = log[0].body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|turn| turn["content"].as_array().unwrap());
    let ids: Vec<_> = uses.filter_map(|block| block["id"].as_str()).collect();
    assert_eq!((ids.len(), ids[0]), (4, "call_1"));
}

#[tokio::test]
async fn a_long_thread_has_the_same_prefix_in_every_request_and_reads_it_from_the_cache() {
    const ROUNDS: usize = 100;
    let mut answers: Vec<_> = (0..ROUNDS)
        .map(|n| json!({"blocks": [{"thinking": format!("Hm {n}")}, {"use": ["add", format!("{{\"x\":{n}}}")]}]}))
        .collect();
    answers.push(json!({"blocks": [{"text": "ok"}]}));
    let Some((server, model)) = served(answers.into()) else { return };
    let mut request = hi();
    request.messages[0] = Message::system("Be kind. ".repeat(400));
    for _ in 0..ROUNDS {
        let answer = complete(&model, request.clone()).await.unwrap();
        request = behind(&request, &answer.message);
    }
    complete(&model, request).await.unwrap();
    let log = server.accepted();
    let bare = |line: &Value| {
        let text = line.to_string();
        text.replace(r#""cache_control":{"type":"ephemeral"},"#, "")
            .replace(r#","cache_control":{"type":"ephemeral"}"#, "")
    };
    for pair in log.windows(2) {
        let [before, behind] = [&pair[0], &pair[1]].map(|line| bare(&line.body["messages"]));
        assert!(behind.starts_with(before.trim_end_matches(']')), "{before}\n{behind}");
        let cache = &pair[1].other["cache"];
        let prompt = |cache: &Value| {
            ["read", "written", "rest"].map(|part| cache[part].as_u64().unwrap()).iter().sum::<u64>()
        };
        let (read, before) = (cache["read"].as_u64().unwrap(), prompt(&pair[0].other["cache"]));
        assert!(read * 10 >= before * 9, "{read} of {before}");
        assert!(cache["breakpoints"].as_array().unwrap().len() <= 4);
    }
}

#[tokio::test]
async fn images_of_a_result_are_in_it() {
    let script = json!([{"blocks": [{"text": "ok"}]}]);
    let Some((server, model)) = served(script) else { return };
    let gif = Media::new("image/gif", GIF).unwrap();
    let mut request = hi();
    request.messages.push(Message::assistant("").with_tool_calls([ToolCall::new("a", "add", "{}")]));
    request.messages.push(Message::tool("a", gif.to_string()).with(|message| message.media = vec![gif]));
    complete(&model, request).await.unwrap();
    let result = &server.accepted()[0].body["messages"][2]["content"][0]["content"];
    assert_eq!(
        (types(result), &result[1]["source"]["media_type"]),
        (vec!["text", "image"], &json!("image/gif"))
    );
}

#[tokio::test]
async fn a_model_on_vertex_has_a_token_and_its_own_address() {
    let script =
        json!([{"blocks": [{"thinking": "Hm"}, {"use": ["add", "{}"]}]}, {"blocks": [{"text": "ok"}]}]);
    let settings = json!({"token": "ya29.b", "key": null});
    let Some((server, _)) = served_as(script, settings, |_| ()) else { return };
    let tokens = std::sync::Mutex::new(vec!["ya29.b", "ya29.a"]);
    let token = AccessToken::from_fn(move || {
        let token = tokens.lock().unwrap().pop().unwrap_or_default();
        async move { Ok(token.into()) }
    });
    let vertex = AnthropicConfig::vertex("p", "global", token, "claude-sonnet-5-5@20260901");
    let path = vertex.base_url.split_once(".com").unwrap().1.to_owned();
    let config = AnthropicConfig { base_url: server.origin().to_owned() + &path, ..vertex };
    let model = AnthropicModel::new(config).unwrap();
    let first = complete(&model, hi()).await.unwrap();
    complete(&model, behind(&hi(), &first.message)).await.unwrap();
    let log = server.log();
    assert_eq!(log.iter().map(|line| line.status).collect::<Vec<_>>(), [401, 200, 200]);
    assert!(log[2].other["verbatim"].as_object().unwrap().values().all(|same| same == true));
}
