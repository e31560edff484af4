//! Calls of the finish tool, which is not in the registry.

use super::{answer::Finish, executor::Executor, pending::Pending};
use crate::{config::prompts, context::finish::Finishing};

impl Executor {
    /// Returns the result for the model and the parsed reply of a finish tool call; `None` for another tool.
    pub(super) fn finish(&self, pending: &Pending) -> Option<(String, Option<Finish>)> {
        let arguments = match &pending.acting {
            Some(acting) if !acting.args.is_string() => acting.args.to_string(),
            _ => pending.call.arguments.clone(),
        };
        let finish = Finishing::of(&self.deps.config, &self.state).called(&pending.name, &arguments)?;
        if let Some(reason) = pending.denied() {
            return Some((prompts::denied(reason), None));
        }
        let text = match &finish {
            Ok(_) => prompts::FINISHED.to_owned(),
            Err(problem) => prompts::bad_finish(problem),
        };
        Some((text, Some(finish)))
    }
}
