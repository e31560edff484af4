//! The differences between healthy servers: their own events, fields and ids.

use std::time::Duration;

use serde_json::{Value, json};
use superstep::llm::{
    Message, ModelErrorKind, OpenAiConfig, OpenAiModel, Request, ToolCall, complete, wire::OriginItem,
};
use superstep_testing::{
    provider::Rules,
    script::{Answer, Script, http, txt},
    wire::WireServer,
};

use super::{drain, hi, served, served_as};

const SIGNED: &str = r#"{"choices":[{"index":0,"delta":{"role":"assistant","reasoning_details":[{"type":"reasoning.encrypted","data":"D","index":0}],"tool_calls":[{"index":0,"id":"c1","type":"function","extra_content":{"google":{"thought_signature":"SIG1"}},"function":{"name":"add","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#;

/// Starts a server that accepts every request, also with fields and ids that others refuse, and creates a model for it.
async fn tolerant(answers: impl IntoIterator<Item = Answer>) -> (WireServer, OpenAiModel) {
    let server = WireServer::start_with(Script::new(answers), Rules::anything()).await;
    let server = server.expect("a loopback port is free");
    let model = OpenAiModel::new(OpenAiConfig::new(server.base_url(), "", "m"));
    (server, model.expect("the server has a base URL"))
}

/// Returns a conversation that goes on behind an answer with a call.
fn behind(answer: &Message) -> Request {
    let id = &answer.tool_calls[0].id;
    Request::new([Message::user("hi"), answer.clone(), Message::tool(id.as_str(), "5")])
}

/// Returns the assistant's message of the n-th request.
fn sent(requests: &[Value], n: usize) -> &Value {
    &requests[n]["messages"][1]
}

#[tokio::test]
async fn the_fields_that_a_server_adds_go_back_to_it_and_to_no_other() {
    let (server, model) =
        tolerant([Answer::stream().data(SIGNED).done(), txt("5"), txt("5"), txt("5")]).await;
    let signed = complete(&model, hi()).await.unwrap().message;
    complete(&model, behind(&signed)).await.unwrap();
    let requests = server.requests();
    let message = sent(&requests, 1);
    assert_eq!(
        message["reasoning_details"],
        json!([{"type": "reasoning.encrypted", "data": "D", "index": 0}])
    );
    assert_eq!(message["tool_calls"][0]["extra_content"], json!({"google": {"thought_signature": "SIG1"}}));
    // They survive storage.
    let stored: Message = serde_json::from_str(&serde_json::to_string(&signed).unwrap()).unwrap();
    assert_eq!(stored, signed);
    assert!(matches!(
        stored.origin.as_ref().unwrap().items[..],
        [OriginItem::Text { .. }, OriginItem::Call { .. }]
    ));

    let plain =
        |message: &Value| !message.to_string().contains("SIG1") && message.get("reasoning_details").is_none();
    let edited = signed.clone().with(|message| message.content = "I add.".into());
    complete(&model, behind(&edited)).await.unwrap();
    assert!(plain(sent(&server.requests(), 2)));
    let (other_server, other) = tolerant([txt("5")]).await;
    complete(&other, behind(&signed)).await.unwrap();
    assert!(plain(sent(&other_server.requests(), 0)));
    let config = OpenAiConfig::new(server.base_url(), "", "another");
    complete(&OpenAiModel::new(config).unwrap(), behind(&signed)).await.unwrap();
    assert!(plain(sent(&server.requests(), 3)));
}

#[tokio::test]
async fn a_server_that_refuses_its_own_fields_gets_them_no_more() {
    let refusal = || http(400, &[], r#"{"error":{"message":"Extra inputs are not permitted"}}"#);
    let (server, model) =
        tolerant([Answer::stream().data(SIGNED).done(), refusal(), txt("5"), txt("5")]).await;
    let signed = complete(&model, hi()).await.unwrap().message;
    for _ in 0..2 {
        assert_eq!(complete(&model, behind(&signed)).await.unwrap().message.content, "5");
    }
    let has = |request: &Value| request.to_string().contains("SIG1");
    assert_eq!(server.requests().iter().map(has).collect::<Vec<_>>(), [false, true, false, false]);
    assert_eq!(server.check(), Ok(()));
}

#[tokio::test]
async fn ids_that_a_server_refuses_are_replaced_by_ones_that_every_server_accepts() {
    let refusal = r#"{"object":"error","message":"Tool call id was call_PTLP8xhu3uwZk4l3nlnrrJha but must be a-z, A-Z, 0-9, with a length of 9.","code":"3280"}"#;
    let (server, model) =
        tolerant([http(400, &[], refusal), txt("fine"), txt("fine"), http(400, &[], refusal)]).await;
    let round = |id: &str| {
        let calls = Message::assistant("").with_tool_calls([ToolCall::new(id, "add", "{}")]);
        [calls, Message::tool(id, "5")]
    };
    let messages = ["call_PTLP8xhu3uwZk4l3nlnrrJha", "call_1", "call_1"].into_iter().flat_map(round);
    let request = Request::new([Message::user("hi")].into_iter().chain(messages));
    for _ in 0..2 {
        assert_eq!(complete(&model, request.clone()).await.unwrap().message.content, "fine");
    }
    let requests = server.requests();
    let ids = |request: &Value| -> Vec<String> {
        let messages = request["messages"].as_array().unwrap();
        let of = |message: &Value| {
            let id = message["tool_calls"][0]["id"].as_str().or(message["tool_call_id"].as_str());
            id.map(str::to_owned)
        };
        messages.iter().filter_map(of).collect()
    };
    assert_eq!(ids(&requests[0])[0], "call_PTLP8xhu3uwZk4l3nlnrrJha");
    let plain = ids(&requests[1]);
    assert!(
        plain.iter().all(|id| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())),
        "{plain:?}"
    );
    let pairs: Vec<_> = plain.chunks(2).collect();
    assert!(pairs.iter().all(|pair| pair[0] == pair[1]) && pairs[1] != pairs[2], "{plain:?}");
    assert_eq!((ids(&requests[2]), requests.len()), (plain, 3));
    // A refusal of the plain form is final.
    let error = complete(&model, request).await.unwrap_err();
    assert_eq!((error.kind, server.requests().len()), (ModelErrorKind::BadRequest, 4));
}

#[tokio::test]
async fn a_field_for_the_tokens_that_a_server_refuses_is_left_out_from_then_on() {
    for (is_known, statuses) in [(false, 3), (true, 2)] {
        let rules = Rules { no_stream_options: true, ..Rules::default() };
        let server = WireServer::start_with(Script::new([txt("one"), txt("two")]), rules).await.unwrap();
        let mut config = OpenAiConfig::new(server.base_url(), "", "m");
        config.wire.no_stream_options = is_known;
        let model = OpenAiModel::new(config).unwrap();
        for text in ["one", "two"] {
            assert_eq!(complete(&model, hi()).await.unwrap().message.content, text);
        }
        let requests = server.requests();
        let has: Vec<_> = requests.iter().map(|request| request.get("stream_options").is_some()).collect();
        assert_eq!((has.len(), has[1..].contains(&true)), (statuses, false));
        assert_eq!(has[0], !is_known);
    }
}

#[tokio::test]
async fn events_without_content_invalidate_no_answer() {
    let body = "data: null\n\nevent: ping\ndata: {\"choices\":[]}\n\ndata: {\"choices\":[null]}\n\n\
                data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\ndata: 2026-11-28 12:00:00\n\n\
                event: tool.progress\ndata: {\"message\":\"reading\"}\n\ndata: \"\"\n\n\
                data: {\"choices\":[{\"delta\":{\"content\":\"lo\"},\"logprobs\":NaN,\"finish_reason\":\"stop\"}]}\n\n";
    let (_server, model) = served([Answer::sse(body)]).await;
    assert_eq!(complete(&model, hi()).await.unwrap().message.content, "Hello");
}

#[tokio::test]
async fn an_answer_that_is_not_a_stream_may_follow_blank_lines_and_comments() {
    let whole = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"whole"},"finish_reason":"stop"}]}"#;
    for before in ["\n\n", "\r\n\r\n", "   ", ": keep-alive\n\n: keep-alive\n\n"] {
        let answer = http(200, &[("content-type", "application/json")], &format!("{before}{whole}"));
        let (_server, model) = served([answer]).await;
        assert_eq!(complete(&model, hi()).await.unwrap().message.content, "whole", "{before:?}");
    }
    let late = ": keep-alive\n\n{\"error\":{\"message\":\"LATE\",\"code\":503}}";
    let (_server, model) = served([http(200, &[("content-type", "application/json")], late)]).await;
    let error = complete(&model, hi()).await.unwrap_err();
    assert_eq!((error.status, error.message.as_str()), (Some(503), "the server aborted the response: LATE"));
}

#[tokio::test]
async fn a_complete_answer_waits_a_short_time_for_the_end_of_its_stream() {
    let short = |config: &mut OpenAiConfig| config.timeouts.end = Duration::from_millis(30);
    let (_server, model) = served_as([Answer::stream().text(["a"]).end("stop").stall()], short).await;
    let deltas = drain(&model, hi()).await;
    assert_eq!((deltas.len(), deltas.iter().all(Result::is_ok)), (2, true), "{deltas:?}");
}

#[tokio::test]
async fn any_time_for_the_end_of_a_stream_is_accepted() {
    let endless = |config: &mut OpenAiConfig| config.timeouts.end = Duration::MAX;
    let (_server, model) = served_as([Answer::stream().text(["a"]).end("stop").done()], endless).await;
    assert_eq!(complete(&model, hi()).await.unwrap().message.content, "a");
}

#[tokio::test]
async fn the_answer_of_a_server_that_gave_up_is_an_error_with_its_reason() {
    for (chunk, kind) in [
        (
            r#"{"choices":[{"delta":{},"finish_reason":"stop","error":{"code":502,"message":"WHY"}}]}"#,
            ModelErrorKind::Server,
        ),
        (r#"{"choices":null,"base_resp":{"status_code":1002,"status_msg":"WHY"}}"#, ModelErrorKind::Server),
        (r#"{"code":"1302","msg":"WHY","success":false}"#, ModelErrorKind::Server),
        (r#"{"error_code":336100,"error_msg":"WHY"}"#, ModelErrorKind::Server),
        (r#"{"errors":[{"message":"WHY"}]}"#, ModelErrorKind::Server),
        (r#"[{"error":{"code":429,"message":"WHY"}}]"#, ModelErrorKind::RateLimited),
    ] {
        let (_server, model) = served([Answer::stream().text(["half"]).data(chunk).done()]).await;
        let error = complete(&model, hi()).await.unwrap_err();
        assert_eq!((error.kind, error.message.contains("WHY")), (kind, true), "{chunk}: {error}");
    }
    for well in
        [r#"{"code":0,"message":"ok"}"#, r#"{"choices":[],"base_resp":{"status_code":0,"status_msg":""}}"#]
    {
        let (_server, model) = served([Answer::stream().text(["a"]).data(well).end("stop")]).await;
        assert_eq!(complete(&model, hi()).await.unwrap().message.content, "a", "{well}");
    }
}
