//! The requirements of one expected call.
//!
//! Start at [`Wanted`].

use std::{collections::BTreeMap, fmt, panic::Location};

use serde_json::Value;

use super::shown::{difference, quoted};

/// The requirements of a call, and the place in the test that has them.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    place: &'static Location<'static>,
    user: Option<Text>,
    results: Vec<(String, Text)>,
    tools: Option<Vec<String>>,
    system: Option<Text>,
}

/// A required text, or a part of one.
#[derive(Clone, Debug)]
struct Text {
    text: String,
    is_part: bool,
}

impl Text {
    fn fits(&self, got: &str) -> bool {
        if self.is_part { got.contains(&self.text) } else { got == self.text }
    }

    /// Writes the difference from a text that does not fit.
    fn differs(&self, what: &str, got: &str) -> String {
        match self.is_part {
            true => {
                format!("  {what}\n    expected … {} …\n    got      {}\n", quoted(&self.text), quoted(got))
            }
            false => difference(what, &self.text, got),
        }
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = quoted(&self.text);
        if self.is_part { write!(f, "… {text} …") } else { f.write_str(&text) }
    }
}

impl Wanted {
    pub(super) fn at(place: &'static Location<'static>) -> Self {
        Self { place, user: None, results: Vec::new(), tools: None, system: None }
    }

    pub(super) fn user(&mut self, text: String, is_part: bool) {
        self.user = Some(Text { text, is_part });
    }

    pub(super) fn result(&mut self, tool: String, text: String, is_part: bool) {
        self.results.push((tool, Text { text, is_part }));
    }

    pub(super) fn tools(&mut self, mut names: Vec<String>) {
        names.sort();
        self.tools = Some(names);
    }

    pub(super) fn system(&mut self, text: String) {
        self.system = Some(Text { text, is_part: true });
    }

    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.place.file(), self.place.line())
    }

    /// Compares the body of a request with the requirements.
    ///
    /// # Errors
    /// All differences.
    pub(super) fn compare(&self, body: &Value) -> Result<(), String> {
        let mut out = String::new();
        let messages = messages(body);
        if let Some(user) = &self.user {
            let last = messages.iter().rev().find(|message| message["role"] == "user");
            let got = last.map(content).unwrap_or_default();
            if !user.fits(&got) {
                out.push_str(&user.differs("user", &got));
            }
        }
        out.push_str(&self.compare_results(messages));
        if let Some(expected) = &self.tools {
            let mut got = tools(body);
            got.sort();
            if *expected != got {
                out.push_str(&difference("tools", &expected.join(", "), &got.join(", ")));
            }
        }
        if let Some(system) = &self.system {
            let instructions = messages.iter().filter(|message| is_system(message)).map(content);
            let got = instructions.collect::<Vec<_>>().join("\n");
            if !system.fits(&got) {
                out.push_str(&system.differs("system", &got));
            }
        }
        if out.is_empty() { Ok(()) } else { Err(out) }
    }

    fn compare_results(&self, messages: &[Value]) -> String {
        let (mut out, mut got) = (String::new(), results(messages));
        for (tool, text) in &self.results {
            let fits = |(of, result): &(String, String)| of == tool && text.fits(result);
            if let Some(found) = got.iter().position(fits) {
                got.remove(found);
                continue;
            }
            let what = format!("result of {tool}");
            match got.iter().position(|(of, _)| of == tool) {
                Some(other) => out.push_str(&text.differs(&what, &got.remove(other).1)),
                None => out.push_str(&format!("  {what}\n    expected {text}\n    got      none\n")),
            }
        }
        out
    }
}

/// The requirements in one line.
impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.user.as_ref().map(|text| format!("user {text}")));
        parts.extend(self.results.iter().map(|(tool, text)| format!("result of {tool} {text}")));
        parts.extend(self.tools.as_ref().map(|names| format!("tools {}", names.join(", "))));
        parts.extend(self.system.as_ref().map(|text| format!("system {text}")));
        if parts.is_empty() { f.write_str("any conversation") } else { f.write_str(&parts.join("; ")) }
    }
}

pub(super) fn messages(body: &Value) -> &[Value] {
    body["messages"].as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn is_system(message: &Value) -> bool {
    message["role"] == "system" || message["role"] == "developer"
}

/// Returns the text of a message, and of the text parts of one with several parts.
pub(super) fn content(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// Returns the names of the offered tools.
pub(super) fn tools(body: &Value) -> Vec<String> {
    let tools = body["tools"].as_array().into_iter().flatten();
    tools.filter_map(|tool| tool["function"]["name"].as_str()).map(str::to_owned).collect()
}

/// Returns the names of tools by the ids of their calls.
pub(super) fn called(messages: &[Value]) -> BTreeMap<&str, &str> {
    let calls = messages.iter().flat_map(|message| message["tool_calls"].as_array().into_iter().flatten());
    calls.filter_map(|call| Some((call["id"].as_str()?, call["function"]["name"].as_str()?))).collect()
}

/// Returns the results after the last message of the model, each with the name of its tool.
fn results(messages: &[Value]) -> Vec<(String, String)> {
    let called = called(messages);
    let last = messages.iter().rposition(|message| message["role"] == "assistant").unwrap_or_default();
    let results = messages[last..].iter().filter(|message| message["role"] == "tool");
    let named = results.map(|result| {
        let tool = result["tool_call_id"].as_str().and_then(|id| called.get(id));
        (tool.copied().unwrap_or("?").to_owned(), content(result))
    });
    named.collect()
}
