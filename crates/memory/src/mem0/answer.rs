//! Parsing of Mem0 responses, in the formats of both forms and their earlier versions.

use serde_json::Value;
use superstep_llm::wire::excerpt;

use super::wire::{KEY, is_id};
use superstep_agent::deps::MemoryEntry;

/// The immediate result of adding messages.
pub(super) struct Added {
    pub(super) entries: Vec<MemoryEntry>,
    /// The events in which messages are processed later.
    pub(super) events: Vec<String>,
}

/// The state of an event.
pub(super) enum Event {
    Running,
    Stored(Vec<MemoryEntry>),
    Failed(String),
}

pub(super) fn found(answer: &Value, user_id: &str) -> Result<Vec<MemoryEntry>, String> {
    let read = |result: &Value| {
        if result["user_id"].as_str().is_some_and(|of| of != user_id) {
            return Err(
                "it answered with a memory of another user: it does not know filters, is it too old?"
                    .to_owned(),
            );
        }
        entry(result).ok_or_else(|| nonsense(result))
    };
    results(answer)?.iter().map(read).collect()
}

/// Reads the memories added under a key. Memories with another key, or none, come from a server that does not
/// support this filter.
pub(super) fn found_under(key: &str, answer: &Value, user_id: &str) -> Result<Vec<MemoryEntry>, String> {
    let has_key = |result: &&Value| result["metadata"][KEY] == *key;
    let under_key: Vec<Value> = results(answer)?.iter().filter(has_key).cloned().collect();
    found(&Value::Array(under_key), user_id)
}

/// Reads the response to added messages.
pub(super) fn added(answer: &Value) -> Result<Added, String> {
    let mut added = Added { entries: Vec::new(), events: Vec::new() };
    // The event is at the top level, or among the results.
    let alone = std::slice::from_ref(answer);
    let results = if answer["event_id"].is_string() { alone } else { results(answer)? };
    for result in results {
        if let Some(why) = failed(result) {
            return Err(format!("it could not store the messages: {why}"));
        }
        match result["event_id"].as_str() {
            Some(event) if result["id"].is_null() && is_id(event) => added.events.push(event.to_owned()),
            _ if is_gone(result) => {}
            _ => added.entries.push(entry(result).ok_or_else(|| nonsense(result))?),
        }
    }
    Ok(added)
}

/// Reads the state of an event.
pub(super) fn event(answer: &Value) -> Result<Event, String> {
    if let Some(why) = failed(answer) {
        return Ok(Event::Failed(why));
    }
    match answer["status"].as_str() {
        Some("PENDING" | "RUNNING") => Ok(Event::Running),
        // Mem0 does not document the results of an event: those that are memories are read.
        Some("SUCCEEDED") => {
            let results = answer["results"].as_array().map_or(&[] as &[_], Vec::as_slice);
            Ok(Event::Stored(results.iter().filter(|result| !is_gone(result)).filter_map(entry).collect()))
        }
        _ => Err(nonsense(answer)),
    }
}

/// Returns the list that a response is or contains.
fn results(answer: &Value) -> Result<&[Value], String> {
    let results = answer.as_array().or_else(|| answer["results"].as_array());
    results.map(Vec::as_slice).ok_or_else(|| nonsense(answer))
}

fn entry(result: &Value) -> Option<MemoryEntry> {
    let id = result["id"].as_str()?;
    let text = result["memory"].as_str().or_else(|| result["data"]["memory"].as_str())?;
    Some(MemoryEntry { id: id.to_owned(), text: text.to_owned(), score: result["score"].as_f64() })
}

/// Returns whether the result is a deletion: messages may also make Mem0 delete memories.
fn is_gone(result: &Value) -> bool {
    matches!(result["event"].as_str(), Some("DELETE" | "NONE"))
}

fn failed(result: &Value) -> Option<String> {
    let is_failed = result["status"].as_str() == Some("FAILED");
    is_failed.then(|| {
        let mut words = ["error", "message", "metadata", "results"].iter().map(|field| &result[*field]);
        match words.find(|word| !word.is_null()) {
            Some(Value::String(text)) => excerpt(text),
            Some(value) => excerpt(&value.to_string()),
            None => "it gives no reason".to_owned(),
        }
    })
}

fn nonsense(value: &Value) -> String {
    format!("its answer cannot be understood: {}", excerpt(&value.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(answer: &Value) -> Vec<String> {
        added(answer).unwrap().entries.into_iter().map(|entry| entry.text).collect()
    }

    fn error(answer: &Value) -> String {
        added(answer).err().unwrap()
    }

    #[test]
    fn stored_memories_are_read_from_all_response_forms() {
        let tea = json!({"id": "1", "memory": "Likes tea", "event": "ADD"});
        assert_eq!(texts(&json!({"results": [tea]})), ["Likes tea"]);
        assert_eq!(texts(&json!([tea])), ["Likes tea"]);
        assert_eq!(
            texts(&json!([{"id": "1", "event": "ADD", "data": {"memory": "Likes tea"}}])),
            ["Likes tea"]
        );
        let changed = json!({"id": "1", "memory": "Likes green tea", "event": "UPDATE", "previous_memory": "Likes tea"});
        let forgotten = json!({"id": "2", "memory": "Likes coffee", "event": "DELETE"});
        assert_eq!(texts(&json!({"results": [changed, forgotten], "relations": []})), ["Likes green tea"]);
        assert_eq!(texts(&json!({"results": []})), Vec::<String>::new());
    }

    #[test]
    fn a_queued_memory_is_distinguished_from_a_stored_one() {
        let promise = json!({"message": "queued", "status": "PENDING", "event_id": "evt-1"});
        for answer in [promise.clone(), json!({"results": [promise]}), json!([promise])] {
            let added = added(&answer).unwrap();
            assert_eq!((added.events, added.entries), (vec!["evt-1".to_owned()], vec![]), "{answer}");
        }
        let outside = json!({"status": "PENDING", "event_id": "../memories"});
        assert!(error(&outside).starts_with("its answer cannot be understood: "));
    }

    #[test]
    fn a_failure_is_not_an_empty_list() {
        let failed = json!({"event_id": "e", "status": "FAILED", "error": "the model is overloaded"});
        assert_eq!(error(&failed), "it could not store the messages: the model is overloaded");
        assert_eq!(error(&json!({"results": [failed]})), error(&failed));
        for answer in [json!({"detail": "no"}), json!("ok"), json!(null), json!({"results": [{"id": 1}]})] {
            assert!(error(&answer).starts_with("its answer cannot be understood: "), "{answer}");
        }
        assert!(event(&json!({"status": "LOST"})).is_err());
    }

    #[test]
    fn a_memory_that_was_not_added_under_the_key_is_not_taken_for_one() {
        let result = |metadata: Value| json!({"id": "1", "memory": "m", "metadata": metadata});
        let results = [
            result(json!({"superstep_key": "k1"})),
            result(json!({"superstep_key": "k2"})),
            result(Value::Null),
        ];
        let answer = json!({"results": results});
        assert_eq!(found_under("k1", &answer, "ada").unwrap().len(), 1);
        assert_eq!(found_under("k3", &answer, "ada").unwrap(), []);
    }

    #[test]
    fn a_memory_of_another_user_is_not_taken() {
        let result = |user: Option<&str>| json!({"results": [{"id": "1", "memory": "m", "user_id": user, "score": 0.5}]});
        let mine = MemoryEntry { id: "1".into(), text: "m".into(), score: Some(0.5) };
        assert_eq!(found(&result(Some("ada")), "ada").unwrap(), std::slice::from_ref(&mine));
        assert_eq!(found(&result(None), "ada").unwrap(), [mine]);
        assert!(found(&result(Some("bob")), "ada").unwrap_err().contains("a memory of another user"));
    }
}
