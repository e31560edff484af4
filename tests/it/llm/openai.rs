//! Requests and answers on the wire.

use serde_json::json;
use superstep::llm::{
    ApiKey, FinishReason, Message, Request, Response, ToolCall, ToolSpec, Usage, complete,
    toolset::ToolSpecs, wire::ReasoningPolicy,
};
use superstep_testing::script::{Answer, call, txt};

use super::{KEY, hi, served, served_as};

/// The first answer of a turn, complete on the wire.
const ADD_CALL: &str = r#"data: {"id":"cc-1","object":"chat.completion.chunk","created":0,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"add","arguments":""}}]},"finish_reason":null}]}

data: {"id":"cc-1","object":"chat.completion.chunk","created":0,"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\": 2,"}}]},"finish_reason":null}]}

data: {"id":"cc-1","object":"chat.completion.chunk","created":0,"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":" \"b\":3}"}}]},"finish_reason":null}]}

data: {"id":"cc-1","object":"chat.completion.chunk","created":0,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: {"id":"cc-1","object":"chat.completion.chunk","created":0,"model":"m","choices":[],"usage":{"prompt_tokens":20,"completion_tokens":9,"total_tokens":29}}

data: [DONE]

"#;

fn add_call() -> Response {
    Response {
        message: Message::assistant("").with_tool_calls([ToolCall::new(
            "call_1",
            "add",
            r#"{"a": 2, "b":3}"#,
        )]),
        finish: FinishReason::ToolCalls,
        usage: Some(Usage::new(20, 9)),
        attempts: 1,
    }
}

fn ask(messages: impl IntoIterator<Item = Message>) -> Request {
    Request { messages: messages.into_iter().collect(), ..Request::default() }
}

#[tokio::test]
async fn arguments_split_over_chunks_go_back_byte_for_byte() {
    let (server, model) = served([Answer::sse(ADD_CALL), txt("5")]).await;
    let first = complete(&model, ask([Message::user("2+3?")])).await.unwrap();
    assert_eq!(first, add_call());
    let tools = ToolSpecs::from([ToolSpec {
        name: "add".into(),
        description: "adds".into(),
        parameters: json!({"type":"object"}),
    }]);
    let messages = vec![Message::user("2+3?"), first.message, Message::tool("call_1", "5")];
    let second = complete(&model, Request { messages, tools, ..Request::default() }).await.unwrap();
    assert_eq!(second.message, Message::assistant("5"));
    assert_eq!(
        server.requests(),
        [
            json!({
                "model": "m",
                "messages": [{"role":"user","content":"2+3?"}],
                "stream": true,
                "stream_options": {"include_usage": true},
            }),
            json!({
                "model": "m",
                "messages": [
                    {"role":"user","content":"2+3?"},
                    {"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"add","arguments":"{\"a\": 2, \"b\":3}"}}]},
                    {"role":"tool","tool_call_id":"call_1","content":"5"},
                ],
                "tools": [{"type":"function","function":{"name":"add","description":"adds","parameters":{"type":"object"}}}],
                "stream": true,
                "stream_options": {"include_usage": true},
            }),
        ]
    );
    assert_eq!(server.check(), Ok(()));
}

#[tokio::test]
async fn a_request_carries_the_key_and_goes_below_the_base_url() {
    let (server, model) = served([txt("a")]).await;
    complete(&model, hi()).await.unwrap();
    let (keyless_server, keyless) = served_as([txt("a")], |config| config.api_key = ApiKey::default()).await;
    complete(&keyless, hi()).await.unwrap();
    let received = &server.received()[0];
    assert_eq!(received.line, "POST /v1/chat/completions");
    assert_eq!(received.headers.get("authorization"), Some(&format!("Bearer {KEY}")));
    assert_eq!(keyless_server.received()[0].headers.get("authorization"), None);
}

#[tokio::test]
async fn interleaved_pieces_are_sorted_into_their_calls() {
    let answer = Answer::stream()
        .call(0, "c0", "echo", [])
        .call(1, "c1", "echo", [])
        .arguments(1, r#"{"x":"#)
        .arguments(0, r#"{"x":"A"#)
        .arguments(1, r#""B"}"#)
        .arguments(0, r#""}"#)
        .end("tool_calls");
    let (_server, model) = served([answer]).await;
    assert_eq!(
        complete(&model, hi()).await.unwrap().message.tool_calls,
        [ToolCall::new("c0", "echo", r#"{"x":"A"}"#), ToolCall::new("c1", "echo", r#"{"x":"B"}"#)]
    );
}

#[tokio::test]
async fn reasoning_is_separated_and_sent_back_by_policy() {
    for (policy, in_round, later) in [
        (ReasoningPolicy::Never, None, None),
        (ReasoningPolicy::ToolRound, Some("think hard"), None),
        (ReasoningPolicy::Always, Some("think hard"), Some("think hard")),
    ] {
        let first = Answer::stream()
            .reasoning("think ")
            .reasoning("hard")
            .call(0, "c1", "echo", [r#"{"x":"1"}"#])
            .end("tool_calls")
            .done();
        let second = Answer::stream().reasoning("fine").text(["done"]).end("stop");
        let (server, model) =
            served_as([first, second, txt("x")], |config| config.wire.reasoning = policy).await;
        let mut messages = vec![Message::user("go")];
        for next in [vec![Message::tool("c1", "r:1")], vec![Message::user("more")], vec![]] {
            messages.push(complete(&model, ask(messages.clone())).await.unwrap().message);
            messages.extend(next);
        }
        assert_eq!((messages[1].reasoning.as_str(), messages[1].content.as_str()), ("think hard", ""));
        assert_eq!((messages[3].reasoning.as_str(), messages[3].content.as_str()), ("fine", "done"));
        let requests = server.requests();
        let sent = |request: usize| requests[request]["messages"][1].get("reasoning_content").cloned();
        assert_eq!(sent(1), in_round.map(Into::into), "{policy:?}");
        assert_eq!(sent(2), later.map(Into::into), "{policy:?}");
    }
}

#[tokio::test]
async fn a_response_is_equal_for_any_split_of_its_bytes() {
    let text = Response {
        message: Message::assistant("añ😀b"),
        finish: FinishReason::Stop,
        usage: None,
        attempts: 1,
    };
    for (answer, expected) in [(txt("añ😀b"), text), (Answer::sse(ADD_CALL), add_call())] {
        let splits = (1..answer.bytes().len()).map(|at| answer.clone().split_at([at]));
        let answers: Vec<Answer> = splits.chain([answer.clone().byte_by_byte()]).collect();
        let (server, model) = served(answers.clone()).await;
        for answer in answers {
            let response = complete(&model, hi()).await;
            assert!(response.as_ref().is_ok_and(|got| *got == expected), "{response:?} from {answer:?}");
        }
        assert_eq!(server.check(), Ok(()));
    }
}

#[tokio::test]
async fn an_unknown_finish_reason_ends_the_answer() {
    let (_server, model) = served([Answer::stream().text(["hi"]).end("eos").done()]).await;
    let response = complete(&model, hi()).await.unwrap();
    assert_eq!(response.finish, FinishReason::Other("eos".into()));
    assert_eq!(response.message, Message::assistant("hi"));
}

#[tokio::test]
async fn chunks_may_lack_optional_fields() {
    let answer = Answer::stream()
        .data(r#"{"choices":[{"delta":{"content":"h"}}]}"#)
        .data(r#"{"choices":[]}"#)
        .data(r#"{"model":null,"choices":[{"delta":{"content":"i","tool_calls":null},"finish_reason":"stop"}],"usage":null}"#);
    let (_server, model) = served([answer]).await;
    assert_eq!(complete(&model, hi()).await.unwrap().message, Message::assistant("hi"));
}

#[tokio::test]
async fn usage_after_the_finish_reason_is_taken_even_without_done() {
    let (_server, model) = served([Answer::stream().text(["a"]).end("stop").usage(5, 2)]).await;
    let usage = complete(&model, hi()).await.unwrap().usage;
    assert_eq!(usage, Some(Usage::new(5, 2)));
}

#[tokio::test]
async fn a_finished_answer_survives_a_broken_connection() {
    let (_server, model) = served([Answer::stream().text(["a"]).end("stop").cut()]).await;
    assert_eq!(complete(&model, hi()).await.unwrap().message, Message::assistant("a"));
}

#[tokio::test]
async fn broken_arguments_go_back_wrapped() {
    let (server, model) = served([call("c1", "echo", "{x:1"), txt("ok")]).await;
    let first = complete(&model, ask([Message::user("go")])).await.unwrap().message;
    assert_eq!(first.tool_calls[0].arguments, "{x:1");
    complete(&model, ask([Message::user("go"), first, Message::tool("c1", "no JSON")])).await.unwrap();
    let sent = &server.requests()[1]["messages"][1]["tool_calls"][0]["function"]["arguments"];
    assert_eq!(sent, r#"{"_raw":"{x:1"}"#);
}
