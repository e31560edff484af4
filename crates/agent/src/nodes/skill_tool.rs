//! The tool that loads skills.

use std::{io, path::Path, sync::Arc};

use serde_json::{Value, json};
use superstep_llm::{
    Behaviour, Tool, ToolCx, ToolError, ToolFuture, ToolSpec,
    instructions::{Instructions, Skill},
};

use crate::{
    AgentState,
    context::instructions::{LOADED, SKILL_TOOL, has_skill, skill},
};

/// The tool `skill{name}`: returns the text of a skill, unless the request contains it already.
pub(super) struct SkillTool {
    spec: ToolSpec,
    reader: Option<Arc<dyn Instructions>>,
}

impl SkillTool {
    pub(super) fn new(skills: &[Skill], reader: Option<Arc<dyn Instructions>>) -> Self {
        let names: Vec<_> = skills.iter().map(|skill| skill.name.as_str()).collect();
        let parameters = json!({
            "type": "object",
            "properties": {"name": {"type": "string", "enum": names, "description": "The name of the skill."}},
            "required": ["name"],
            "additionalProperties": false,
        });
        let description =
            "Loads a skill: the text about how to do a kind of work, and the names of its files.".to_owned();
        Self { spec: ToolSpec { name: SKILL_TOOL.to_owned(), description, parameters }, reader }
    }
}

impl Tool for SkillTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn behaviour(&self) -> Behaviour {
        Behaviour { idempotent: true, ..Behaviour::default() }
    }

    fn changes_files(&self) -> Option<bool> {
        Some(false)
    }

    fn in_folder(&self, folder: &Path) -> io::Result<Option<Arc<dyn Tool>>> {
        let Some(there) = self.reader.as_ref().map(|reader| reader.in_folder(folder)).transpose()?.flatten()
        else {
            return Ok(None);
        };
        Ok(Some(Arc::new(Self { spec: self.spec.clone(), reader: Some(there) })))
    }

    fn call(&self, args: Value, cx: ToolCx) -> ToolFuture<'_> {
        Box::pin(async move {
            let name = args["name"].as_str().unwrap_or_default();
            if cx.extension::<AgentState>().is_ok_and(|state| has_skill(state, name)) {
                return Ok(LOADED.into());
            }
            let Some(reader) = &self.reader else {
                return Err(ToolError::failed("this program reads no skills"));
            };
            let text = reader.skill(name).await.map_err(|error| ToolError::failed(error.to_string()))?;
            Ok(skill(name, &text).into())
        })
    }
}
