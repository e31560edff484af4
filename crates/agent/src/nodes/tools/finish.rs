//! Calls of the finish tool, which is not in the registry.

use super::{Executor, Pending};
use crate::{
    nodes::finish::{Finished, Finishing},
    texts,
};

/// The parsed call of the finish tool.
pub(super) type Finish = Result<Finished, String>;

impl Executor {
    /// Returns the result for the model and the parsed reply of a finish tool call; `None` for another tool.
    pub(super) fn finish(&self, pending: &Pending) -> Option<(String, Option<Finish>)> {
        let arguments = match &pending.acting {
            Some(acting) if !acting.args.is_string() => acting.args.to_string(),
            _ => pending.call.arguments.clone(),
        };
        let finish = Finishing::of(&self.deps.config, &self.state).called(&pending.name, &arguments)?;
        if let Some(reason) = pending.denied() {
            return Some((texts::denied(reason), None));
        }
        let text = match &finish {
            Ok(_) => texts::FINISHED.to_owned(),
            Err(problem) => texts::bad_finish(problem),
        };
        Some((text, Some(finish)))
    }
}
