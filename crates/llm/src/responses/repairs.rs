//! The forms of requests for servers that refuse the usual one.
//!
//! Start at [`Form`].

use std::{
    collections::BTreeSet,
    mem,
    sync::{Mutex, PoisonError},
};

use serde_json::Value;

use crate::{Delta, exchange::server::Refusal};

/// The form of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) parts: Parts,
    pub(super) left_out: BTreeSet<Field>,
}

/// The form of earlier answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Parts {
    /// The items of the server with their ids.
    #[default]
    Exact,
    /// The items without their ids.
    WithoutIds,
    /// Texts and calls, without reasoning.
    Plain,
}

/// A field that some servers do not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Field {
    Include,
    Store,
    StreamOptions,
    PromptCacheKey,
    Summary,
    Strict,
}

impl Field {
    /// Returns the field that a server names as the problem, as in `tools[0].strict`.
    fn named(param: &str) -> Option<Self> {
        let names: Vec<&str> = param.split(['.', '[']).collect();
        Some(match names[..] {
            ["include", ..] => Self::Include,
            ["store"] => Self::Store,
            ["stream_options", ..] => Self::StreamOptions,
            ["prompt_cache_key"] => Self::PromptCacheKey,
            ["reasoning", "summary"] => Self::Summary,
            [.., "strict"] => Self::Strict,
            _ => return None,
        })
    }
}

impl Form {
    /// Repairs the form of a refused request, which may have had items of earlier answers. Returns the notices before another
    /// request; none if the form is not at fault.
    pub(super) fn repair(&mut self, refusal: &Refusal, has_items: bool, attempt: u32) -> Vec<Delta> {
        let body: Value = serde_json::from_str(&refusal.body).unwrap_or_default();
        let field = |name: &str| body["error"][name].as_str().unwrap_or_default();
        let (message, status) = (field("message"), refusal.error.status);
        let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
        let is_unreadable = field("code") == "invalid_encrypted_content" || has(&["without its required"]);
        let parts = match status {
            Some(400) if has_items && is_unreadable => Some(Parts::Plain),
            // The server stores no items. A repeated refusal is not about the ids of the neighbours.
            Some(404) if has_items && has(&["Item with id"]) => Some(match self.parts {
                Parts::Exact => Parts::WithoutIds,
                Parts::WithoutIds | Parts::Plain => Parts::Plain,
            }),
            _ => None,
        };
        let field = Field::named(field("param")).filter(|_| status == Some(400));
        let is_repaired = match (parts, field) {
            (Some(parts), _) => mem::replace(&mut self.parts, parts) != parts,
            (None, Some(field)) => self.left_out.insert(field),
            (None, None) => false,
        };
        if !is_repaired {
            return Vec::new();
        }
        let reason = refusal.error.message.clone();
        let dropped = (parts == Some(Parts::Plain)).then(|| Delta::ReasoningDropped {
            path: String::new(),
            reason: reason.clone(),
            all: true,
        });
        let retry = Delta::Retry { attempt: attempt + 1, delay_ms: 0, status, reason };
        [retry].into_iter().chain(dropped).collect()
    }
}

/// The form of one model's requests, learned from refused ones. The reasoning of a thread is not part of it: a later
/// [`Delta::ReasoningDropped`] concerns that thread only.
#[derive(Debug, Default)]
pub(super) struct Learned(Mutex<Form>);

impl Learned {
    pub(super) fn form(&self) -> Form {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Applies a form that the server accepted to all later requests.
    pub(super) fn remember(&self, form: Form) {
        let mut learned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        learned.left_out.extend(form.left_out);
        if form.parts == Parts::WithoutIds {
            learned.parts = form.parts;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ModelError;

    fn refusal(status: u16, error: &Value) -> Refusal {
        let body = json!({ "error": error }).to_string();
        let headers = std::collections::BTreeMap::new();
        Refusal { error: ModelError::from_http(status, &headers, &body, 0), body }
    }

    #[test]
    fn an_unknown_field_is_left_out_once() {
        for (param, field) in [
            ("include", Field::Include),
            ("include[0]", Field::Include),
            ("store", Field::Store),
            ("stream_options.include_obfuscation", Field::StreamOptions),
            ("prompt_cache_key", Field::PromptCacheKey),
            ("reasoning.summary", Field::Summary),
            ("tools[3].strict", Field::Strict),
            ("text.format.strict", Field::Strict),
        ] {
            let mut form = Form::default();
            let refused = refusal(400, &json!({"message": "Unknown parameter", "param": param}));
            assert!(
                matches!(form.repair(&refused, false, 1)[..], [Delta::Retry { status: Some(400), .. }]),
                "{param}"
            );
            assert_eq!(form.left_out, [field].into(), "{param}");
            assert_eq!(form.repair(&refused, false, 1), [], "{param}");
        }
        for param in ["input", "reasoning.effort", "tools[0].name", ""] {
            let refused = refusal(400, &json!({"message": "Invalid value", "param": param}));
            assert_eq!(Form::default().repair(&refused, true, 1), [], "{param}");
        }
        let refused = refusal(500, &json!({"message": "Oops", "param": "store"}));
        assert_eq!(Form::default().repair(&refused, true, 1), []);
    }

    #[test]
    fn reasoning_that_the_server_cannot_read_is_dropped_and_reported() {
        for error in [
            json!({"message": "The encrypted content gAAA could not be verified.", "code": "invalid_encrypted_content"}),
            json!({"message": "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_1'."}),
        ] {
            let mut form = Form::default();
            let refused = refusal(400, &error);
            assert_eq!(form.repair(&refused, false, 1), []);
            let deltas = form.repair(&refused, true, 1);
            assert!(
                matches!(deltas[..], [Delta::Retry { .. }, Delta::ReasoningDropped { all: true, .. }]),
                "{deltas:?}"
            );
            assert_eq!(form.parts, Parts::Plain);
            assert_eq!(form.repair(&refused, true, 1), []);
            // Other threads send theirs.
            let learned = Learned::default();
            learned.remember(form);
            assert_eq!(learned.form(), Form::default());
        }
    }

    #[test]
    fn ids_that_the_server_does_not_store_are_left_out_and_the_items_after_a_second_refusal() {
        let mut form = Form::default();
        let refused = refusal(404, &json!({"message": "Item with id 'rs_1' not found."}));
        assert!(matches!(form.repair(&refused, true, 1)[..], [Delta::Retry { .. }]));
        assert_eq!(form.parts, Parts::WithoutIds);
        let learned = Learned::default();
        learned.remember(form.clone());
        assert_eq!(learned.form(), form);
        assert!(matches!(form.repair(&refused, true, 1)[..], [_, Delta::ReasoningDropped { .. }]));
        assert_eq!(form.repair(&refused, true, 1), []);
        assert_eq!(Form::default().repair(&refusal(404, &json!({"message": "no such model"})), true, 1), []);
    }
}
