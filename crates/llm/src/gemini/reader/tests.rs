use super::*;
use crate::{Assembler, Message};

fn reader() -> Reader {
    Reader::new("http://h".into(), "m".into())
}

fn deltas(chunks: &[Value]) -> Result<Vec<Delta>, ModelError> {
    let mut reader = reader();
    let mut deltas = Vec::new();
    for chunk in chunks {
        deltas.extend(reader.read(&chunk.to_string())?);
    }
    deltas.extend(reader.end(None)?);
    Ok(deltas)
}

fn response(chunks: &[Value]) -> crate::Response {
    let mut answer = Assembler::new();
    deltas(chunks).unwrap().iter().for_each(|delta| answer.push(delta));
    answer.finish().unwrap()
}

fn parts(parts: Value) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}]})
}

fn end(reason: &str) -> Value {
    json!({"candidates": [{"content": {"role": "model"}, "finishReason": reason, "index": 0}]})
}

fn items(message: &Message) -> Vec<OriginItem> {
    message.origin.as_ref().map(|origin| origin.items.clone()).unwrap_or_default()
}

#[test]
fn parts_become_items_and_signatures_stay_on_theirs() {
    let raw = r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"add","args":{"b": 1.0, "a":"\u00fc"},"id":"f1","x":[]},"thoughtSignature":"U="},{"executableCode":{"code": "1"}}]}}]}"#;
    let mut reader = reader();
    let mut answer = Assembler::new();
    for chunk in [
        parts(json!([{"thought": true, "text": "h"}])).to_string(),
        parts(json!([{"thought": true, "text": "m"}, {"text": "one"}])).to_string(),
        "[DONE]".to_owned(),
        parts(json!([{"text": " two"}])).to_string(),
        parts(json!([{"text": "", "thoughtSignature": "T"}, {"text": ""}])).to_string(),
        raw.to_owned(),
        parts(json!([{"functionCall": {"name": "now"}, "thought": null}])).to_string(),
        end("STOP").to_string(),
    ] {
        reader.read(&chunk).unwrap().iter().for_each(|delta| answer.push(delta));
    }
    reader.end(None).unwrap().iter().for_each(|delta| answer.push(delta));
    let response = answer.finish().unwrap();
    let message = &response.message;
    assert_eq!((&*message.reasoning, &*message.content), ("hm", "one two"));
    let calls: Vec<_> = message.tool_calls.iter().map(|call| (&*call.id, &*call.arguments)).collect();
    assert_eq!(calls, [("f1", r#"{"b": 1.0, "a":"\u00fc"}"#), ("call_1", "{}")]);
    assert_eq!(response.finish, FinishReason::ToolCalls);
    assert_eq!(
        items(message),
        [
            OriginItem::Opaque(r#"{"text":"hm","thought":true}"#.into()),
            OriginItem::Text { bytes: 7, rest: "{}".into() },
            OriginItem::Text { bytes: 0, rest: r#"{"thoughtSignature":"T"}"#.into() },
            OriginItem::Call {
                rest: r#"{"functionCall":{"id":"f1","x":[]},"thoughtSignature":"U="}"#.into()
            },
            OriginItem::Opaque(r#"{"executableCode":{"code": "1"}}"#.into()),
            OriginItem::Call { rest: "{}".into() },
        ]
    );
}

#[test]
fn signed_reasoning_is_stored_as_it_was_sent() {
    let thought = json!({"text": "hm", "thought": true, "thoughtSignature": "S"});
    let message = response(&[parts(json!([thought, {"text": "a"}])), end("STOP")]).message;
    assert_eq!(
        items(&message),
        [OriginItem::Opaque(thought.to_string()), OriginItem::Text { bytes: 1, rest: "{}".into() }]
    );
}

#[test]
fn the_reason_of_the_end_is_translated() {
    let finish = |reason: &str| response(&[parts(json!([{"text": "a"}])), end(reason)]).finish;
    assert_eq!(finish("STOP"), FinishReason::Stop);
    assert_eq!(finish("MAX_TOKENS"), FinishReason::Length);
    for reason in
        ["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "MODEL_ARMOR"]
    {
        assert_eq!(finish(reason), FinishReason::ContentFilter, "{reason}");
    }
    assert_eq!(finish("OTHER"), FinishReason::Other("OTHER".into()));
    for reason in ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MISSING_THOUGHT_SIGNATURE"] {
        let mut chunk = end(reason);
        chunk["candidates"][0]["finishMessage"] = "Malformed function call: print(".into();
        let error = deltas(&[chunk]).unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Malformed);
        assert!(error.message.contains(reason) && error.message.contains("print("), "{error}");
    }
}

#[test]
fn an_answer_without_candidates_is_malformed_unless_the_request_was_blocked() {
    let usage = json!({"usageMetadata": {"promptTokenCount": 3}});
    assert_eq!(deltas(std::slice::from_ref(&usage)).unwrap_err().kind, ModelErrorKind::Malformed);
    assert_eq!(deltas(&[json!({"candidates": []})]).unwrap_err().kind, ModelErrorKind::Malformed);
    assert_eq!(deltas(&[]).unwrap_err().kind, ModelErrorKind::TruncatedStream);
    assert_eq!(deltas(&[parts(json!([{"text": "a"}]))]).unwrap_err().kind, ModelErrorKind::TruncatedStream);
    let blocked = json!({"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": "No."}});
    let blocked = response(&[blocked, usage]);
    assert_eq!((blocked.finish, &*blocked.message.content), (FinishReason::ContentFilter, "No."));
    assert_eq!(blocked.usage.unwrap().input_tokens, 3);
}

#[test]
fn tokens_are_those_of_the_last_report() {
    let usage = |usage: Value| json!({"usageMetadata": usage});
    assert_eq!(response(&[usage(json!({})), end("STOP")]).usage, None);
    let reported = [
        usage(
            json!({"promptTokenCount": 100, "cachedContentTokenCount": 80, "thoughtsTokenCount": 5, "totalTokenCount": 105}),
        ),
        usage(
            json!({"promptTokenCount": 100, "candidatesTokenCount": 7, "thoughtsTokenCount": 9, "toolUsePromptTokenCount": 2}),
        ),
        usage(json!({"candidatesTokenCount": "x"})),
        end("STOP"),
    ];
    let usage = Usage {
        input_tokens: 102,
        output_tokens: 16,
        cached_tokens: 80,
        cache_write_tokens: 0,
        cache_write_1h_tokens: 0,
        reasoning_tokens: 9,
    };
    assert_eq!(response(&reported).usage, Some(usage));
}

#[test]
fn errors_and_oddities_of_a_stream_are_told_apart() {
    let mut reader = reader();
    for odd in [
        "[DONE]",
        "",
        "x",
        "{}",
        r#"{"candidates":[{"content":null}]}"#,
        r#"{"candidates":[{"content":{"parts":[null,{},7]}}]}"#,
    ] {
        let deltas = reader.read(odd).unwrap();
        assert!(deltas.iter().all(|delta| matches!(delta, Delta::Origin { .. })), "{odd}");
    }
    assert_eq!(reader.read("{\"candidates\":").unwrap_err().kind, ModelErrorKind::Malformed);
    let error = r#"{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}"#;
    for error in [error.to_owned(), format!("[{error}]")] {
        assert_eq!(reader.read(&error).unwrap_err().kind, ModelErrorKind::Server);
    }
    // The answer is complete with the reason of its end. A signature and the tokens may follow.
    reader.read(&end("STOP").to_string()).unwrap();
    assert_eq!((reader.read(error).unwrap(), reader.read("{").unwrap()), (vec![], vec![]));
    let late = reader.read(&parts(json!([{"text": "", "thoughtSignature": "S"}])).to_string()).unwrap();
    assert_eq!(late.len(), 1);
    let fault = ModelError::new(ModelErrorKind::TruncatedStream, "broken");
    assert_eq!(reader.end(Some(fault)).unwrap(), [Delta::Finish(FinishReason::Stop)]);
}
