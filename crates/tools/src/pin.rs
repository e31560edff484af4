//! `pin`: what the model keeps although earlier messages are left out.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use superstep_llm::{FnTool, Tool, ToolCx, ToolError, ToolReply, ToolSpec, tool_fn};

use crate::call::{REPEATABLE, one_line};

const MAX_NAME_BYTES: usize = 60;
const MAX_TEXT_BYTES: usize = 2_000;

#[derive(JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pin {
    /// A short name, such as `deadline`. A pin with the same name replaces it.
    name: String,
    /// The kind of text.
    kind: Kind,
    /// The text to keep, complete by itself.
    text: String,
}

// Rules are the user's.
#[derive(JsonSchema, Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Goal,
    Preference,
    Fact,
}

/// The tool `pin{name, kind, text}`: keeps a goal, a preference of the user or a fact word for word when earlier messages are left
/// out. Its pins are in the agent's state, under ids that replace no pin of the user; rules cannot be pinned by it.
pub fn pin() -> impl Tool {
    let spec = ToolSpec::of::<Pin>(
        "pin",
        "Keeps a goal, a preference of the user or a fact word for word for the whole conversation, also when earlier \
         messages are left out. Use it for what must not be forgotten, with few words.",
    );
    let tool: FnTool<Pin, _> = tool_fn(spec, |args: Pin, _: ToolCx| async move { pinned(&args) });
    tool.with_behaviour(REPEATABLE).with_changes_files(false)
}

fn pinned(Pin { name, kind, text }: &Pin) -> Result<ToolReply, ToolError> {
    for (field, text, most) in [("name", name, MAX_NAME_BYTES), ("text", text, MAX_TEXT_BYTES)] {
        if text.trim().is_empty() || text.len() > most {
            let problem = format!("`{field}` has from 1 to {most} bytes, got {}", text.len());
            return Err(ToolError::InvalidArguments(problem));
        }
    }
    let kind = match kind {
        Kind::Goal => "goal",
        Kind::Preference => "preference",
        Kind::Fact => "fact",
    };
    let id = format!("model:{}", one_line(name.trim()));
    let pin = json!({"id": id, "kind": kind, "text": text.trim(), "source": "model"});
    Ok(ToolReply::text(format!("Pinned `{}`.", one_line(name.trim()))).with_update(json!({"pins": [pin]})))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{call, refusal};

    #[tokio::test]
    async fn a_pin_is_of_the_model_and_no_rule() {
        let reply =
            pinned(&Pin { name: " end\n".into(), kind: Kind::Fact, text: " Friday ".into() }).unwrap();
        let update =
            json!({"pins": [{"id": "model:end", "kind": "fact", "text": "Friday", "source": "model"}]});
        assert_eq!((reply.text.as_str(), reply.update), ("Pinned `end`.", Some(update)));
        assert_eq!(call(&pin(), json!({"name": "a", "kind": "goal", "text": "b"})).await, "Pinned `a`.");
        let rule = refusal(&pin(), json!({"name": "a", "kind": "rule", "text": "b"})).await;
        assert!(rule.contains("unknown variant `rule`"), "{rule}");
        let long = "x".repeat(2_001);
        let long = refusal(&pin(), json!({"name": "a", "kind": "goal", "text": long})).await;
        assert_eq!(long, "`text` has from 1 to 2000 bytes, got 2001");
    }
}
