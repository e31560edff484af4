//! Servers' messages whose optional or descriptive fields are missing or invalid, which must not void the rest.

use rmcp::model::{InitializeResult, ProtocolVersion, ServerCapabilities};
use serde_json::{Map, Value, json};

/// The fields of a log record that may have its text, if `data` is missing.
const TEXTS: [&str; 2] = ["message", "msg"];

/// Reads the result of `initialize`; `None` if it is another result.
pub(crate) fn initialized(result: &Value) -> Option<InitializeResult> {
    let has = |field: &str| result.get(field).is_some();
    if !(has("protocolVersion") || has("serverInfo")) || has("content") {
        return None;
    }
    let mut mended = Map::new();
    let version =
        result["protocolVersion"].as_str().unwrap_or(ProtocolVersion::LATEST_WITH_INITIALIZE.as_str());
    mended.insert("protocolVersion".to_owned(), version.into());
    let capabilities: ServerCapabilities =
        serde_json::from_value(result["capabilities"].clone()).unwrap_or_default();
    let info = |field: &str| result["serverInfo"][field].as_str().unwrap_or_default();
    mended.insert("serverInfo".to_owned(), json!({ "name": info("name"), "version": info("version") }));
    if let Some(instructions) = result["instructions"].as_str() {
        mended.insert("instructions".to_owned(), instructions.into());
    }
    mended.insert("capabilities".to_owned(), json!({}));
    let mut read: InitializeResult = serde_json::from_value(Value::Object(mended)).ok()?;
    read.capabilities = capabilities;
    Some(read)
}

/// Completes a notification of a server: a log record with a level or a text of its own.
pub(crate) fn notification(message: &mut Map<String, Value>) {
    if message.get("method").and_then(Value::as_str) != Some("notifications/message") {
        return;
    }
    let Some(Value::Object(params)) = message.get_mut("params") else { return };
    let level = params.get("level").and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
    let level = match level.as_str() {
        "debug" | "info" | "notice" | "warning" | "error" | "critical" | "alert" | "emergency" => &level,
        "trace" | "verbose" => "debug",
        "warn" => "warning",
        "err" => "error",
        "fatal" | "panic" => "critical",
        _ => "info",
    };
    params.insert("level".to_owned(), level.into());
    if !params.contains_key("data") {
        let text = TEXTS.iter().find_map(|text| params.remove(*text)).unwrap_or_default();
        params.insert("data".to_owned(), text);
    }
    if !params.get("logger").is_none_or(Value::is_string) {
        params.remove("logger");
    }
}

/// Mends the schema of a tool's arguments where its meaning is clear: the type of arguments left out or written otherwise, forms
/// of older drafts, and `null` for what is left out. Other schemas are not changed.
pub(crate) fn schema(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    let is_object = match fields.get("type") {
        None | Some(Value::Null) => !["$ref", "not"].iter().any(|field| fields.contains_key(*field)),
        Some(Value::Array(types)) => types.contains(&"object".into()),
        Some(_) => false,
    };
    if is_object {
        fields.insert("type".to_owned(), "object".into());
    }
    subschema(schema, true);
}

fn subschema(schema: &mut Value, is_root: bool) {
    let Value::Object(fields) = schema else { return };
    if let Some(Value::String(kind)) = fields.get_mut("type") {
        kind.make_ascii_lowercase();
    }
    if !is_root {
        fields.remove("$schema");
    }
    if !fields.get("required").is_none_or(Value::is_array) {
        fields.remove("required");
    }
    for (exclusive, limit) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        if let Some(Value::Bool(is_exclusive)) = fields.get(exclusive).cloned() {
            fields.remove(exclusive);
            if let Some(limit) = Some(limit).filter(|_| is_exclusive).and_then(|limit| fields.remove(limit)) {
                fields.insert(exclusive.to_owned(), limit);
            }
        }
    }
    for named in ["properties", "patternProperties", "$defs", "definitions"] {
        match fields.get_mut(named) {
            Some(Value::Null) => drop(fields.remove(named)),
            Some(Value::Object(named)) => named.values_mut().for_each(|each| subschema(each, false)),
            _ => {}
        }
    }
    for inner in ["items", "additionalProperties", "not", "if", "then", "else", "contains"] {
        if let Some(inner) = fields.get_mut(inner) {
            subschema(inner, false);
        }
    }
    for several in ["items", "anyOf", "oneOf", "allOf", "prefixItems"] {
        if let Some(Value::Array(several)) = fields.get_mut(several) {
            several.iter_mut().for_each(|each| subschema(each, false));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_begins_whatever_is_missing_in_its_description() {
        for (result, wanted) in [
            (json!({"protocolVersion": "2024-11-05", "capabilities": {"tools": true}}), "2024-11-05"),
            (
                json!({"protocolVersion": 20_250_618, "capabilities": {}, "serverInfo": {"name": "s"}}),
                "2025-11-25",
            ),
            (json!({"serverInfo": null, "instructions": 7}), "2025-11-25"),
        ] {
            let read = initialized(&result).unwrap();
            assert_eq!(read.protocol_version.as_str(), wanted, "{result}");
        }
        assert!(initialized(&json!({"content": [], "serverInfo": {}})).is_none());
    }

    #[test]
    fn a_log_record_has_a_level_of_the_protocol_and_a_text() {
        for (params, wanted) in [
            (json!({"level": "warn", "data": "x"}), json!({"level": "warning", "data": "x"})),
            (json!({"level": "loud", "msg": "x", "logger": 7}), json!({"level": "info", "data": "x"})),
        ] {
            let mut message = Map::new();
            message.insert("method".to_owned(), "notifications/message".into());
            message.insert("params".to_owned(), params);
            notification(&mut message);
            assert_eq!(message["params"], wanted);
        }
    }

    #[test]
    fn a_schema_of_clear_meaning_is_mended() {
        for (mut given, wanted) in [
            (json!({}), json!({"type": "object"})),
            (json!({"type": ["object", "null"], "required": null}), json!({"type": "object"})),
            (
                json!({"type": "Object", "properties": {"required": {"type": "String", "required": true, "$schema": "x"}}}),
                json!({"type": "object", "properties": {"required": {"type": "string"}}}),
            ),
            (
                json!({"properties": {"n": {"type": "number", "minimum": 0, "exclusiveMinimum": true}}}),
                json!({"type": "object", "properties": {"n": {"type": "number", "exclusiveMinimum": 0}}}),
            ),
            (json!({"$ref": "#"}), json!({"$ref": "#"})),
            (json!({"type": "string"}), json!({"type": "string"})),
        ] {
            schema(&mut given);
            assert_eq!(given, wanted);
        }
    }
}
