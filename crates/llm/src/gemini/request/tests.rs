use super::*;
use crate::{Message, ToolCall, media::Media, toolset::ToolSpecs};

const SERVER: &str = "http://h";

fn config() -> GeminiConfig {
    GeminiConfig::new(SERVER, "", "gemini-3.5-flash")
}

fn body(config: &GeminiConfig, request: &Request) -> Value {
    serde_json::to_value(Built::new(config, SERVER, request, true).body).unwrap()
}

fn tool(name: &str, parameters: Value) -> ToolSpec {
    ToolSpec { name: name.into(), description: "adds".into(), parameters }
}

/// Returns an answer of the model with two signed calls, of which only the first has an id.
fn signed() -> Message {
    let mut answer = crate::Assembler::new();
    let mut reader = super::super::reader::Reader::new(SERVER.into(), config().model);
    let chunk = json!({"candidates": [{"finishReason": "STOP", "content": {"parts": [
        {"functionCall": {"name": "add", "args": {"x": 1}, "id": "f1"}, "thoughtSignature": "S"},
        {"functionCall": {"name": "add", "args": {"x": 2}}},
    ]}}]});
    let deltas = reader.read(&chunk.to_string()).unwrap().into_iter().chain(reader.end(None).unwrap());
    deltas.for_each(|delta| answer.push(&delta));
    answer.finish().unwrap().message
}

fn round() -> Request {
    let answer = signed();
    let results =
        answer.tool_calls.iter().rev().map(|call| Message::tool(call.id.as_str(), call.arguments.as_str()));
    let results: Vec<_> = results.collect();
    let begin = [Message::system("be kind"), Message::user("hi"), answer];
    Request::new(begin.into_iter().chain(results).chain([Message::synthetic("hint")]))
}

#[test]
fn a_round_goes_back_with_its_signature_and_in_the_order_of_the_calls() {
    let (request, config) = (round(), config());
    let result = |x: i32| json!({"name": "add", "response": {"output": format!("{{\"x\":{x}}}")}});
    let mut first = result(1);
    first["id"] = "f1".into();
    let contents = json!([
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [
            {"functionCall": {"id": "f1", "name": "add", "args": {"x": 1}}, "thoughtSignature": "S"},
            {"functionCall": {"name": "add", "args": {"x": 2}}},
        ]},
        {"role": "user", "parts": [{"functionResponse": first}, {"functionResponse": result(2)}, {"text": "hint"}]},
    ]);
    let sent = body(&config, &request);
    assert_eq!(sent["contents"], contents);
    assert_eq!(sent["systemInstruction"], json!({"parts": [{"text": "be kind"}]}));
    assert!(Built::new(&config, SERVER, &request, true).has_signatures);
    let bare = Built::new(&config, SERVER, &request, false);
    let bare = (serde_json::to_value(bare.body).unwrap(), bare.has_signatures);
    let call = &bare.0["contents"][1]["parts"][0];
    assert_eq!(
        (call["thoughtSignature"].as_str(), bare.1),
        (Some("skip_thought_signature_validator"), false)
    );
    assert!(call["functionCall"].get("id").is_none());
}

#[test]
fn calls_of_other_models_have_the_signature_that_is_defined_for_them() {
    let calls = [ToolCall::new("a", "add", "{}"), ToolCall::new("b", "add", "")];
    let called = Message::assistant("Well.").with_tool_calls(calls);
    let request = Request::new([called, Message::tool("b", "2"), Message::tool("a", "1")]);
    let mut config = config();
    let sent = body(&config, &request);
    let first = json!({"functionCall": {"name": "add", "args": {}}, "thoughtSignature": "skip_thought_signature_validator"});
    let model = json!([{"text": "Well."}, first, {"functionCall": {"name": "add", "args": {}}}]);
    assert_eq!((&sent["contents"][0]["role"], &sent["contents"][1]["parts"]), (&json!("user"), &model));
    let outputs = sent["contents"][2]["parts"].as_array().unwrap();
    let outputs: Vec<_> =
        outputs.iter().map(|part| &part["functionResponse"]["response"]["output"]).collect();
    assert_eq!(outputs, ["1", "2"]);
    config.model = "gemini-2.5-pro".into();
    assert!(!body(&config, &request).to_string().contains("thoughtSignature"));
}

#[test]
fn images_are_within_the_result_or_behind_all_results() {
    let png = Media::new("image/png", "iVBORw0KGgo=").unwrap();
    let mut request = round();
    request.messages[3].to_mut().media = vec![png.clone()];
    request.messages[4].to_mut().media = vec![png];
    let kinds = |model: &str| {
        let config = GeminiConfig { model: model.into(), ..config() };
        let parts = body(&config, &request)["contents"][2]["parts"].clone();
        let kind = |part: &Value| {
            let kind = part.as_object().unwrap().keys().next().unwrap().clone();
            kind + if part["functionResponse"].get("parts").is_some() { "+" } else { "" }
        };
        parts.as_array().unwrap().iter().map(kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds("gemini-3.5-flash"), ["functionResponse+", "functionResponse+", "text"]);
    assert_eq!(
        kinds("gemini-2.5-pro"),
        ["functionResponse", "functionResponse", "inlineData", "inlineData", "text"]
    );
}

#[test]
fn tools_stay_and_are_forbidden_in_a_step_without_them() {
    let parameters = json!({"type": "object", "properties": {"x": {"type": "integer"}}});
    let tools: ToolSpecs = [
        tool("add", parameters.clone()),
        tool("now", json!({"type": "object", "properties": {}, "additionalProperties": false})),
        tool("odd", json!({"properties": {"x": {}}})),
    ]
    .into();
    let request = Request { tools: tools.clone(), ..Request::new([Message::user("hi")]) };
    let offered = body(&config(), &request);
    let odd = json!({"type": "object", "properties": {"x": {}}});
    let declarations = json!([
        {"name": "add", "description": "adds", "parametersJsonSchema": parameters},
        {"name": "now", "description": "adds"},
        {"name": "odd", "description": "adds", "parametersJsonSchema": odd},
    ]);
    assert_eq!(offered["tools"], json!([{ "functionDeclarations": declarations }]));
    assert!(offered.get("toolConfig").is_none());
    let last = Request { earlier_tools: tools, ..Request::new([Message::user("hi")]) };
    let last = body(&config(), &last);
    assert_eq!(last["tools"], offered["tools"]);
    assert_eq!(last["toolConfig"], json!({"functionCallingConfig": {"mode": "NONE"}}));
}

#[test]
fn settings_are_those_of_the_request_over_those_of_the_configuration() {
    let mut config = config();
    assert_eq!(
        body(&config, &Request::new([Message::user(" ")])),
        json!({"contents": [{"role": "user", "parts": [{"text": "(empty)"}]}]})
    );
    config.extra = serde_json::from_value(json!({"safetySettings": [], GENERATION: {"topP": 0.5}})).unwrap();
    config.effort = Some("low".into());
    (config.temperature, config.max_tokens) = (Some(0.1), Some(9));
    let schema = json!({"type": "object"});
    let request = Request {
        max_tokens: Some(20),
        output_schema: Some(schema.clone()),
        ..Request::new([Message::assistant("a")])
    };
    let sent = body(&config, &request);
    assert_eq!(
        sent[GENERATION],
        json!({"topP": 0.5, "temperature": 0.1, "maxOutputTokens": 20, "responseMimeType": "application/json",
            "responseJsonSchema": schema, "thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": true}})
    );
    assert_eq!(
        (&sent["safetySettings"], &sent["contents"][2]["parts"][0]["text"]),
        (&json!([]), &json!("(continue)"))
    );
    (config.effort, config.thinking_budget) = (None, Some(0));
    let off = json!({"thinkingBudget": 0, "includeThoughts": false});
    assert_eq!(body(&config, &request)[GENERATION]["thinkingConfig"], off);
}

#[test]
fn a_longer_conversation_begins_with_the_bytes_of_the_shorter_one() {
    let longer = round();
    let sent = |n: usize| {
        let request = Request { messages: longer.messages[..n].to_vec(), ..Request::default() };
        serde_json::to_string(&Built::new(&config(), SERVER, &request, true).body).unwrap()
    };
    let whole = sent(6);
    for shorter in [2, 5] {
        // Without the ends of the last content, of the list and of the body.
        let shorter = sent(shorter);
        assert!(whole.starts_with(shorter.strip_suffix("]}]}").unwrap()), "{whole}\n{shorter}");
    }
}
