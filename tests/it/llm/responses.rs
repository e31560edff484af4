//! The Responses API against a strict server.

mod agents;

use serde_json::{Value, json};
use superstep::llm::{
    Assembler, Delta, FinishReason, Message, ModelErrorKind, Request, Response, ResponsesConfig,
    ResponsesModel, ToolCall, Usage, complete,
    media::{Accepts, Media},
    toolset::ToolSpecs,
    wire::OriginItem,
};

use super::{
    drain,
    rounds::{GIF, behind, tools},
    strict::Strict,
};

const KEY: &str = "sk-test-0123456789";

/// Starts a server with a script and creates a model for it; `None` without Python.
fn served(answers: Value) -> Option<(Strict, ResponsesModel)> {
    served_as(answers, |_| ())
}

fn served_as(answers: Value, change: impl FnOnce(&mut ResponsesConfig)) -> Option<(Strict, ResponsesModel)> {
    let script = json!({"config": {"key": KEY, "repeat_last": false}, "answers": answers});
    let server = Strict::start("responses", &script)?;
    let mut config = ResponsesConfig::new(format!("{}/v1", server.origin()), KEY, "m");
    change(&mut config);
    let model = ResponsesModel::new(config).unwrap().with_clock(|| 0);
    Some((server, model))
}

fn hi() -> Request {
    Request { tools: tools(), ..Request::new([Message::user("hi").with_id("u1")]) }
}

/// Completes a request and the one behind its answer, as it is after storage. The server must accept both.
async fn two_rounds(server: &Strict, model: &ResponsesModel, request: Request) -> (Response, Value) {
    let first = complete(model, request.clone()).await.unwrap();
    let stored: Message = serde_json::from_str(&serde_json::to_string(&first.message).unwrap()).unwrap();
    assert_eq!(stored, first.message);
    let next = complete(model, behind(&request, &stored)).await.unwrap();
    assert_eq!(next.message.content, "ok");
    let last = server.accepted().pop().unwrap();
    assert_eq!(last.status, 200);
    (first, last.body)
}

fn kinds(message: &Message) -> Vec<&'static str> {
    let items = message.origin.as_ref().map_or(&[][..], |origin| &origin.items);
    let kind = |item: &OriginItem| match item {
        OriginItem::Opaque(_) => "opaque",
        OriginItem::Text { .. } => "text",
        OriginItem::Call { .. } => "call",
        _ => "other",
    };
    items.iter().map(kind).collect()
}

fn types(body: &Value) -> Vec<&str> {
    body["input"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_round_with_reasoning_goes_back_byte_for_byte() {
    for change in [
        json!({}),
        json!({"only_done": true}),
        json!({"thin": true}),
        json!({"drop": ["response.output_item.done"]}),
        json!({"split": 3, "crlf": true}),
        json!({"done": true, "pieces": 9}),
        json!({"ascii": true}),
        json!({"insert": {"2": ": ping\n\nevent: response.new\ndata: {\"type\":\"response.new\",\"item\":7}\n\n"}}),
    ] {
        let mut answer = json!({"out": [{"reasoning": "Hm — 😀"}, {"text": "I add.", "phase": "commentary"}, {"call": ["add", "{\"x\":\"ü\"}"]}],
            "usage": [20, 8, 4, 9, 3]});
        answer.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let Some((server, model)) = served(json!([answer, {"out": [{"text": "ok"}]}])) else { return };
        let (first, body) = two_rounds(&server, &model, hi()).await;
        let message = &first.message;
        assert_eq!((message.content.as_str(), message.reasoning.as_str()), ("I add.", "Hm — 😀"), "{change}");
        assert_eq!(
            (message.tool_calls[0].name.as_str(), message.tool_calls[0].arguments.as_str()),
            ("add", "{\"x\":\"ü\"}"),
            "{change}"
        );
        assert_eq!(first.finish, FinishReason::ToolCalls);
        let usage =
            Usage { cached_tokens: 8, cache_write_tokens: 4, reasoning_tokens: 3, ..Usage::new(20, 9) };
        assert_eq!((first.usage, first.attempts), (Some(usage), 1));
        assert_eq!(kinds(message), ["opaque", "text", "call"], "{change}");
        assert_eq!(
            types(&body),
            ["message", "reasoning", "message", "function_call", "function_call_output"]
        );
        assert_eq!(body["input"][2]["phase"], "commentary");
        let verbatim = server.log()[1].other["verbatim"].as_object().unwrap().clone();
        assert_eq!(verbatim.values().collect::<Vec<_>>(), ["exact"], "{change}");
    }
}

#[tokio::test]
async fn the_request_has_the_fields_of_the_protocol() {
    let Some((server, model)) =
        served_as(json!([{"out": [{"text": "ok"}]}, {"out": [{"text": "ok"}]}]), |config| {
            config.effort = Some("low".into());
            config.max_tokens = Some(9);
            config.temperature = Some(0.5);
            config.parallel_calls = false;
            config.extra = [("service_tier".to_owned(), json!("flex"))].into();
        })
    else {
        return;
    };
    let request = Request {
        messages: vec![Message::system("Be brief."), Message::user("hi"), Message::system("Hurry.")],
        output_schema: Some(json!({"type": "object"})),
        ..hi()
    };
    complete(&model, request.clone()).await.unwrap();
    let mut body = server.accepted()[0].body.clone();
    let key = body["prompt_cache_key"].take();
    assert_eq!(
        body,
        json!({
            "model": "m",
            "instructions": "Be brief.",
            "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
                {"type": "message", "role": "developer", "content": "Hurry."},
            ],
            "tools": [{"type": "function", "name": "add", "description": "adds", "strict": false,
                "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}],
            "parallel_tool_calls": false,
            "text": {"format": {"type": "json_schema", "name": "reply", "schema": {"type": "object"}, "strict": false}},
            "reasoning": {"effort": "low", "summary": "auto"},
            "temperature": 0.5,
            "max_output_tokens": 16,
            "include": ["reasoning.encrypted_content"],
            "store": false,
            "stream": true,
            "stream_options": {"include_obfuscation": false},
            "prompt_cache_key": null,
            "service_tier": "flex",
        })
    );
    // Calls are forbidden with the tools of the requests before.
    let last = Request { earlier_tools: tools(), tools: ToolSpecs::default(), ..request };
    complete(&model, last).await.unwrap();
    let log = server.accepted();
    assert_eq!((&log[1].body["tools"], &log[1].body["tool_choice"]), (&body["tools"], &json!("none")));
    let key = key.as_str().unwrap();
    assert!(key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
    assert_eq!(log[1].body["prompt_cache_key"], key);
    assert_eq!(log[0].headers["authorization"], format!("Bearer {KEY}"));
}

#[tokio::test]
async fn hidden_reasoning_is_kept_without_a_text() {
    let script = json!([{"out": [{"reasoning": ""}, {"text": "5"}]}, {"out": [{"text": "ok"}]}]);
    let Some((server, model)) = served(script) else { return };
    let (first, body) = two_rounds(&server, &model, hi()).await;
    assert_eq!((first.message.reasoning.as_str(), kinds(&first.message)), ("", vec!["opaque", "text"]));
    assert_eq!(types(&body), ["message", "reasoning", "message", "message"]);
}

#[tokio::test]
async fn several_messages_and_parts_of_an_answer_are_separated() {
    let script = json!([
        {"out": [{"reasoning": "One", "content": "raw"}, {"text": "Look."}, {"reasoning": "Two"}, {"text": "Found."}]},
        {"out": [{"text": "ok"}]},
    ]);
    let Some((server, model)) = served(script) else { return };
    let (first, body) = two_rounds(&server, &model, hi()).await;
    assert_eq!(
        (first.message.content.as_str(), first.message.reasoning.as_str()),
        ("Look.\n\nFound.", "One\n\nraw\n\nTwo")
    );
    let texts = [2, 4].map(|n: usize| &body["input"][n]["content"][0]["text"]);
    assert_eq!(texts, ["Look.", "Found."]);
}

#[tokio::test]
async fn an_edited_answer_or_one_of_another_model_goes_back_as_text() {
    let answer = json!({"out": [{"reasoning": "Hm"}, {"text": "I add."}, {"call": ["add", "{"]}]});
    let ok = json!({"out": [{"text": "ok"}]});
    let Some((server, model)) = served(json!([answer, ok, ok])) else { return };
    let first = complete(&model, hi()).await.unwrap().message;
    let edited = first.clone().with(|message| message.content = "I add them.".into());
    complete(&model, behind(&hi(), &edited)).await.unwrap();
    let config = ResponsesConfig::new(format!("{}/v1", server.origin()), KEY, "m2");
    complete(&ResponsesModel::new(config).unwrap(), behind(&hi(), &first)).await.unwrap();
    let log = server.accepted();
    for (n, text) in [(1, "I add them."), (2, "I add.")] {
        let input = &log[n].body["input"];
        assert_eq!(types(&log[n].body), ["message", "message", "function_call", "function_call_output"]);
        assert_eq!(
            input[1],
            json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
        );
        let id = &first.tool_calls[0].id;
        assert_eq!(
            input[2],
            json!({"type": "function_call", "call_id": id, "name": "add", "arguments": "{\"_raw\":\"{\"}"})
        );
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_off_has_no_ids() {
    let cut = |out: Value, reason: &str| json!({"out": out, "end": "incomplete", "reason": reason});
    let text = json!([{"reasoning": "Hm"}, {"text": "I ad", "status": "incomplete"}]);
    let call = json!([{"reasoning": "Hm"}, {"call": ["add", "{\"x\":12}"], "cut": 4}]);
    for (answer, finish) in [
        (cut(text.clone(), "max_output_tokens"), FinishReason::Length),
        (cut(text.clone(), "content_filter"), FinishReason::ContentFilter),
        (cut(text, "max_time"), FinishReason::Other("max_time".into())),
        (cut(call.clone(), "max_output_tokens"), FinishReason::Length),
        (json!({"out": call}), FinishReason::Length),
    ] {
        let Some((server, model)) = served(json!([answer, {"out": [{"text": "ok"}]}])) else { return };
        let (first, body) = two_rounds(&server, &model, hi()).await;
        assert_eq!((&first.finish, &first.message.origin), (&finish, &None), "{answer}");
        let said = if first.message.tool_calls.is_empty() { "I ad" } else { "" };
        assert_eq!(first.message.content, said);
        assert!(body["input"].as_array().unwrap().iter().all(|item| item.get("id").is_none()), "{body}");
    }
}

#[tokio::test]
async fn a_refusal_is_the_text() {
    let script = json!([{"out": [{"refusal": "I cannot."}]}, {"out": [{"text": "ok"}]}]);
    let Some((server, model)) = served(script) else { return };
    let (first, body) = two_rounds(&server, &model, hi()).await;
    assert_eq!((first.finish, first.message.content.as_str()), (FinishReason::Refusal, "I cannot."));
    assert_eq!(body["input"][1]["content"], json!([{"type": "refusal", "refusal": "I cannot."}]));
    let error = json!({"code": "cyber_policy", "message": "Not this."});
    let script =
        json!([{"out": [{"text": "Well"}], "end": "failed", "error": error}, {"out": [{"text": "ok"}]}]);
    let Some((server, model)) = served(script) else { return };
    let (first, _) = two_rounds(&server, &model, hi()).await;
    assert_eq!((first.finish, first.message.content.as_str()), (FinishReason::Refusal, "Well\n\nNot this."));
}

#[tokio::test]
async fn an_error_within_the_stream_has_its_kind() {
    let failed = |code: &str| json!({"out": [{"text": "5"}], "end": "failed", "error": {"code": code, "message": "Oops"}});
    let event = |data: Value| json!({"out": [{"text": "5"}], "error_at": {"index": 4, "data": data}});
    let flat = json!({"type": "error", "code": "server_error", "message": "Oops", "param": null});
    let wrapped = |kind: &str| json!({"type": "error", "error": {"type": kind, "message": "Oops"}});
    for (answer, kind) in [
        (failed("rate_limit_exceeded"), ModelErrorKind::RateLimited),
        (failed("server_error"), ModelErrorKind::Server),
        (failed("vector_store_timeout"), ModelErrorKind::Server),
        (failed("insufficient_quota"), ModelErrorKind::QuotaExceeded),
        (failed("context_length_exceeded"), ModelErrorKind::ContextOverflow),
        (failed("image_too_large"), ModelErrorKind::BadRequest),
        (event(flat), ModelErrorKind::Server),
        (event(wrapped("server_error")), ModelErrorKind::Server),
        (event(wrapped("too_many_requests")), ModelErrorKind::RateLimited),
        (event(wrapped("not_found")), ModelErrorKind::NotFound),
        (event(wrapped("invalid_request")), ModelErrorKind::BadRequest),
    ] {
        let Some((server, model)) = served(json!([answer])) else { return };
        let error = complete(&model, hi()).await.unwrap_err();
        assert_eq!(error.kind, kind, "{answer} {error}");
        assert!(error.message.contains("Oops"), "{error}");
        assert_eq!(server.accepted().len(), 1);
    }
}

#[tokio::test]
async fn a_stream_without_its_last_event_is_truncated() {
    let out = json!([{"reasoning": "Hm"}, {"call": ["add", "{\"x\":12}"]}]);
    let lost = json!({"out": out, "drop": ["response.completed"], "done": true});
    for answer in [json!({"out": out, "eof": 12}), json!({"out": out, "cut": 9}), lost] {
        let Some((_server, model)) = served(json!([answer])) else { return };
        let error = complete(&model, hi()).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::TruncatedStream, "{answer} {error}");
    }
}

#[tokio::test]
async fn an_error_before_the_stream_has_its_kind_and_delay() {
    let refused = |status: u16, error: Value| json!({"http": status, "headers": {"retry-after": "7"}, "body": {"error": error}});
    for (answer, kind) in [
        (
            refused(429, json!({"message": "Slow", "code": "rate_limit_exceeded"})),
            ModelErrorKind::RateLimited,
        ),
        (
            refused(429, json!({"message": "Pay", "code": "insufficient_quota"})),
            ModelErrorKind::QuotaExceeded,
        ),
        (
            refused(400, json!({"message": "Long", "code": "context_length_exceeded"})),
            ModelErrorKind::ContextOverflow,
        ),
        (refused(400, json!({"message": "Bad", "param": "input"})), ModelErrorKind::BadRequest),
    ] {
        let Some((server, model)) = served(json!([answer])) else { return };
        let error = complete(&model, hi()).await.unwrap_err();
        assert_eq!((error.kind, error.retry_after.map(|wait| wait.as_secs())), (kind, Some(7)), "{answer}");
        assert_eq!(server.log().len(), 1);
    }
    let Some((server, model)) = served_as(json!([]), |config| config.api_key = "sk-wrong".into()) else {
        return;
    };
    let error = complete(&model, hi()).await.unwrap_err();
    assert_eq!((error.kind, server.log().len()), (ModelErrorKind::Auth, 1));
}

#[tokio::test]
async fn images_of_results_are_in_the_output() {
    let answer = json!({"out": [{"call": ["add", "{}"]}]});
    for images in [true, false] {
        let script = json!([answer, {"out": [{"text": "ok"}]}]);
        let change =
            |config: &mut ResponsesConfig| config.accepts = Accepts { images, audio: true, pdf: true };
        let Some((server, model)) = served_as(script, change) else { return };
        let first = complete(&model, hi()).await.unwrap().message;
        let mut next = behind(&hi(), &first);
        let media = Media::new("image/gif", GIF).unwrap();
        let result = next.messages.pop().unwrap().with(|result| result.media = vec![media]);
        next.messages.push(result);
        complete(&model, next).await.unwrap();
        let output = &server.accepted()[1].body["input"][2]["output"];
        let url = format!("data:image/gif;base64,{GIF}");
        let parts = json!([{"type": "input_text", "text": "5"}, {"type": "input_image", "detail": "auto", "image_url": url}]);
        assert_eq!(*output, if images { parts } else { json!("5") });
    }
}

/// Returns the notices before an answer.
async fn notices(model: &ResponsesModel, request: Request) -> Vec<Delta> {
    let deltas = drain(model, request).await.into_iter().map(Result::unwrap);
    let is_notice = |delta: &Delta| matches!(delta, Delta::Retry { .. } | Delta::ReasoningDropped { .. });
    deltas.filter(is_notice).collect()
}

#[tokio::test]
async fn an_unknown_field_is_left_out_of_all_later_requests() {
    let error = json!({"message": "Unknown parameter: 'stream_options'.", "param": "stream_options", "code": "unknown_parameter"});
    let ok = json!({"out": [{"text": "ok"}]});
    let Some((server, model)) = served(json!([{"http": 400, "body": {"error": error}}, ok, ok])) else {
        return;
    };
    assert!(matches!(notices(&model, hi()).await[..], [Delta::Retry { attempt: 2, status: Some(400), .. }]));
    assert_eq!(notices(&model.clone(), hi()).await, []);
    let sent = server.accepted().into_iter().map(|line| line.body.get("stream_options").is_some());
    assert_eq!(sent.collect::<Vec<_>>(), [true, false, false]);
}

#[tokio::test]
async fn ids_that_the_server_does_not_find_are_left_out() {
    let error = json!({"message": "Item with id 'rs_1' not found.", "param": "input"});
    let (first, ok) =
        (json!({"out": [{"reasoning": "Hm"}, {"call": ["add", "{}"]}]}), json!({"out": [{"text": "ok"}]}));
    let Some((server, model)) = served(json!([first, {"http": 404, "body": {"error": error}}, ok])) else {
        return;
    };
    let answer = complete(&model, hi()).await.unwrap().message;
    assert!(matches!(
        notices(&model, behind(&hi(), &answer)).await[..],
        [Delta::Retry { status: Some(404), .. }]
    ));
    let body = &server.accepted()[2].body;
    assert_eq!(types(body), ["message", "reasoning", "function_call", "function_call_output"]);
    assert!(body["input"].as_array().unwrap().iter().all(|item| item.get("id").is_none()), "{body}");
}

#[tokio::test]
async fn unreadable_reasoning_is_dropped_and_reported() {
    let first = json!({"out": [{"reasoning": "Hm"}, {"call": ["add", "{}"]}]});
    let Some((server, model)) = served(json!([first, {"out": [{"text": "ok"}]}])) else { return };
    let answer = complete(&model, hi()).await.unwrap().message;
    // As if the key of the encryption had changed.
    let answer = answer.with(|message| {
        let origin = message.origin.as_mut().unwrap();
        let OriginItem::Opaque(json) = &mut origin.items[0] else { panic!("reasoning is opaque") };
        *json = json.replace("gAAAAA", "gBBBBB");
    });
    let notices = notices(&model, behind(&hi(), &answer)).await;
    let [Delta::Retry { reason, .. }, Delta::ReasoningDropped { all: true, reason: dropped, .. }] =
        &notices[..]
    else {
        panic!("{notices:?}")
    };
    assert!(reason == dropped && reason.contains("could not be verified"), "{reason}");
    let log = server.log();
    assert_eq!(log.iter().map(|line| line.status).collect::<Vec<_>>(), [200, 400, 200]);
    assert_eq!(types(&log[2].body), ["message", "function_call", "function_call_output"]);
}

#[tokio::test]
async fn calls_of_other_servers_have_ids_that_are_accepted() {
    let script = json!([{"out": [{"text": "ok"}]}]);
    let Some((server, model)) = served(script) else { return };
    let long = "x".repeat(100);
    let round = |id: &str| {
        let calls = Message::assistant("").with_tool_calls([ToolCall::new(id, "bad name", "")]);
        [calls, Message::tool(id, "5")]
    };
    let mut request = hi();
    request.messages.extend(["call_1", "call_1", &long].into_iter().flat_map(round));
    complete(&model, request).await.unwrap();
    let input = &server.accepted()[0].body["input"];
    assert_eq!(
        input[1],
        json!({"type": "function_call", "call_id": "call_1", "name": "bad_name", "arguments": "{}"})
    );
}

#[tokio::test]
async fn an_interrupted_answer_goes_back_as_far_as_it_is_complete() {
    let out = json!([{"reasoning": "Hm"}, {"text": "I add."}]);
    // Within the reasoning, behind it, within the text, and behind it.
    for (events, items) in
        [(5, &[][..]), (10, &["reasoning"]), (13, &["reasoning", "message"]), (17, &["reasoning", "message"])]
    {
        let script = json!([{"out": out, "eof": events}, {"out": [{"text": "ok"}]}]);
        let Some((server, model)) = served(script) else { return };
        let mut deltas = drain(&model, hi()).await;
        assert_eq!(deltas.pop().unwrap().unwrap_err().kind, ModelErrorKind::TruncatedStream);
        let mut answer = Assembler::new();
        deltas.iter().for_each(|delta| answer.push(delta.as_ref().unwrap()));
        let partial = answer.partial();
        complete(&model, behind(&hi(), &partial)).await.unwrap();
        let log = server.accepted();
        let sent: Vec<_> = types(&log[1].body)[1..].to_vec();
        // Reasoning is refused without what follows it.
        let items = if partial.content.is_empty() { &[][..] } else { items };
        assert_eq!(sent[..sent.len() - 1], *items, "{events}");
    }
}
