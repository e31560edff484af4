//! The messages of a request, one after the other.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Problems, Rules, array, text};

pub(super) fn check(rules: &Rules, body: &Value, found: &mut Problems) {
    let messages = array(body, "messages");
    if messages.is_empty() {
        return found.add("messages", "is empty");
    }
    let is_system = |message: &Value| matches!(text(message, "role"), "system" | "developer");
    let begins = messages.iter().take_while(|message| is_system(message)).count();
    if begins == messages.len() {
        found.add("messages", "has nothing but instructions");
    }
    // Calls without results so far, and all calls before.
    let mut open: Vec<&str> = Vec::new();
    let mut called = BTreeSet::new();
    let mut before = "";
    for (at, message) in messages.iter().enumerate().skip(begins) {
        let place = format!("messages[{at}]");
        let role = text(message, "role");
        if is_system(message) {
            found.add(&place, "instructions in the middle of the conversation");
        }
        if role == "tool" {
            let id = text(message, "tool_call_id");
            match open.iter().position(|call| *call == id) {
                Some(call) => drop(open.remove(call)),
                None if called.contains(id) => {
                    found.add(&place, format_args!("a second result of the call `{id}`"));
                }
                None => found.add(&place, format_args!("a result of `{id}` without a call")),
            }
        } else if !open.is_empty() {
            found.add(&place, format_args!("comes before the result of the call `{}`", open.join("`, `")));
            open.clear();
        }
        for call in array(message, "tool_calls") {
            let id = text(call, "id");
            open.push(id);
            if !called.insert(id) {
                found.add(&place, format_args!("two calls of the conversation have the id `{id}`"));
            }
        }
        if rules.alternates {
            alternates(&place, before, role, found);
        }
        before = role;
    }
    if rules.alternates && before == "assistant" {
        found.add("messages", "the last message is the assistant's, so there is nothing to answer");
    }
    if !open.is_empty() {
        found.add("messages", format_args!("the call `{}` has no result at the end", open.join("`, `")));
    }
    if rules.needs_tools && !called.is_empty() && body.get("tools").is_none() {
        found.add("tools", "is missing, and there are calls in the conversation");
    }
}

fn alternates(place: &str, before: &str, role: &str, found: &mut Problems) {
    match (before, role) {
        ("", "user") => {}
        ("", _) => found.add(place, format_args!("`{role}` begins the conversation, not the user")),
        ("user", "user") | ("assistant", "assistant") => {
            found.add(place, format_args!("`{role}` speaks twice in a row"));
        }
        _ => {}
    }
}
