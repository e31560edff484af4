//! The stored form of a job.
//!
//! Start at [`Payload`].

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The work of a job. A promise: stored jobs of older versions can be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Payload {
    /// The version of this form.
    pub(crate) v: u32,
    pub(crate) thread: String,
    /// The id of the request, under which the thread accepts its input once.
    pub(crate) id: String,
    pub(crate) work: Work,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Work {
    /// Runs the thread on an input.
    Run { input: Value },
    /// Runs the pending tasks of the thread.
    Resume {},
    /// Answers an interrupt by its id, and runs the pending tasks.
    Answer { interrupt: String, value: Value },
}

impl Payload {
    pub(crate) const VERSION: u32 = 1;

    pub(crate) fn new(thread: String, id: String, work: Work) -> Self {
        Self { v: Self::VERSION, thread, id, work }
    }

    /// Reads a stored job.
    pub(crate) fn read(json: &Value) -> Result<Self, String> {
        match json.get("v").and_then(Value::as_u64) {
            Some(version) if version == u64::from(Self::VERSION) => {
                Self::deserialize(json).map_err(|_| "the job was not written by superstep".to_owned())
            }
            Some(version) => Err(format!(
                "the job was written by a newer superstep (version {version}); update this worker"
            )),
            None => Err("the job was not written by superstep".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Jobs that are queued while a program is updated have the older form: it can be read for ever.
    #[test]
    fn the_stored_form_of_version_1_is_read_and_written() {
        let stored = [
            (json!({"run": {"input": {"words": 1}}}), Work::Run { input: json!({"words": 1}) }),
            (json!({"resume": {}}), Work::Resume {}),
            (
                json!({"answer": {"interrupt": "i1", "value": true}}),
                Work::Answer { interrupt: "i1".into(), value: json!(true) },
            ),
        ];
        for (stored, work) in stored {
            let stored = json!({"v": 1, "thread": "t", "id": "a1", "work": stored});
            let payload = Payload::new("t".into(), "a1".into(), work);
            assert_eq!(Payload::read(&stored), Ok(payload.clone()));
            assert_eq!(serde_json::to_value(payload).unwrap(), stored);
        }
        let newer = Payload::read(&json!({"v": 2})).unwrap_err();
        assert_eq!(newer, "the job was written by a newer superstep (version 2); update this worker");
        assert_eq!(Payload::read(&json!({})).unwrap_err(), "the job was not written by superstep");
    }
}
