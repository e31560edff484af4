use super::*;
use crate::{Assembler, Message, ModelErrorKind};

fn reader() -> Reader {
    Reader::new("http://h".into(), "m".into(), "p".into())
}

fn read(reader: &mut Reader, events: &[Value]) -> Vec<Delta> {
    events.iter().flat_map(|event| reader.read(&event.to_string()).unwrap()).collect()
}

fn message(events: &[Value]) -> Message {
    let mut answer = Assembler::new();
    read(&mut reader(), events).iter().for_each(|delta| answer.push(delta));
    if answer.is_finished() { answer.finish().unwrap().message } else { answer.partial() }
}

fn start(index: usize, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn piece(index: usize, kind: &str, name: &str, text: &str) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": {"type": kind, name: text}})
}

fn stop(index: usize) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn end(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 7}})
}

fn begin() -> Value {
    json!({"type": "message_start", "message": {"usage": {
        "input_tokens": 5, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 3, "output_tokens": 1,
        "cache_creation": {"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 2}
    }}})
}

fn thinking(index: usize) -> [Value; 5] {
    [
        start(index, json!({"type": "thinking", "thinking": "", "signature": ""})),
        piece(index, "thinking_delta", "thinking", "hm"),
        piece(index, "signature_delta", "signature", "S1"),
        piece(index, "signature_delta", "signature", "S2"),
        stop(index),
    ]
}

fn items(message: &Message) -> Vec<OriginItem> {
    message.origin.as_ref().map(|origin| origin.items.clone()).unwrap_or_default()
}

#[test]
fn blocks_become_items_in_their_order() {
    let redacted = r#"{"type":"redacted_thinking","data":"D"}"#;
    let mut reader = reader();
    let mut deltas = read(&mut reader, &[begin()]);
    deltas.extend(read(&mut reader, &thinking(0)));
    // Unknown blocks are stored byte for byte.
    let raw = format!(r#"{{"type":"content_block_start","index":1,"content_block":{redacted}}}"#);
    deltas.extend(reader.read(&raw).unwrap());
    let call = start(
        3,
        json!({"type": "tool_use", "id": "c", "name": "add", "input": {}, "caller": {"type": "direct"}}),
    );
    deltas.extend(read(
        &mut reader,
        &[
            stop(1),
            start(2, json!({"type": "text", "text": "", "citations": null})),
            piece(2, "text_delta", "text", "one "),
            json!({"type": "ping"}),
            piece(2, "text_delta", "text", "two"),
            stop(2),
            call,
            piece(3, "input_json_delta", "partial_json", ""),
            piece(3, "input_json_delta", "partial_json", r#"{"x""#),
            piece(3, "input_json_delta", "partial_json", ":1}"),
            stop(3),
            start(4, json!({"type": "tool_use", "id": "d", "name": "now", "input": {}})),
            stop(4),
            end("tool_use"),
        ],
    ));
    let mut answer = Assembler::new();
    deltas.iter().for_each(|delta| answer.push(delta));
    let response = answer.finish().unwrap();
    let calls: Vec<_> =
        response.message.tool_calls.iter().map(|call| (&*call.id, &*call.arguments)).collect();
    assert_eq!(calls, [("c", r#"{"x":1}"#), ("d", "{}")]);
    assert_eq!((&*response.message.content, &*response.message.reasoning), ("one two", "hm"));
    assert_eq!(
        items(&response.message),
        [
            OriginItem::Opaque(r#"{"signature":"S1S2","thinking":"hm","type":"thinking"}"#.into()),
            OriginItem::Opaque(redacted.into()),
            OriginItem::Text { bytes: 7, rest: "{}".into() },
            OriginItem::Call { rest: r#"{"caller":{"type":"direct"}}"#.into() },
            OriginItem::Call { rest: "{}".into() },
        ]
    );
    let usage = Usage {
        input_tokens: 28,
        output_tokens: 7,
        cached_tokens: 20,
        cache_write_tokens: 3,
        cache_write_1h_tokens: 2,
        reasoning_tokens: 0,
    };
    assert_eq!(response.usage, Some(usage));
}

#[test]
fn reasoning_that_is_not_whole_voids_all_of_the_answer() {
    let text = [start(1, json!({"type": "text", "text": ""})), piece(1, "text_delta", "text", "a"), stop(1)];
    let whole = [&[begin()][..], &thinking(0), &text, &[end("end_turn")]].concat();
    assert_eq!(items(&message(&whole)).len(), 2);
    // Without a signature.
    let mut unsigned = whole.clone();
    unsigned.drain(3..5);
    assert_eq!((items(&message(&unsigned)), &*message(&unsigned).content), (vec![], "a"));
    // With half of a character.
    let mut reader = reader();
    let mut answer = Assembler::new();
    for (at, event) in whole.iter().enumerate() {
        let data = if at == 2 { event.to_string().replace("hm", r"h\ud83d") } else { event.to_string() };
        reader.read(&data).unwrap().iter().for_each(|delta| answer.push(delta));
    }
    let damaged = answer.finish().unwrap().message;
    assert_eq!((items(&damaged), &*damaged.reasoning), (vec![], "h\u{fffd}"));
    // Cut off within the reasoning, and behind it.
    assert_eq!(items(&message(&whole[..4])), []);
    assert_eq!(items(&message(&whole[..7])).len(), 1);
}

#[test]
fn the_reason_of_the_end_is_translated() {
    let finish = |event: Value| {
        let deltas = read(&mut reader(), &[begin(), event]);
        deltas.into_iter().find_map(|delta| match delta {
            Delta::Finish(reason) => Some(reason),
            _ => None,
        })
    };
    for (reason, expected) in [
        ("end_turn", FinishReason::Stop),
        ("stop_sequence", FinishReason::Stop),
        ("tool_use", FinishReason::ToolCalls),
        ("max_tokens", FinishReason::Length),
        ("model_context_window_exceeded", FinishReason::ContextFull),
        ("new", FinishReason::Other("new".into())),
    ] {
        assert_eq!(finish(end(reason)), Some(expected), "{reason}");
    }
    assert_eq!(finish(json!({"type": "message_delta", "delta": {"stop_reason": null}})), None);
    let refusal = json!({"type": "message_delta", "delta": {"stop_reason": "refusal",
        "stop_details": {"category": "cyber", "explanation": "no"}}});
    let refused = message(&[begin(), refusal]);
    assert_eq!((&*refused.content, items(&refused)), ("no", vec![OriginItem::Refused]));
}

#[test]
fn errors_and_oddities_of_a_stream_are_told_apart() {
    let mut reader = reader();
    for odd in [
        "[DONE]",
        "",
        "{}",
        r#"{"type":"new","index":"x"}"#,
        r#"{"type":"content_block_delta","delta":{"type":"x"}}"#,
    ] {
        assert_eq!(reader.read(odd).unwrap(), [], "{odd}");
    }
    assert_eq!(reader.read("{\"type\":").unwrap_err().kind, ModelErrorKind::Malformed);
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    assert_eq!(reader.read(error).unwrap_err().kind, ModelErrorKind::Server);
    assert_eq!(reader.truncated().unwrap_err().kind, ModelErrorKind::TruncatedStream);
    read(&mut reader, &[end("end_turn")]);
    assert_eq!(reader.read(error).unwrap(), [], "the answer is complete");
    reader.truncated().unwrap();
}

#[test]
fn a_paused_answer_is_continued_under_further_items() {
    let mut reader = reader();
    let mut deltas = read(
        &mut reader,
        &[
            begin(),
            start(0, json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})),
            stop(0),
            end("pause_turn"),
        ],
    );
    assert_eq!(reader.end(), Some(End::Paused));
    let content: Vec<_> = reader.resume().iter().map(|block| block.get().to_owned()).collect();
    assert_eq!(content, [r#"{"id":"s","input":{},"name":"web_search","type":"server_tool_use"}"#]);
    let text = [start(0, json!({"type": "text", "text": "found"})), stop(0), end("end_turn")];
    deltas.extend(read(&mut reader, &[&[begin()][..], &text].concat()));
    let mut answer = Assembler::new();
    deltas.iter().for_each(|delta| answer.push(delta));
    let response = answer.finish().unwrap();
    assert_eq!((items(&response.message).len(), response.usage.unwrap().output_tokens), (2, 14));
}
