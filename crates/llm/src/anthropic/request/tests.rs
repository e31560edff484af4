use std::sync::Arc;

use super::*;
use crate::{Message, ToolCall, messages::origin::OriginItem, models::ModelTable};

const SERVER: &str = "http://h";

fn config() -> AnthropicConfig {
    AnthropicConfig { cache: CacheTime::Off, ..AnthropicConfig::new("http://h", "", "m") }
}

fn body(config: &AnthropicConfig, request: &Request) -> Value {
    let offered = Offered::of(request);
    serde_json::to_value(Built::new(config, SERVER, request, &offered, &Form::default()).body).unwrap()
}

fn prefix(config: &AnthropicConfig, request: &Request) -> String {
    Built::new(config, SERVER, request, &Offered::of(request), &Form::default()).prefix
}

fn tool(name: &str) -> ToolSpec {
    ToolSpec { name: name.into(), description: "adds".into(), parameters: json!({"type": "object"}) }
}

/// Returns an answer that the model gave to a request, with reasoning.
fn answer(config: &AnthropicConfig, request: &Request, text: &str) -> Message {
    let mut answer = crate::Assembler::new();
    answer.push(&crate::Delta::Origin {
        wire: WIRE.into(),
        server: SERVER.into(),
        model: "m".into(),
        prefix: prefix(config, request),
    });
    let thinking = json!({"type": "thinking", "thinking": text, "signature": "S"}).to_string();
    answer.push(&crate::Delta::Item { index: 0, item: OriginItem::Opaque(thinking) });
    answer.push(&crate::Delta::Text(text.into()));
    answer.push(&crate::Delta::Item {
        index: 1,
        item: OriginItem::Text { bytes: text.len(), rest: "{}".into() },
    });
    answer.push(&crate::Delta::Finish(crate::FinishReason::Stop));
    answer.finish().unwrap().message
}

fn thoughts(body: &Value) -> Vec<&str> {
    let blocks =
        body["messages"].as_array().unwrap().iter().flat_map(|turn| turn["content"].as_array().unwrap());
    blocks.filter_map(|block| block["thinking"].as_str()).collect()
}

#[test]
fn a_round_is_one_message_with_the_results_first_in_the_order_of_the_calls() {
    let calls = [ToolCall::new("a", "add", "{}"), ToolCall::new("b", "add", "")];
    let request = Request {
        messages: vec![
            Message::system("be kind"),
            Message::user("hi"),
            Message::assistant("").with_tool_calls(calls),
            Message::tool("b", "2"),
            Message::tool("a", "1"),
            Message::user("and"),
            Message::synthetic("hint"),
        ],
        tools: [tool("add")].into(),
        ..Request::default()
    };
    let text = |text: &str| json!({"type": "text", "text": text});
    let used = |id: &str| json!({"type": "tool_use", "id": id, "name": "add", "input": {}});
    let result = |id: &str, content: &str| json!({"type": "tool_result", "tool_use_id": id, "content": [text(content)]});
    assert_eq!(
        body(&config(), &request),
        json!({
            "model": "m", "max_tokens": 8192, "stream": true,
            "system": [text("be kind")],
            "tools": [{"name": "add", "description": "adds", "input_schema": {"type": "object"}}],
            "messages": [
                {"role": "user", "content": [text("hi")]},
                {"role": "assistant", "content": [used("a"), used("b")]},
                {"role": "user", "content": [result("a", "1"), result("b", "2"), text("and"), text("hint")]},
            ],
        })
    );
}

#[test]
fn a_request_without_tools_sends_the_earlier_ones_and_forbids_them() {
    let called = Message::assistant("").with_tool_calls([ToolCall::new("a", "my add", "{")]);
    let mut request = Request::new([Message::user("hi"), called, Message::tool("a", "1")]);
    let sent = body(&config(), &request);
    assert_eq!(sent["tools"], json!([{"name": "my_add", "input_schema": {"type": "object"}}]));
    assert_eq!(sent["messages"][1]["content"][0]["input"], json!({"_raw": "{"}));
    request.earlier_tools = [tool("add")].into();
    let sent = body(&config(), &request);
    assert_eq!((&sent["tool_choice"]["type"], &sent["tools"][0]["name"]), (&json!("none"), &json!("add")));
    assert_eq!(body(&config(), &Request::new([Message::user("hi")])).get("tool_choice"), None);
}

#[test]
fn marks_are_at_the_ends_of_what_is_cached() {
    let config = AnthropicConfig { cache: CacheTime::Hour, ..config() };
    let request = Request {
        messages: vec![
            Message::system("s"),
            Message::user("a"),
            Message::assistant("b"),
            Message::user("c"),
            Message::assistant("d"),
            Message::user("e"),
        ],
        tools: [tool("x"), tool("y")].into(),
        ..Request::default()
    };
    let sent = body(&config, &request);
    let hour = json!({"type": "ephemeral", "ttl": "1h"});
    assert_eq!(
        (sent["tools"][1]["cache_control"].clone(), sent["system"][0]["cache_control"].clone()),
        (hour.clone(), hour)
    );
    let marked: Vec<_> =
        (0..5).filter(|at| sent["messages"][at]["content"][0].get("cache_control").is_some()).collect();
    assert_eq!(marked, [2, 4]);
    assert_eq!(sent["tools"][0].get("cache_control"), None);
}

#[test]
fn reasoning_is_sent_behind_the_same_conversation_only() {
    let config = config();
    let first = Request::new([Message::system("s"), Message::user("one")]);
    let one = answer(&config, &first, "first");
    let mut second = first.clone();
    second.messages.extend([one, Message::user("two")]);
    let two = answer(&config, &second, "second");
    let mut third = second.clone();
    third.messages.extend([two, Message::user("three")]);
    assert_eq!(thoughts(&body(&config, &third)), ["first", "second"]);
    // Another model, or another text of the answer.
    let other = AnthropicConfig { model: "n".into(), ..config.clone() };
    assert_eq!(thoughts(&body(&other, &third)), [""; 0]);
    let mut edited = third.clone();
    edited.messages[4].to_mut().content.push('!');
    assert_eq!(thoughts(&body(&config, &edited)), ["first"]);
    // Another system prompt, or other tools.
    let mut edited = third.clone();
    edited.messages[0] = Message::system("t");
    assert_eq!(thoughts(&body(&config, &edited)), [""; 0]);
    let edited = Request { tools: [tool("add")].into(), ..third.clone() };
    assert_eq!(thoughts(&body(&config, &edited)), [""; 0]);
    // An answer that was given without the reasoning before it is valid without it.
    let bare = second.messages[2].clone().with(|message| message.origin = None);
    let mut second = second;
    second.messages[2] = bare;
    let two = answer(&config, &second, "second");
    second.messages.extend([two, Message::user("three")]);
    assert_eq!(thoughts(&body(&config, &second)), ["second"]);
}

#[test]
fn the_form_of_thinking_is_that_of_the_model() {
    let table = r#"
        [[model]]
        id = "m"
        can = ["adaptive", "bound"]
        cannot = ["sampling"]
        max_output = 9000
    "#;
    let bound = AnthropicConfig {
        models: Arc::new(ModelTable::parse(table).unwrap()),
        temperature: Some(0.5),
        effort: Some("low".into()),
        ..config()
    };
    let request =
        Request { output_schema: Some(json!({"type": "object"})), ..Request::new([Message::user("hi")]) };
    let sent = body(&bound, &request);
    assert_eq!(
        sent["thinking"],
        json!({"type": "adaptive", "display": "summarized", "block_binding": {"prefix_mismatch_behavior": "drop_block"}})
    );
    assert_eq!((sent["max_tokens"].clone(), sent.get("temperature")), (json!(9000), None));
    assert_eq!(
        sent["output_config"],
        json!({"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}})
    );
    let form = Form { lost_betas: vec![BINDING.to_owned()], ..Form::default() };
    let offered = Offered::of(&request);
    let built = Built::new(&bound, SERVER, &request, &offered, &form);
    assert_eq!((built.betas.len(), built.body.thinking.unwrap().get("block_binding")), (0, None));
    let manual = AnthropicConfig { thinking: Thinking::Budget(4000), max_tokens: Some(100), ..config() };
    let sent = body(&manual, &request);
    assert_eq!((&sent["thinking"]["budget_tokens"], &sent["max_tokens"]), (&json!(4000), &json!(5024)));
    // A round that another model began.
    let called = Message::assistant("").with_tool_calls([ToolCall::new("a", "add", "{}")]);
    let open = Request::new([Message::user("hi"), called, Message::tool("a", "1")]);
    assert_eq!(body(&manual, &open).get("thinking"), None);
    assert_eq!(
        body(&AnthropicConfig { thinking: Thinking::Off, ..bound }, &request)["temperature"],
        Value::Null
    );
}

#[test]
fn the_conversation_begins_and_ends_with_the_user() {
    let texts = |messages: Vec<Message>| {
        let sent = body(&config(), &Request::new(messages));
        let turns = sent["messages"].as_array().unwrap().clone();
        turns.iter().map(|turn| turn["content"][0]["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(texts(vec![]), ["(empty)"]);
    assert_eq!(
        texts(vec![Message::system("s"), Message::assistant("a")]),
        ["(earlier messages are left out)", "a", "(continue)"]
    );
    assert_eq!(texts(vec![Message::user("u"), Message::assistant(" "), Message::system("later")]), ["u"]);
}

#[test]
fn a_later_system_message_has_its_own_role_where_the_model_accepts_it() {
    let called = Message::assistant("").with_tool_calls([ToolCall::new("a", "add", "{}")]);
    let messages = vec![
        Message::user("u"),
        called,
        Message::tool("a", "1"),
        Message::system("Be brief."),
        Message::user("v"),
    ];
    let mut request = Request::new([Message::system("s")]);
    request.messages.extend(messages);
    let roles = |model: &str| {
        let config = AnthropicConfig { model: model.into(), ..config() };
        let sent = body(&config, &request)["messages"].clone();
        sent.as_array()
            .unwrap()
            .iter()
            .map(|turn| turn["role"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(roles("claude-opus-5-5"), ["user", "assistant", "user", "system", "user"]);
    assert_eq!(roles("m"), ["user", "assistant", "user"]);
    // The last message is the user's.
    request.messages.pop();
    let config = AnthropicConfig { model: "claude-opus-5-5".into(), ..config() };
    let last = &body(&config, &request)["messages"][4];
    assert_eq!(
        (last["role"].as_str(), last["content"][0]["text"].as_str()),
        (Some("user"), Some("(continue)"))
    );
}
