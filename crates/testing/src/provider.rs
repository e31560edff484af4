//! The request rules of chat-completions providers, so that tests reject invalid requests first.
//!
//! Start at [`Rules::check`].

mod conversation;
mod shape;

use std::{collections::BTreeSet, fmt};

use serde_json::Value;

/// A provider's deviations from the common rules.
///
/// The default is as strict as the strictest provider for each rule. A [`ScriptedModel`] and a [`WireServer`]
/// check every request against it, and answer violations like providers, with a 400.
///
/// [`ScriptedModel`]: crate::scripted::ScriptedModel
/// [`WireServer`]: crate::wire::WireServer
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Accepts calls with any text as their name and arguments, as
    /// [`WirePolicy::Verbatim`](superstep_llm::wire::WirePolicy::Verbatim) sends them.
    pub verbatim: bool,
    /// Requires a tool list in a conversation with tool calls, even if no tool may be called any more.
    pub needs_tools: bool,
    /// Requires that users and assistants take turns, beginning with the user and not ending with the
    /// assistant. Chat templates of small models require it.
    pub alternates: bool,
    /// Rejects `stream_options`, as Cohere does.
    pub no_stream_options: bool,
    /// Fields of the body that only this provider accepts.
    pub extra_fields: BTreeSet<String>,
    /// Disables all checks, for tests of deliberately invalid requests.
    pub anything: bool,
}

impl Rules {
    /// Creates rules that accept every request.
    pub fn anything() -> Self {
        Self { anything: true, ..Self::default() }
    }

    /// Checks the body of a request against the rules.
    ///
    /// It checks the fields and their types, the roles and their order, that each assistant message has text
    /// or calls, that each tool call is directly followed by one result and each result has a call before it,
    /// the ids of calls and the names and schemas of tools.
    ///
    /// ```
    /// use serde_json::json;
    /// use superstep_testing::provider::Rules;
    ///
    /// let call = json!({"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}});
    /// let body = json!({"model": "m", "messages": [
    ///     {"role": "user", "content": "2+3?"},
    ///     {"role": "assistant", "content": null, "tool_calls": [call]},
    ///     {"role": "user", "content": "Well?"},
    /// ]});
    /// let refused = Rules::default().check(&body).unwrap_err();
    /// assert_eq!(refused.to_string(), "messages[2]: comes before the result of the call `c1`");
    /// ```
    ///
    /// # Errors
    /// All violations, in the order of the body.
    pub fn check(&self, body: &Value) -> Result<(), Refused> {
        if self.anything {
            return Ok(());
        }
        let mut found = Problems::default();
        shape::check(self, body, &mut found);
        conversation::check(self, body, &mut found);
        if found.0.is_empty() { Ok(()) } else { Err(Refused { problems: found.0 }) }
    }
}

/// A request that a provider would reject.
#[derive(Clone, PartialEq, Eq)]
pub struct Refused {
    /// The violations, each with its place.
    pub problems: Vec<String>,
}

superstep_graph::__private::debug_by_chain!(Refused);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problems.join("; "))
    }
}

impl std::error::Error for Refused {}

#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn add(&mut self, place: &str, problem: impl fmt::Display) {
        self.0.push(format!("{place}: {problem}"));
    }
}

/// Returns the elements of an array field; empty for other types.
fn array<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

/// Returns the text of a field; empty if it does not exist.
fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn user() -> Value {
        json!({"role": "user", "content": "u"})
    }

    fn says(text: &str) -> Value {
        json!({"role": "assistant", "content": text})
    }

    fn calls(calls: &[(&str, &str, &str)]) -> Value {
        let call = |(id, name, arguments): &(&str, &str, &str)| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        json!({"role": "assistant", "content": null, "tool_calls": calls.iter().map(call).collect::<Vec<_>>()})
    }

    fn result(id: &str) -> Value {
        json!({"role": "tool", "tool_call_id": id, "content": "r"})
    }

    fn problems(rules: &Rules, messages: &[Value]) -> String {
        let body = json!({"model": "m", "messages": messages, "stream": true});
        rules.check(&body).err().map(|refused| refused.to_string()).unwrap_or_default()
    }

    #[test]
    fn requests_valid_for_all_providers_are_accepted() {
        let add = ("c1", "add", r#"{"a":2}"#);
        let echo = ("c2", "echo", "{}");
        for messages in [
            vec![user()],
            vec![json!({"role": "system", "content": "s"}), user(), says("a"), user()],
            vec![user(), calls(&[add, echo]), result("c1"), result("c2"), says("a")],
            // In any order, as one preset stores them.
            vec![user(), calls(&[add, echo]), result("c2"), result("c1")],
            vec![user(), user()],
            vec![user(), json!({"role": "assistant", "content": "a", "reasoning_content": "hm"})],
            vec![json!({"role": "user", "content": [{"type": "text", "text": "u"}]})],
        ] {
            assert_eq!(problems(&Rules::default(), &messages), "", "{messages:?}");
        }
    }

    #[test]
    fn invalid_requests_are_rejected_with_the_place() {
        let one = ("c1", "add", "{}");
        for (messages, problem) in [
            (vec![], "messages: is empty"),
            (vec![json!({"role": "system", "content": "s"})], "messages: has nothing but instructions"),
            (
                vec![user(), json!({"role": "system", "content": "s"})],
                "messages[1]: instructions in the middle",
            ),
            (vec![json!({"role": "function", "content": "s"})], "messages[0]: \"function\" is not a role"),
            (
                vec![json!({"role": "user", "content": null})],
                "messages[0]: the content of role `user` cannot be null",
            ),
            (
                vec![json!({"role": "user", "content": "u", "id": "m1"})],
                "messages[0]: `id` is not a field of a message",
            ),
            (vec![user(), says("")], "messages[1]: an assistant message without content and calls"),
            (vec![user(), calls(&[])], "messages[1]: an assistant message without"),
            (vec![user(), result("c1")], "messages[1]: a result of `c1` without a call"),
            (vec![user(), calls(&[one])], "messages: the call `c1` has no result at the end"),
            (vec![user(), calls(&[one]), user()], "messages[2]: comes before the result of the call `c1`"),
            (vec![user(), calls(&[one]), says("a"), result("c1")], "messages[2]: comes before the result"),
            (
                vec![user(), calls(&[one]), result("c1"), result("c1")],
                "messages[3]: a second result of the call `c1`",
            ),
            (
                vec![user(), calls(&[one, one]), result("c1"), result("c1")],
                "messages[1]: two calls of the conversation",
            ),
            (
                vec![user(), calls(&[one]), result("c1"), calls(&[one]), result("c1")],
                "messages[3]: two calls",
            ),
            (
                vec![user(), calls(&[("", "add", "{}")]), result("")],
                "messages[1].tool_calls[0]: a call without an id",
            ),
            (
                vec![user(), calls(&[("c", "", "{}")]), result("c")],
                "messages[1].tool_calls[0]: \"\" is not a tool name",
            ),
            (
                vec![user(), calls(&[("c", "a b", "{}")]), result("c")],
                "messages[1].tool_calls[0]: \"a b\" is not a tool name",
            ),
            (
                vec![user(), calls(&[("c", "add", "{x:1")]), result("c")],
                "messages[1].tool_calls[0]: the arguments \"{x:1\" are not valid JSON",
            ),
            (
                vec![user(), calls(&[("c", "add", "[1]")]), result("c")],
                "messages[1].tool_calls[0]: the arguments \"[1]\" are not a JSON object",
            ),
        ] {
            let found = problems(&Rules::default(), &messages);
            assert!(found.starts_with(problem), "{found} / {problem}");
        }
    }

    #[test]
    fn some_providers_refuse_more() {
        let alternates = Rules { alternates: true, ..Rules::default() };
        assert_eq!(problems(&alternates, &[user(), says("a"), user()]), "");
        assert_eq!(problems(&alternates, &[user(), user()]), "messages[1]: `user` speaks twice in a row");
        assert_eq!(
            problems(&alternates, &[says("a"), user()]),
            "messages[0]: `assistant` begins the conversation, not the user"
        );
        let needs_tools = Rules { needs_tools: true, ..Rules::default() };
        let round = [user(), calls(&[("c1", "add", "{}")]), result("c1")];
        assert_eq!(
            problems(&needs_tools, &round),
            "tools: is missing, and there are calls in the conversation"
        );
        let broken = [user(), calls(&[("c1", "add", "{x:1")]), result("c1")];
        let verbatim = Rules { verbatim: true, ..Rules::default() };
        assert_eq!(problems(&verbatim, &broken), "");
        assert_eq!(problems(&Rules::anything(), &[]), "");
    }

    #[test]
    fn tools_and_fields_are_checked() {
        let tool = |name: &str, parameters: Value| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
        let object =
            || json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
        for (field, value, problem) in [
            ("tools", json!([tool("add", object())]), ""),
            ("tools", json!([]), "tools: is empty; leave it out"),
            (
                "tools",
                json!([tool("add", object()), tool("add", object())]),
                "tools[1]: two tools are named `add`",
            ),
            ("tools", json!([tool("a.b", object())]), "tools[0]: \"a.b\" is not a tool name"),
            ("tools", json!([tool("add", json!({"type": "string"}))]), "tools[0]: its parameters have no"),
            (
                "tools",
                json!([tool("add", json!({"type": "object", "properties": []}))]),
                "tools[0]: its properties cannot be []",
            ),
            (
                "tools",
                json!([tool("add", json!({"type": "object", "required": "a"}))]),
                "tools[0]: its required parameters cannot",
            ),
            ("tool_choice", json!("none"), "tool_choice: is given without tools"),
            ("stream_options", json!({}), "stream_options: is for streams only"),
            ("temperature", json!("warm"), "temperature: cannot be \"warm\""),
            ("top_k", json!(1), "top_k: is not a field of a request"),
        ] {
            let mut body = json!({"model": "m", "messages": [user()]});
            body[field] = value;
            let found =
                Rules::default().check(&body).err().map(|refused| refused.to_string()).unwrap_or_default();
            assert!(
                found.starts_with(problem) && found.is_empty() == problem.is_empty(),
                "{found} / {problem}"
            );
        }
        let known = Rules { extra_fields: ["top_k".to_owned()].into(), ..Rules::default() };
        assert_eq!(known.check(&json!({"model": "m", "messages": [user()], "top_k": 1})), Ok(()));
        assert!(Rules::default().check(&json!([])).is_err());
    }
}
