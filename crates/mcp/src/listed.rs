//! The list of a server's tools, each of which is parsed independently.

use std::collections::BTreeSet;

use rmcp::{
    model::{ClientRequest, CustomResult, ErrorCode, ListToolsRequest, PaginatedRequestParams, ServerResult},
    service::ServiceError,
};
use serde_json::{Value, json};

use crate::{
    connection::Connection,
    content, mend,
    message::{self, MAX_VALUES},
};

/// The maximum number of tools of a server; models cannot choose among more.
const MAX_TOOLS: usize = 1_000;

/// The maximum size of a tool's schema, in bytes.
const MAX_SCHEMA_BYTES: usize = 64 << 10;

/// The maximum size of all tools' schemas together, in bytes.
const MAX_SCHEMAS_BYTES: usize = 4 << 20;

/// The maximum size of a name, also of the excerpt of a longer one, in bytes.
const MAX_NAME_LENGTH: usize = 200;

/// The maximum number of characters of a tool's description.
const MAX_DESCRIPTION_LENGTH: usize = 8_000;

/// A tool as its server describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) schema: Value,
    pub(crate) hints: Hints,
}

/// The server's hints about a tool's behaviour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hints {
    /// `true` if it is read-only.
    pub(crate) only_reads: bool,
    /// `true` if a repeated call with the same arguments has no further effect.
    pub(crate) idempotent: bool,
}

/// A tool of the list that cannot be used.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Unusable {
    pub(crate) name: String,
    pub(crate) why: String,
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "tool `{}` cannot be used: {}", self.name, self.why)
    }
}

/// Requests all tools, page by page.
pub(crate) async fn list(connection: &Connection) -> Result<Vec<Result<Listed, Unusable>>, String> {
    let (mut tools, mut cursor) = (Vec::new(), None::<String>);
    let (mut cursors, mut bytes, mut values) = (BTreeSet::new(), 0, 0);
    loop {
        let param = PaginatedRequestParams::default().with_cursor(cursor.clone());
        let request = ListToolsRequest::with_param(param);
        let page = connection.send_request(ClientRequest::ListToolsRequest(request)).await;
        let mut page = raw(page
            .or_else(|error| match error {
                // A server without tools, whatever it declares.
                ServiceError::McpError(error)
                    if error.code == ErrorCode::METHOD_NOT_FOUND && cursor.is_none() =>
                {
                    Ok(ServerResult::CustomResult(CustomResult(json!({ "tools": [] }))))
                }
                error => Err(error),
            })
            .map_err(|error| match error {
                ServiceError::McpError(error) => error.message.into_owned(),
                // Its text has the name of a type.
                ServiceError::TransportSend(error) => error.error.to_string(),
                ServiceError::TransportClosed => "it ended".to_owned(),
                other => other.to_string(),
            })?);
        let Some(Value::Array(listed)) = page.get_mut("tools").map(Value::take) else {
            return Err("`tools` of its answer is not a list".to_owned());
        };
        if tools.len() + listed.len() > MAX_TOOLS {
            return Err(format!("it has more than {MAX_TOOLS}"));
        }
        let hide = |text: String| connection.service().notifications().without_variables(text);
        for listed in listed.into_iter().map(|listed| tool(listed, &hide)) {
            if let Ok(tool) = &listed {
                let schema = tool.schema.to_string();
                (bytes, values) = (bytes + schema.len(), values + message::values(schema.as_bytes()));
            }
            if bytes > MAX_SCHEMAS_BYTES {
                return Err(format!("their schemas have more than {MAX_SCHEMAS_BYTES} bytes"));
            }
            if values > MAX_VALUES {
                return Err(format!("their schemas have more than {MAX_VALUES} values"));
            }
            if !tools.contains(&listed) {
                tools.push(listed);
            }
        }
        cursor = match page["nextCursor"].take() {
            Value::String(cursor) => Some(cursor),
            Value::Number(cursor) => Some(cursor.to_string()),
            _ => None,
        };
        match &cursor {
            // A cursor that was used before does not advance: some servers never end their list.
            Some(next) if cursors.insert(next.clone()) => {}
            _ => return Ok(tools),
        }
        if cursors.len() > MAX_TOOLS {
            return Err(format!("they are on more than {MAX_TOOLS} pages"));
        }
    }
}

/// Returns a result as the server wrote it.
pub(crate) fn raw(result: ServerResult) -> Value {
    match result {
        ServerResult::CustomResult(result) => result.0,
        other => serde_json::to_value(other).expect("it was JSON"),
    }
}

/// Reads one tool. `hide` hides the secrets of the configuration in its description.
fn tool(mut tool: Value, hide: &dyn Fn(String) -> String) -> Result<Listed, Unusable> {
    let unusable = |name: &Value, why: String| {
        let name = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
        Err(Unusable { name: content::cut(name, MAX_NAME_LENGTH), why })
    };
    let name = tool.get_mut("name").map(Value::take).unwrap_or_default();
    let Value::String(name) = name else {
        return unusable(&name, "its `name` is not a text".to_owned());
    };
    if name.len() > MAX_NAME_LENGTH {
        let why = format!("its name has {} bytes, of {MAX_NAME_LENGTH} at most", name.len());
        return unusable(&name.into(), why);
    }
    let mut schema = tool.get_mut("inputSchema").map(Value::take).unwrap_or_default();
    mend::schema(&mut schema);
    let size = schema.to_string().len();
    if !schema.is_object() {
        return unusable(&name.into(), "its `inputSchema` is not an object".to_owned());
    }
    if size > MAX_SCHEMA_BYTES {
        return unusable(&name.into(), format!("its schema has {size} bytes, of {MAX_SCHEMA_BYTES} at most"));
    }
    let text = |field: &str| tool[field].as_str().filter(|text| !text.is_empty());
    let description = text("description").or(text("title")).unwrap_or_default();
    let description = hide(description.to_owned()).chars().take(MAX_DESCRIPTION_LENGTH).collect();
    let hint = |hint: &str| tool["annotations"][hint] == Value::Bool(true);
    let hints = Hints { only_reads: hint("readOnlyHint"), idempotent: hint("idempotentHint") };
    Ok(Listed { name, description, schema, hints })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(one: Value) -> String {
        match tool(one, &|text| text) {
            Ok(tool) => format!("{} {:?} {}", tool.name, tool.description, tool.hints.only_reads),
            Err(unusable) => unusable.to_string(),
        }
    }

    #[test]
    fn a_name_and_a_description_have_bounds() {
        let long = json!({"name": "a".repeat(201), "inputSchema": {}});
        let wanted = format!(
            "tool `{}\n[truncated 1 bytes]` cannot be used: its name has 201 bytes, of 200 at most",
            "a".repeat(200)
        );
        assert_eq!(read(long), wanted);
        let long = json!({"name": "a", "inputSchema": {}, "description": "é".repeat(9_000)});
        let told = tool(long, &|text| text).unwrap();
        assert_eq!(told.description.chars().count(), MAX_DESCRIPTION_LENGTH);
    }

    #[test]
    fn each_tool_is_parsed_separately_and_unused_fields_may_be_invalid() {
        let odd = json!({
            "name": "a", "title": "A", "description": 7, "inputSchema": {}, "outputSchema": null, "icons": 1,
            "annotations": {"readOnlyHint": "yes"},
        });
        assert_eq!(read(odd), r#"a "A" false"#);
        for schema in [json!(null), json!(true), json!("object"), json!([])] {
            let wanted = "tool `a` cannot be used: its `inputSchema` is not an object";
            assert_eq!(read(json!({"name": "a", "inputSchema": schema})), wanted);
        }
        assert_eq!(read(json!({"name": "a"})), "tool `a` cannot be used: its `inputSchema` is not an object");
        assert_eq!(read(json!({"inputSchema": {}})), "tool `null` cannot be used: its `name` is not a text");
        assert_eq!(read(json!(7)), "tool `null` cannot be used: its `name` is not a text");
    }
}
