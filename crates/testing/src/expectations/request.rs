//! The requirements of one expected call.
//!
//! Start at [`Wanted`].

use std::{fmt, panic::Location};

use serde_json::Value;

use super::{
    body::{content, is_system, messages, results, tools},
    shown::{difference, quoted},
};

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
        if self.is_part {
            format!("  {what}\n    expected … {} …\n    got      {}\n", quoted(&self.text), quoted(got))
        } else {
            difference(what, &self.text, got)
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
    pub(crate) fn at(place: &'static Location<'static>) -> Self {
        Self { place, user: None, results: Vec::new(), tools: None, system: None }
    }

    pub(crate) fn user(&mut self, text: String, is_part: bool) {
        self.user = Some(Text { text, is_part });
    }

    pub(crate) fn result(&mut self, tool: String, text: String, is_part: bool) {
        self.results.push((tool, Text { text, is_part }));
    }

    pub(crate) fn tools(&mut self, mut names: Vec<String>) {
        names.sort();
        self.tools = Some(names);
    }

    pub(crate) fn system(&mut self, text: String) {
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
