//! The check of an answer to a question of a tool.

use serde_json::json;
use superstep_llm::{
    ToolSpec,
    calls::{ArgumentCheck, ToolQuestion},
};

use super::approver::Approval;
use crate::config::prompts;

/// Returns the schema of a question's values, as that of a tool's arguments.
pub(crate) fn values(question: &ToolQuestion) -> ToolSpec {
    let (name, description) = ("answer".to_owned(), String::new());
    ToolSpec { name, description, parameters: question.schema.clone() }
}

/// Returns the reason why a decision does not answer a question.
pub(crate) fn misfit(question: &ToolQuestion, decision: &Approval) -> Option<String> {
    let content = match decision {
        Approval::Approve => &json!({}),
        Approval::Answer(content) => content,
        Approval::Deny(_) | Approval::Cancel => return None,
        Approval::Edit(_) | Approval::Respond(_) | Approval::Always | Approval::AlwaysFor(_) => {
            return Some(prompts::NOT_AN_ANSWER.to_owned());
        }
    };
    let check =
        ArgumentCheck::with_formats(&values(question)).map_err(|problem| format!("the schema {problem}"));
    let problem =
        check.and_then(|check| check.check(&content.to_string()).map_err(|error| error.to_string()));
    problem.err().map(|problem| prompts::bad_answer(&problem))
}
