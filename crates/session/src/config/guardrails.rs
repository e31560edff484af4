//! The guards of the program's agent, as a configuration has them.
//!
//! Start at [`Guardrails`].

use std::env;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep::agent::guards::{Guard, GuardAt, OnSecret};

/// The section `guardrails`. A promise: threads store it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Guardrails {
    /// Maximum length of a message of the user in characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_size: Option<usize>,
    /// Maximum length of an answer in characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_size: Option<usize>,
    /// The treatment of secrets in messages, answers and arguments of tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets: Option<OnSecret>,
    /// The JSON schema of answers, of type `object`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// Shows no text of an answer before it is accepted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hold: bool,
}

impl Guardrails {
    /// Returns the guards of both: one section never removes or weakens a guard of the other.
    ///
    /// # Errors
    /// The two have different schemas.
    pub(crate) fn and(self, other: &Self) -> Result<Self, String> {
        let least = |one: Option<usize>, other: Option<usize>| one.into_iter().chain(other).min();
        let both = [self.secrets, other.secrets];
        let blocks = both.contains(&Some(OnSecret::Block)).then_some(OnSecret::Block);
        if self.schema.is_some() && other.schema.is_some() && self.schema != other.schema {
            return Err("the schemas of the folder and of the user differ; remove one of them".to_owned());
        }
        Ok(Self {
            input_size: least(self.input_size, other.input_size),
            output_size: least(self.output_size, other.output_size),
            secrets: blocks.or(self.secrets).or(other.secrets),
            schema: self.schema.or_else(|| other.schema.clone()),
            hold: self.hold || other.hold,
        })
    }

    /// Returns the guards; those of secrets also find the values of these variables.
    ///
    /// # Errors
    /// The problem of the schema.
    pub(crate) fn guards(
        &self,
        secret_variables: impl Iterator<Item = String>,
    ) -> Result<Vec<Guard>, String> {
        let Self { input_size, output_size, secrets, schema, hold } = self;
        let (input, output) = (GuardAt::Input, GuardAt::Output);
        let mut guards: Vec<Guard> = Vec::new();
        guards.extend(input_size.map(|max| Guard::size(input, max)));
        guards.extend(output_size.map(|max| Guard::size(output, max)));
        if let Some(on) = *secrets {
            let values: Vec<String> = secret_variables.filter_map(|name| env::var(name).ok()).collect();
            let places = [input, output, GuardAt::Tool];
            guards.extend(places.map(|at| Guard::secrets(at, on, values.iter().cloned())));
        }
        if let Some(schema) = schema {
            guards.push(Guard::schema(output, schema.clone()).map_err(|problem| format!("it {problem}"))?);
        }
        Ok(if *hold { guards.into_iter().map(Guard::hold).collect() } else { guards })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(json: Value) -> Guardrails {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_section_only_adds_guards_to_another_one() {
        let user = read(json!({"input_size": 100, "secrets": "block", "hold": true}));
        let folder = read(json!({"input_size": 1000, "output_size": 50, "secrets": "redact"}));
        let both = json!({"input_size": 100, "output_size": 50, "secrets": "block", "hold": true});
        assert_eq!(user.clone().and(&folder), Ok(read(both.clone())));
        assert_eq!(folder.and(&user), Ok(read(both)));
        assert_eq!(user.clone().and(&Guardrails::default()), Ok(user.clone()));
        let schemas = ["a", "b"].map(|name| read(json!({"schema": {"type": "object", "required": [name]}})));
        let [one, other] = schemas;
        assert!(one.clone().and(&other).is_err());
        assert_eq!(one.clone().and(&one), Ok(one.clone()));
    }

    #[test]
    fn each_setting_is_a_guard() {
        let all = read(
            json!({"input_size": 1, "output_size": 1, "secrets": "redact", "schema": {"type": "object"}}),
        );
        let guards = all.guards(std::iter::empty()).unwrap();
        let names: Vec<_> = guards.iter().map(Guard::name).collect();
        let wanted =
            ["input_size", "output_size", "input_secrets", "output_secrets", "tool_secrets", "output_schema"];
        assert_eq!(names, wanted);
        let wrong = read(json!({"schema": {"type": "string"}})).guards(std::iter::empty());
        assert!(wrong.unwrap_err().starts_with("it does not have"));
    }
}
