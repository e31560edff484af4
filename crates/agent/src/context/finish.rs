//! The form of a turn's reply, and its validation.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use superstep_llm::{Message, ToolSpec, calls::ArgumentCheck, wire::behind_thinking};

use crate::{
    AgentOutcome, AgentState, ReactConfig,
    config::{Finish, FinishBy, OutputMode, prompts},
    repair::repaired_call,
    state::{AgentStateUpdate, LastAnswer, StopReason},
};

/// The finish tool's arguments: the text for the user, and the value if it is not an object.
const RESPONSE: &str = "response";
const RESULT: &str = "result";

/// The form of this turn's reply.
pub(crate) struct Finishing<'a> {
    finish: &'a Finish,
    schema: Option<&'a Value>,
}

/// A given reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Finished {
    /// The text for the user.
    reply: String,
    /// The structured value.
    output: Option<Value>,
}

/// The meaning of a text without tool calls.
pub(crate) enum TextMeaning {
    /// The end of the turn.
    Reply(Option<Value>),
    /// A call of the finish tool with these arguments.
    Call(String),
    /// Not a reply; with the message for the model.
    Wrong { problem: String, reminder: String },
}

impl<'a> Finishing<'a> {
    pub(crate) fn of(config: &'a ReactConfig, state: &'a AgentState) -> Self {
        Self {
            finish: &config.finish,
            schema: state.output_schema.as_ref().or(config.finish.schema.as_ref()),
        }
    }

    // Not in the registry: its parameters are those of the turn, and it needs no approval and counts neither as a step, nor for the
    // budget, nor as a loop.
    /// Returns the tool whose call ends the turn, if it ends that way.
    pub(crate) fn tool(&self) -> Option<ToolSpec> {
        let by_tool = match self.schema {
            Some(_) => self.finish.output == OutputMode::Tool,
            None => self.finish.by == FinishBy::Tool,
        };
        by_tool.then(|| ToolSpec {
            name: self.finish.tool.clone(),
            description: prompts::FINISH_TOOL.into(),
            parameters: parameters(self.schema),
        })
    }

    /// Returns the schema of a reply that is the text of a response, if the provider enforces it.
    pub(crate) fn of_text(&self) -> Option<Value> {
        self.schema.map(text_schema)
    }

    pub(crate) fn mode(&self) -> OutputMode {
        self.finish.output
    }

    /// Returns the reply of a finish tool call, or its problem. `None` for another tool.
    pub(crate) fn called(&self, name: &str, arguments: &str) -> Option<Result<Finished, String>> {
        let tool = self.tool().filter(|tool| tool.name == name)?;
        Some(read(&tool, arguments).map(|given| self.finished(given, None)))
    }

    /// Returns the meaning of a text without tool calls. `had_tools` is whether tools were offered.
    pub(crate) fn meaning(&self, text: &str, had_tools: bool) -> TextMeaning {
        let text = if self.schema.is_some() { without_thinking(text) } else { text };
        let tool = self.tool().filter(|_| had_tools);
        let Some(tool) = tool else {
            return match self.of_text() {
                None => TextMeaning::Reply(None),
                Some(schema) => match read_text(&spec("the reply", schema), text) {
                    Ok(given) => TextMeaning::Reply(self.finished(given, Some(text)).output),
                    Err(problem) => TextMeaning::Wrong { reminder: prompts::wrong_output(&problem), problem },
                },
            };
        };
        if text.trim().is_empty() && self.schema.is_none() {
            return TextMeaning::Reply(None);
        }
        // With a schema, only valid text is a reply: any prose would match one that requires nothing.
        let arguments = match self.schema {
            Some(_) => text.to_owned(),
            None => json!({ RESPONSE: text }).to_string(),
        };
        let as_call = read_text(&tool, &arguments).is_ok().then_some(arguments);
        match as_call.filter(|_| self.finish.convert_text) {
            Some(arguments) => TextMeaning::Call(arguments),
            None => TextMeaning::Wrong {
                problem: format!("a text instead of a call of `{}`", tool.name),
                reminder: prompts::call_finish(&tool.name),
            },
        }
    }

    /// Returns whether the reply has a schema.
    pub(crate) fn has_schema(&self) -> bool {
        self.schema.is_some()
    }

    /// Returns the value of a partial reply: a call's, or a text's.
    pub(crate) fn output(&self, given: Value, is_text: bool) -> Option<Value> {
        let is_there = !self.schema.is_some_and(wraps) || given.get(RESULT).is_some();
        if is_there { self.finished(given, is_text.then_some("")).output } else { None }
    }

    fn finished(&self, given: Value, text: Option<&str>) -> Finished {
        let Value::Object(mut fields) = given else { return Finished { reply: String::new(), output: None } };
        let own_response = self.schema.is_some_and(|schema| !wraps(schema) && has_field(schema, RESPONSE));
        let response = fields.get(RESPONSE).and_then(Value::as_str).map(str::to_owned);
        // A text has no separate `response` beside the fields.
        if !own_response && text.is_none() {
            fields.remove(RESPONSE);
        }
        let output = self.schema.map(|schema| {
            if wraps(schema) { fields.remove(RESULT).unwrap_or_default() } else { Value::Object(fields) }
        });
        let whole = || output.as_ref().map(Value::to_string).unwrap_or_default();
        Finished {
            reply: text.map(str::to_owned).or(response).unwrap_or_else(whole),
            output: output.filter(|output| !output.is_null()),
        }
    }
}

/// Returns the problem of a reply schema, as the end of a sentence that begins with it.
pub(crate) fn problem(schema: &Value) -> Option<String> {
    ArgumentCheck::new(&spec("the reply", text_schema(schema))).err()
}

/// Writes the result of a round with finish tool calls: `calls` has how each was read.
pub(crate) fn settle<'a>(
    finish: &Finish,
    state: &AgentState,
    calls: impl IntoIterator<Item = &'a Option<Result<Finished, String>>>,
    update: AgentStateUpdate,
) -> AgentStateUpdate {
    let (mut given, mut wrong, mut others) = (None, None, false);
    for read in calls {
        match read {
            Some(Ok(finished)) => given = given.or(Some(finished)),
            Some(Err(problem)) => wrong = wrong.or(Some(problem)),
            None => others = true,
        }
    }
    let before = state.answer;
    match (given, wrong) {
        (Some(Finished { reply, output }), _) => {
            let update = update
                .answer(LastAnswer { finished: true, ..before })
                .stop(true)
                .stop_reason(StopReason::Done);
            let update = update.final_reply(reply.clone()).output(output.clone()).output_problem("");
            // Giving the reply does not count as a step.
            if others { update } else { update.current_step(state.current_step) }
        }
        (None, Some(problem)) => {
            let answer = LastAnswer { invalid: before.invalid + 1, ..before };
            let update = update.answer(answer).output_problem(problem.clone());
            if answer.invalid > finish.retries {
                update.stop(true).stop_reason(AgentOutcome::InvalidOutput)
            } else {
                update
            }
        }
        (None, None) => update,
    }
}

/// Returns the name that a call means: the finish tool's, if it is nearly that and names are repaired.
pub(crate) fn meant<'a>(config: &'a ReactConfig, written: &'a str) -> &'a str {
    let finish = [&*config.finish.tool];
    repaired_call::name(finish, written).filter(|_| config.repair).unwrap_or(written)
}

/// Returns the text for the user of this message's finish tool call, even if the call is not valid.
pub(crate) fn response(config: &ReactConfig, message: &Message) -> Option<String> {
    let is_finish = |name: &str| meant(config, name) == config.finish.tool;
    let call = message.tool_calls.iter().find(|call| is_finish(&call.name))?;
    let arguments: Value = serde_json::from_str(&call.arguments).ok()?;
    arguments[RESPONSE].as_str().map(str::to_owned)
}

/// Returns the parameters of the finish tool.
fn parameters(schema: Option<&Value>) -> Value {
    let response = json!({ "type": "string", "description": prompts::FINISH_RESPONSE });
    let Some(schema) = schema else {
        return json!({ "type": "object", "properties": { RESPONSE: response }, "required": [RESPONSE] });
    };
    let mut schema = text_schema(schema);
    if !has_field(&schema, RESPONSE)
        && let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut)
    {
        fields.insert(RESPONSE.into(), response);
    }
    schema
}

/// Returns the schema as one of named fields: any other becomes the field `result`.
fn text_schema(schema: &Value) -> Value {
    if !wraps(schema) {
        return schema.clone();
    }
    let mut inner = schema.clone();
    let mut definitions = Map::new();
    if let Some(inner) = inner.as_object_mut() {
        // References that name the schema by its id become local: it is a part of another one now.
        let id = match inner.remove("$id") {
            Some(Value::String(id)) => id.trim_end_matches('#').to_owned(),
            _ => String::new(),
        };
        let named = ["$defs", "definitions"].into_iter();
        definitions.extend(named.filter_map(|name| Some((name.to_owned(), inner.remove(name)?))));
        let mut name = RESULT.to_owned();
        while definitions.get("$defs").is_some_and(|defs| defs.get(&name).is_some()) {
            name.push('_');
        }
        let (mut whole, place) = (Value::Object(inner.clone()), format!("#/$defs/{name}"));
        let defined = definitions.values_mut().filter_map(Value::as_object_mut).flat_map(Map::values_mut);
        if refer_all([&mut whole].into_iter().chain(defined), &id, &place) {
            let defs = definitions.entry("$defs").or_insert_with(|| Value::Object(Map::new()));
            // Anything else is not a schema, and rejected as such.
            if let Some(defs) = defs.as_object_mut() {
                defs.insert(name, whole);
                *inner = Map::from_iter([("$ref".to_owned(), place.into())]);
            }
        }
    }
    let mut outer = json!({ "type": "object", "properties": { RESULT: inner }, "required": [RESULT] });
    if let Some(outer) = outer.as_object_mut() {
        outer.extend(definitions);
    }
    outer
}

/// Rewrites references to the root, which may have an id, into ones to `place`, except those to its
/// definitions. Returns whether there were any.
fn refer(schema: &mut Value, id: &str, place: &str) -> bool {
    let fields = match schema {
        Value::Object(fields) => fields,
        Value::Array(schemas) => return refer_all(schemas, id, place),
        _ => return false,
    };
    let mut any = false;
    for (keyword, value) in fields {
        any |= match (keyword.as_str(), value) {
            ("$ref", Value::String(target)) => match local(target, id).map(str::to_owned) {
                Some(path) => {
                    let is_own = is_own(&path);
                    *target = format!("{}{path}", if is_own { place } else { "#" });
                    is_own
                }
                None => false,
            },
            // Not schemas, whatever they look like.
            ("const" | "enum" | "default" | "examples", _) => false,
            (
                "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions",
                Value::Object(by_name),
            ) => refer_all(by_name.values_mut(), id, place),
            (_, value) => refer(value, id, place),
        };
    }
    any
}

fn refer_all<'a>(schemas: impl IntoIterator<Item = &'a mut Value>, id: &str, place: &str) -> bool {
    let mut any = false;
    for schema in schemas {
        any |= refer(schema, id, place);
    }
    any
}

/// Returns the path of a reference into the schema with this id, or without one.
fn local<'a>(target: &'a str, id: &str) -> Option<&'a str> {
    match target.strip_prefix(id).unwrap_or(target) {
        "" => Some(""),
        within => within.strip_prefix('#'),
    }
}

/// Returns whether a path refers to the root itself, or to something in it that is not a definition.
fn is_own(path: &str) -> bool {
    let is_definition = path.starts_with("/$defs/") || path.starts_with("/definitions/");
    path.is_empty() || (path.starts_with('/') && !is_definition)
}

/// Returns whether the schema describes something else than an object with named fields. A map is included:
/// it may have any key, so nothing can be added beside them.
fn wraps(schema: &Value) -> bool {
    let names = schema.get("properties").and_then(Value::as_object).is_some_and(|fields| !fields.is_empty());
    let is_open = schema.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false));
    let is_object = schema.get("type").and_then(Value::as_str) == Some("object");
    !is_object || !names || is_open || schema.get("patternProperties").is_some()
}

fn has_field(schema: &Value, name: &str) -> bool {
    schema.get("properties").is_some_and(|fields| fields.get(name).is_some())
}

fn spec(name: &str, parameters: Value) -> ToolSpec {
    ToolSpec { name: name.to_owned(), description: String::new(), parameters }
}

/// Returns the text that may be JSON: without reasoning in tags before it. A tag behind its beginning is a part of it.
fn without_thinking(text: &str) -> &str {
    if text.trim_start().starts_with(['{', '"', '`']) { text } else { behind_thinking(text) }
}

/// Parses the value of a text, which may be fenced or otherwise wrapped.
fn read(spec: &ToolSpec, text: &str) -> Result<Value, String> {
    let check =
        ArgumentCheck::new(spec).map_err(|problem| format!("the schema of `{}` {problem}", spec.name))?;
    check.check(text).or_else(|error| {
        let unwrapped = repaired_call::arguments(text).and_then(|text| check.check(&text).ok());
        unwrapped.ok_or_else(|| error.to_string())
    })
}

/// Parses the value of a response. An empty one has no value, even if nothing is required; arguments may be
/// omitted.
fn read_text(spec: &ToolSpec, text: &str) -> Result<Value, String> {
    let given = read(spec, text)?;
    if text.trim().is_empty() { Err("expected an object, got nothing".into()) } else { Ok(given) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finishing<'a>(finish: &'a Finish, schema: Option<&'a Value>) -> Finishing<'a> {
        Finishing { finish, schema }
    }

    const FINISH: &str = "generate_response";

    fn given(reply: &str, output: Option<Value>) -> Option<Result<Finished, String>> {
        Some(Ok(Finished { reply: reply.into(), output }))
    }

    #[test]
    fn a_turn_without_a_schema_ends_with_a_response() {
        let finish = Finish { by: FinishBy::Tool, ..Finish::default() };
        let finishing = finishing(&finish, None);
        assert_eq!(finishing.called(FINISH, r#"{"response":"x"}"#), given("x", None));
        let missing = Some(Err("`response` is missing".to_owned()));
        assert_eq!(finishing.called(FINISH, "{}"), missing);
        assert_eq!(finishing.called("echo", "{}"), None);
        assert!(Finishing { finish: &Finish::default(), schema: None }.tool().is_none());
    }

    #[test]
    fn the_fields_of_a_schema_stand_beside_the_response() {
        let finish = Finish::default();
        let object =
            json!({"type":"object","properties":{"answer":{"type":"integer"}},"required":["answer"]});
        let finishing_object = finishing(&finish, Some(&object));
        let output = Some(json!({"answer": 42}));
        assert_eq!(
            finishing_object.called(FINISH, r#"{"response":"x","answer":42}"#),
            given("x", output.clone())
        );
        assert_eq!(finishing_object.called(FINISH, r#"{"answer":42}"#), given(r#"{"answer":42}"#, output));
        let problem = finishing_object.called(FINISH, r#"{"response":"x","answer":"many"}"#);
        assert_eq!(problem, Some(Err("`answer`: expected integer, got a string".into())));

        let own =
            json!({"type":"object","properties":{"response":{"type":"string"}},"required":["response"]});
        let read = finishing(&finish, Some(&own)).called(FINISH, r#"{"response":"x"}"#);
        assert_eq!(read, given("x", Some(json!({"response": "x"}))));
    }

    #[test]
    fn reasoning_before_a_reply_is_not_a_part_of_it() {
        let object = json!({"type":"object","properties":{"answer":{"type":"string"}},"required":["answer"]});
        let by = |output| Finish { output, ..Finish::default() };
        let read = |finish: &Finish, text: &str| match finishing(finish, Some(&object)).meaning(text, true) {
            TextMeaning::Reply(output) => output.map(|output| output.to_string()),
            TextMeaning::Call(arguments) => Some(arguments),
            TextMeaning::Wrong { .. } => None,
        };
        let wanted = r#"{"answer":"a</think>b"}"#;
        for output in [OutputMode::Native, OutputMode::Prompted, OutputMode::Tool] {
            let finish = by(output);
            for before in
                ["", "<think>{}</think>\n", "hm</think>", " <thinking>x</thinking>", "[THINK]x[/THINK] "]
            {
                assert_eq!(read(&finish, &format!("{before}{wanted}")).as_deref(), Some(wanted), "{before}");
            }
            for text in ["<think>hm</think>", "<think>hm", "<think>{\"answer\":\"a\"}"] {
                assert_eq!(read(&finish, text), None, "{text}");
            }
        }
    }

    #[test]
    fn a_schema_that_is_not_an_object_becomes_a_field_and_finds_its_definitions() {
        let finish = Finish::default();
        let list = json!({
            "type": "array", "items": {"$ref": "#/$defs/N"}, "$defs": {"N": {"type": "integer"}},
        });
        let finishing = finishing(&finish, Some(&list));
        assert_eq!(finishing.called(FINISH, r#"{"result":[1,2]}"#), given("[1,2]", Some(json!([1, 2]))));
        let problem = finishing.called(FINISH, r#"{"result":[1,"b"]}"#);
        assert_eq!(problem, Some(Err("`result.1`: expected integer, got a string".into())));
    }

    #[test]
    fn references_to_the_whole_schema_still_resolve_after_it_becomes_a_field() {
        // A tree of numbers in each notation: from the root, from a definition, by a path, and with the older
        // keywords.
        let tree = |of: Value| json!({"type": ["array", "integer"], "items": of});
        let n = json!({"type": "integer"});
        for schema in [
            tree(json!({"$ref": "#"})),
            json!({"anyOf": [n, {"$ref": "#/$defs/result"}], "$defs": {"result": {"type": "array", "items": {"$ref": "#"}}}}),
            json!({"anyOf": [n, {"type": "array", "items": {"anyOf": [{"$ref": "#/anyOf/0"}, {"$ref": "#/anyOf/1"}]}}]}),
            json!({"$ref": "#/definitions/t", "definitions": {"t": tree(json!({"$ref": "#/definitions/t"}))}}),
            json!({"$id": "urn:tree", "$ref": "#/$defs/t", "$defs": {"t": tree(json!({"$ref": "#/$defs/t"}))}}),
            json!({"$id": "urn:tree", "$ref": "urn:tree#/$defs/t", "$defs": {"t": tree(json!({"$ref": "urn:tree"}))}}),
        ] {
            let finish = Finish::default();
            let finishing = finishing(&finish, Some(&schema));
            let read = finishing.called(FINISH, r#"{"result":[1,[2,[]]]}"#);
            assert_eq!(read, given("[1,[2,[]]]", Some(json!([1, [2, []]]))), "{schema}");
            let wrong = finishing.called(FINISH, r#"{"result":[1,[2,["b"]]]}"#);
            assert!(matches!(wrong, Some(Err(_))), "{schema}: {wrong:?}");
        }
        // A value is not a reference, and a field may have any name.
        let schema = json!({
            "anyOf": [{"const": {"$ref": "#"}}, {"type": "object", "properties": {"default": {"$ref": "#"}}}],
        });
        let finish = Finish::default();
        let read =
            finishing(&finish, Some(&schema)).called(FINISH, r##"{"result":{"default":{"$ref":"#"}}}"##);
        assert_eq!(
            read.and_then(Result::ok).and_then(|read| read.output),
            Some(json!({"default": {"$ref": "#"}}))
        );
    }
}
