//! Calls that wait, for tests.

use serde_json::{Value, json};
use superstep::{Interrupt, agent::approval::ApprovalRequest};
use superstep_session::turn::waiting::Waiting;

pub(crate) fn waiting(ids: &[&str]) -> Vec<Waiting> {
    let interrupt = |id: &&str| Interrupt {
        id: format!("tools:4.0:{id}"),
        node: "tools".into(),
        key: (*id).to_owned(),
        question: json!({"call_id": id, "tool": "shell", "args": {}, "question": "run"}),
        schema: None,
    };
    let asked: Vec<_> = ids.iter().map(interrupt).collect();
    Waiting::of(&asked).unwrap()
}

pub(crate) fn asking(question: &str, args: Value) -> Waiting {
    let (call_id, tool) = ("c\u{202e}1".to_owned(), "write\nfile".to_owned());
    let request = ApprovalRequest {
        call_id: call_id.clone(),
        tool,
        args,
        question: question.to_owned(),
        form: None,
        problem: None,
    };
    Waiting { interrupt: "i".to_owned(), id: call_id, request }
}
