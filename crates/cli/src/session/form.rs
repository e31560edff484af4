//! Forms of tools, filled in field by field.
//!
//! Start at [`fill`].

use std::io::{self, Write};

use serde_json::{Map, Value, json};
use superstep::llm::{
    ToolSpec,
    calls::{ArgumentCheck, ToolQuestion},
};
use superstep_session::{text::printable_line, turn::waiting::exact};

use crate::session::typed::{Keys, answer};

/// Returns whether a form has no fields.
pub(super) fn is_empty(form: &ToolQuestion) -> bool {
    form.schema["properties"].as_object().is_none_or(Map::is_empty)
}

/// Asks for the value of each field, then whether to send them; `None` if not, or if the form has no fields.
///
/// An empty line takes the default of a field, or omits an optional one.
pub(crate) fn fill(
    form: &ToolQuestion,
    input: &mut impl Keys,
    output: &mut impl Write,
) -> io::Result<Option<Value>> {
    let Some(fields) = form.schema["properties"].as_object().filter(|fields| !fields.is_empty()) else {
        return Ok(None);
    };
    let mut values = Map::new();
    for (name, schema) in fields {
        let required = form.schema["required"].as_array().is_some_and(|all| all.contains(&json!(name)));
        let field = Field { name, schema, required };
        let question = field.question();
        let value = loop {
            let Some(typed) = answer(&question, input, output)? else { return Ok(None) };
            match field.read(&typed) {
                Ok(value) => break value,
                Err(problem) => writeln!(output, "{}", printable_line(&problem))?,
            }
        };
        values.extend(value.map(|value| (name.clone(), value)));
    }
    let values = Value::Object(values);
    let question = format!("Send {}? [y/n]", exact(&values.to_string()));
    loop {
        match answer(&question, input, output)?.map(|answer| answer.to_lowercase()).as_deref() {
            Some("y" | "yes") => return Ok(Some(values)),
            Some("n" | "no") | None => return Ok(None),
            Some(_) => {}
        }
    }
}

struct Field<'a> {
    name: &'a str,
    schema: &'a Value,
    required: bool,
}

impl Field<'_> {
    /// Formats its name, description, type and constraints.
    fn question(&self) -> String {
        let text = |key: &str| self.schema[key].as_str().filter(|text| !text.is_empty());
        let said: Vec<&str> = [text("title"), text("description")].into_iter().flatten().collect();
        let said = if said.is_empty() { String::new() } else { format!(" ({})", said.join(": ")) };
        let mut hints: Vec<String> = Vec::new();
        match (self.choices(), self.kind()) {
            (choices, kind) if !choices.is_empty() => {
                let choices: Vec<String> = choices.iter().map(Choice::to_string).collect();
                let many = if kind == "array" { "any of, separated by commas" } else { "one of" };
                hints.push(format!("{many}: {}", choices.join(", ")));
            }
            (_, "boolean") => hints.push("yes or no".to_owned()),
            (_, kind) => hints.push(text("format").unwrap_or(kind).to_owned()),
        }
        for (key, hint) in [
            ("minimum", "at least"),
            ("maximum", "at most"),
            ("minLength", "characters, at least"),
            ("maxLength", "characters, at most"),
        ] {
            if let Some(limit) = self.schema[key].as_number() {
                hints.push(format!("{hint} {limit}"));
            }
        }
        hints.push(match (self.schema.get("default"), self.required) {
            (Some(default), _) => format!("Enter for {}", exact(&default.to_string())),
            (None, true) => "required".to_owned(),
            (None, false) => "Enter to omit".to_owned(),
        });
        printable_line(&format!("{}{said} [{}]:", self.name, hints.join("; ")))
    }

    /// Returns the type; of several, as those of an optional value, the first that is not null.
    fn kind(&self) -> &str {
        let alternatives = self.schema["anyOf"].as_array().into_iter().flatten();
        let types = [self.schema].into_iter().chain(alternatives).flat_map(|schema| match &schema["type"] {
            Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
            kind => kind.as_str().into_iter().collect::<Vec<_>>(),
        });
        types.into_iter().find(|kind| *kind != "null").unwrap_or("JSON")
    }

    fn choices(&self) -> Vec<Choice<'_>> {
        let of = if self.kind() == "array" { &self.schema["items"] } else { self.schema };
        let named = of["enumNames"].as_array();
        let plain = of["enum"].as_array().into_iter().flatten().enumerate();
        let plain =
            plain.map(|(at, value)| Choice { value, title: named.and_then(|all| all.get(at)?.as_str()) });
        let titled = ["oneOf", "anyOf"].into_iter().filter_map(|key| of[key].as_array()).flatten();
        let titled = titled.filter_map(|choice| {
            Some(Choice { value: choice.get("const")?, title: choice["title"].as_str() })
        });
        plain.chain(titled).collect()
    }

    /// Parses the typed text; `None` omits the field.
    fn read(&self, typed: &str) -> Result<Option<Value>, String> {
        let value = match (typed, self.schema.get("default")) {
            ("", Some(default)) => default.clone(),
            ("", None) if self.required => return Err("a value is required".to_owned()),
            ("", None) => return Ok(None),
            (typed, _) => self.parse(typed)?,
        };
        let parameters = json!({"type": "object", "properties": {self.name: self.schema}});
        let spec = ToolSpec { name: self.name.to_owned(), description: String::new(), parameters };
        // A schema that refers to others is checked as a whole, once all fields are filled in.
        match ArgumentCheck::with_formats(&spec)
            .map(|check| check.check(&json!({self.name: value}).to_string()))
        {
            Ok(Err(problem)) => Err(problem.to_string()),
            Ok(Ok(_)) | Err(_) => Ok(Some(value)),
        }
    }

    fn parse(&self, typed: &str) -> Result<Value, String> {
        let choices = self.choices();
        let chosen = |typed: &str| {
            let choice = choices.iter().find(|choice| choice.is(typed));
            choice.map(|choice| choice.value.clone()).ok_or_else(|| format!("`{typed}` is not a choice"))
        };
        match self.kind() {
            "array" if !choices.is_empty() => typed
                .split(',')
                .map(|part| chosen(part.trim()))
                .collect::<Result<Vec<_>, _>>()
                .map(Value::from),
            _ if !choices.is_empty() => chosen(typed),
            "string" => Ok(typed.into()),
            "boolean" => match typed.to_lowercase().as_str() {
                "y" | "yes" | "true" => Ok(true.into()),
                "n" | "no" | "false" => Ok(false.into()),
                _ => Err("answer yes or no".to_owned()),
            },
            kind => serde_json::from_str(typed).map_err(|_| format!("this is not valid as {kind}")),
        }
    }
}

/// A value that a field may have.
struct Choice<'a> {
    value: &'a Value,
    title: Option<&'a str>,
}

impl Choice<'_> {
    fn text(&self) -> String {
        self.value.as_str().map_or_else(|| self.value.to_string(), str::to_owned)
    }

    fn is(&self, typed: &str) -> bool {
        self.text() == typed
    }
}

impl std::fmt::Display for Choice<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.title {
            Some(title) => write!(f, "{} ({title})", self.text()),
            None => f.write_str(&self.text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(properties: Value, required: Value, typed: &str) -> (Option<Value>, String) {
        let schema = json!({"type": "object", "properties": properties, "required": required});
        let form = ToolQuestion { from: "it".into(), message: "Who?".into(), schema };
        let mut output = Vec::new();
        let values = fill(&form, &mut typed.as_bytes(), &mut output).unwrap();
        (values, String::from_utf8(output).unwrap())
    }

    #[test]
    fn an_optional_value_is_typed_like_a_required_one() {
        for schema in
            [json!({"type": ["string", "null"]}), json!({"anyOf": [{"type": "string"}, {"type": "null"}]})]
        {
            let (values, output) = filled(json!({"name": schema}), json!([]), "ada\ny\n");
            assert_eq!(values, Some(json!({"name": "ada"})), "{output}");
        }
    }

    #[test]
    fn a_default_that_looks_blank_is_shown_escaped() {
        let (_, output) =
            filled(json!({"x": {"type": "string", "default": "rm\u{a0}-rf"}}), json!([]), "\ny\n");
        assert!(!output.contains('\u{a0}'), "{output}");
    }

    #[test]
    fn each_field_is_asked_for_and_checked_by_itself() {
        let properties = json!({
            "a_mail": {"type": "string", "title": "Mail", "description": "yours", "format": "email"},
            "b_age": {"type": "integer", "minimum": 18},
            "c_plan": {"type": "string", "oneOf": [{"const": "s", "title": "small"}, {"const": "l", "title": "large"}]},
            "d_news": {"type": "boolean", "default": false},
            "e_tags": {"type": "array", "items": {"type": "string", "enum": ["x", "y", "z"]}},
            "f_note": {"type": "string"},
        });
        let typed = "ada\n\nada@example.com\n7\nx\n18\nlarge\nl\n\nx, z\n\nmaybe\ny\n";
        let (values, said) = filled(properties, json!(["a_mail", "b_age", "c_plan"]), typed);
        let wanted = json!({"a_mail": "ada@example.com", "b_age": 18, "c_plan": "l", "d_news": false, "e_tags": ["x", "z"]});
        assert_eq!(values, Some(wanted), "{said}");
        for line in [
            "a_mail (Mail: yours) [email; required]: `a_mail`: is not a valid email\n",
            "a_mail (Mail: yours) [email; required]: a value is required\n",
            "b_age [integer; at least 18; required]: `b_age`: ",
            "b_age [integer; at least 18; required]: this is not valid as integer\n",
            "c_plan [one of: s (small), l (large); required]: `large` is not a choice\n",
            "d_news [yes or no; Enter for false]: ",
            "e_tags [any of, separated by commas: x, y, z; Enter to omit]: ",
            "f_note [string; Enter to omit]: Send {",
        ] {
            assert!(said.contains(line), "{line}\n{said}");
        }
    }

    #[test]
    fn a_form_is_sent_only_if_the_user_says_so_and_its_texts_are_escaped() {
        let properties = json!({"n\u{202e}": {"type": "string", "title": "a\nb\u{1b}[8m"}});
        let (values, said) = filled(properties.clone(), json!([]), "x\nn\n");
        assert_eq!(values, None);
        assert!(said.starts_with("n\\u{202e} (a\\nb\\u{1b}[8m) [string; Enter to omit]: Send {"), "{said}");
        assert_eq!(filled(properties, json!([]), "x\n").0, None, "the end of the input");
        assert_eq!(filled(json!({}), json!([]), "y\n").0, None);
    }
}
