//! Questions about calls, as a client asks its user.
//!
//! Start at [`decision`].

use std::path::Path;

use serde_json::{Map, Value, json};
use superstep::agent::Approval;
use superstep_acp::{
    Client,
    stream::{Choice, choice, fenced, permission_options, text_content},
    wire::{
        Chunk, ElicitationMode, ElicitationRequest, ElicitationResponse, PermissionKind, PermissionOption,
        PermissionOutcome, PermissionRequest, PermissionResponse, SessionId, SessionUpdate, Severity,
    },
};
use superstep_session::{live::Question, turn::waiting::SAID_NO};
use tokio_util::sync::CancellationToken;

use crate::acp::calls::whole;

/// The id of the option that declines a form.
const DECLINE: &str = "decline";

/// Returns the user's decision about a call; `None` if there is none, so that nothing may run. `cwd` is the folder of the tools.
pub(super) async fn decision(
    client: &Client,
    session: &SessionId,
    cwd: &Path,
    question: &Question,
    cancel: &CancellationToken,
) -> Option<Approval> {
    let asker = Asker { client, session, cwd, question, cancel };
    match &question.waiting.request.form {
        None => asker.permission().await,
        Some(form) if client.capabilities().elicitation.form => asker.form(&form.message, &form.schema).await,
        Some(form) => match choices(&form.schema) {
            Some(choices) => asker.choice(choices).await,
            None => asker.declined().await,
        },
    }
}

struct Asker<'a> {
    client: &'a Client,
    session: &'a SessionId,
    cwd: &'a Path,
    question: &'a Question,
    cancel: &'a CancellationToken,
}

impl Asker<'_> {
    async fn permission(&self) -> Option<Approval> {
        let answer = self.request(permission_options()).await?;
        if let Some(decision) = answer.meta.superstep("decision") {
            // An unknown decision is none.
            return serde_json::from_value(decision.clone()).ok();
        }
        Some(match choice(&answer.outcome)? {
            Choice::Once => Approval::Approve,
            Choice::Always => Approval::Always,
            Choice::Reject => Approval::Deny(SAID_NO.to_owned()),
        })
    }

    async fn form(&self, message: &str, schema: &Value) -> Option<Approval> {
        let asked = ElicitationRequest {
            session_id: self.session.clone(),
            tool_call_id: Some(self.question.call.key.clone()),
            message: message.to_owned(),
            mode: ElicitationMode::Form { requested_schema: schema.clone() },
        };
        Some(match self.client.elicit(&asked, self.cancel).await.ok()? {
            ElicitationResponse::Accept { content } => {
                Approval::Answer(Value::Object(content.unwrap_or_default()))
            }
            ElicitationResponse::Decline => Approval::Deny("the user declined".to_owned()),
            ElicitationResponse::Cancel => Approval::Cancel,
        })
    }

    /// Asks for one of the values of a form's only field.
    async fn choice(&self, choices: Vec<(String, Value)>) -> Option<Approval> {
        let option = |(number, (name, _)): (usize, &(String, Value))| PermissionOption {
            option_id: number.to_string(),
            name: name.clone(),
            kind: PermissionKind::AllowOnce,
        };
        let mut options: Vec<_> = choices.iter().enumerate().map(option).collect();
        options.push(PermissionOption {
            option_id: DECLINE.to_owned(),
            name: "Decline".to_owned(),
            kind: PermissionKind::RejectOnce,
        });
        let PermissionOutcome::Selected { option_id } = self.request(options).await?.outcome else {
            return None;
        };
        if option_id == DECLINE {
            return Some(Approval::Deny("the user declined".to_owned()));
        }
        let (_, answer) = choices.get(option_id.parse::<usize>().ok()?)?;
        Some(Approval::Answer(answer.clone()))
    }

    /// Declines a form that the client cannot show.
    async fn declined(&self) -> Option<Approval> {
        let text = "A question with a form is declined, because this editor shows no forms.";
        let update = match self.client.capabilities().session.notices {
            true => SessionUpdate::Notice {
                severity: Severity::Warning,
                title: text.to_owned(),
                description: None,
            },
            false => {
                let id = format!("note-{}", self.question.id);
                SessionUpdate::AgentMessageChunk(Chunk::text(id, format!("> {text}\n\n")))
            }
        };
        self.client.update(self.session, &update).await.ok()?;
        Some(Approval::Deny("the user's editor cannot show the question".to_owned()))
    }

    async fn request(&self, options: Vec<PermissionOption>) -> Option<PermissionResponse> {
        let Question { call, waiting, .. } = self.question;
        let mut tool_call = whole(call, self.cwd, true);
        let mut text = waiting.question();
        if let Some(hidden) = waiting.hidden() {
            text.push_str(&format!("\n[{hidden}]"));
        }
        tool_call.content.get_or_insert_default().push(text_content(fenced(&text, "")));
        let asked = PermissionRequest { session_id: self.session.clone(), tool_call, options };
        self.client.request_permission(&asked, self.cancel).await.ok()
    }
}

/// Returns the names and answers of a form with one field that has a list of values, or is a boolean.
fn choices(schema: &Value) -> Option<Vec<(String, Value)>> {
    let fields = schema["properties"].as_object().filter(|fields| fields.len() == 1)?;
    let (field, kind) = fields.iter().next()?;
    let answer = |value: Value| Value::Object(Map::from_iter([(field.clone(), value)]));
    if kind["type"] == "boolean" {
        return Some(vec![("Yes".to_owned(), answer(json!(true))), ("No".to_owned(), answer(json!(false)))]);
    }
    let values = match (&kind["enum"], &kind["oneOf"]) {
        (Value::Array(values), _) => values.iter().map(|value| (value, value)).collect(),
        (_, Value::Array(values)) => {
            values.iter().map(|one| (&one["const"], one.get("title").unwrap_or(&one["const"]))).collect()
        }
        _ => Vec::new(),
    };
    let choice = |(value, name): (&Value, &Value)| Some((name.as_str()?.to_owned(), answer(value.clone())));
    let choices: Vec<_> = values.into_iter().map(choice).collect::<Option<_>>()?;
    (!choices.is_empty()).then_some(choices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_with_one_field_of_few_values_is_a_choice() {
        let form = |fields: Value| choices(&json!({ "type": "object", "properties": fields }));
        let yes_no = vec![("Yes".into(), json!({ "ok": true })), ("No".into(), json!({ "ok": false }))];
        assert_eq!(form(json!({ "ok": { "type": "boolean" } })), Some(yes_no));
        let named = vec![("a".into(), json!({ "x": "a" })), ("B".into(), json!({ "x": "b" }))];
        let one_of = json!([{ "const": "a" }, { "const": "b", "title": "B" }]);
        assert_eq!(form(json!({ "x": { "type": "string", "oneOf": one_of } })), Some(named));
        let listed = vec![("a".into(), json!({ "x": "a" }))];
        assert_eq!(form(json!({ "x": { "type": "string", "enum": ["a"] } })), Some(listed));
        assert_eq!(form(json!({ "x": { "type": "string" } })), None);
        assert_eq!(form(json!({ "x": { "enum": [] } })), None);
        assert_eq!(form(json!({ "x": { "type": "boolean" }, "y": { "type": "boolean" } })), None);
    }
}
