//! Calls of the finish tool, which is nowhere registered.

use super::{Executor, Pending};
use crate::{
    nodes::finish::{Finished, Finishing},
    texts,
};

/// How a call of the finish tool was read.
pub(super) type Finish = Result<Finished, String>;

impl Executor {
    /// What the model reads of a call of the finish tool, and what it gives; `None` if something else is called.
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
