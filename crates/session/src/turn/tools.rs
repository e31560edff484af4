//! The choice of the agent's tools, by name or by group.

use std::{path::Path, sync::Arc};

use serde_json::Value;
use superstep::{
    agent::config::PermissionRule,
    clock::{Clock, SystemClock},
    llm::Tool,
    tools::ToolSettings,
};

use crate::{
    config::{configuration::Configuration, tools::group},
    error::SessionError,
};

/// Returns the chosen tools; all of them without a choice.
pub fn chosen(mut tools: Vec<Arc<dyn Tool>>, configuration: &Configuration) -> Vec<Arc<dyn Tool>> {
    tools.retain(|tool| is_chosen(&tool.spec().name, configuration));
    tools
}

/// Returns whether a tool of the folder is chosen.
pub fn is_chosen(name: &str, configuration: &Configuration) -> bool {
    let wanted = configuration.tools.as_ref();
    wanted.is_none_or(|wanted| wanted.iter().any(|wanted| *wanted == name || group(name).0 == *wanted))
}

/// Checks that permission rules match a tool: a rule with a wrong name would have no effect, even if it
/// denies.
pub fn check_rules(rules: &[PermissionRule], tools: &[Arc<dyn Tool>]) -> Result<(), SessionError> {
    for rule in rules {
        let about: Vec<_> =
            tools.iter().map(|tool| tool.spec()).filter(|spec| rule.is_about(&spec.name)).collect();
        let wrong = |what: &str| {
            let tool = &rule.tool;
            Err(SessionError::usage(format!(
                "a permission rule names tool `{tool}`, {what}; see `superstep tools`"
            )))
        };
        if about.is_empty() {
            return wrong("which does not exist");
        }
        let takes = |name: &str| {
            about.iter().any(|spec| {
                let (named, others) =
                    (&spec.parameters["properties"], &spec.parameters["additionalProperties"]);
                named.get(name).is_some() || others.is_object() || *others == Value::Bool(true)
            })
        };
        if let Some(name) = rule.arguments.keys().find(|name| !takes(name)) {
            return wrong(&format!("which has no argument `{name}`"));
        }
    }
    Ok(())
}

pub fn all(cwd: &Path, settings: &ToolSettings) -> Result<Vec<Arc<dyn Tool>>, SessionError> {
    superstep::tools::all_with(cwd, || SystemClock.now_ms(), settings)
        .map_err(|cause| SessionError::unusable_folder(cwd, &cause))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::tools::GROUPS;

    #[test]
    fn every_tool_is_in_a_group_that_states_whether_it_needs_approval() {
        let grouped: usize = GROUPS.iter().map(|(_, tools, _)| tools.len()).sum();
        let tools = all(Path::new("."), &ToolSettings::default()).unwrap();
        assert_eq!(tools.len(), grouped);
        for tool in tools {
            let name = tool.spec().name.as_str();
            let args = match name {
                "edit_file" => json!({"path": "a", "old": "b", "new": "c"}),
                "write_file" => json!({"path": "a", "content": ""}),
                "shell" => json!({"command": "true"}),
                _ => json!({"url": "https://example.com"}),
            };
            let (group, asks) = group(name);
            assert_eq!((group.is_empty(), tool.approval(&args).is_some()), (false, asks), "{name}");
        }
    }
}
