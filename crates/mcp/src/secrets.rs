//! The environment variables of a configuration, and their values in texts of the server.
//!
//! Start at [`looked_up`].

use std::{collections::BTreeMap, env};

use superstep_llm::variables;

use crate::{Endpoint, McpConfig, config::HANDED_ON, content};

/// The maximum number of bytes of a server's error text in messages.
const MAX_PROBLEM_LENGTH: usize = 2_000;

/// The minimum length of a secret. Shorter values are not hidden, because they would cut ordinary words.
const MIN_SECRET_LENGTH: usize = 4;

/// The minimum length of a line of a secret with several lines that is hidden by itself.
const MIN_LINE_LENGTH: usize = 8;

/// The values of a configuration that may be secret, longest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secrets(Vec<Secret>);

/// A value, in one of the forms in which servers print it.
#[derive(Clone, Debug)]
struct Secret {
    form: String,
    /// The replacement, such as `$TOKEN`.
    name: String,
    /// `true` if an environment variable has it, `false` if it is in the configuration as written.
    is_variable: bool,
}

impl Secrets {
    fn add(&mut self, value: &str, name: &str, is_variable: bool) {
        let escaped = serde_json::to_string(value).expect("a text has a JSON form");
        // Servers also print them as JSON, or line by line.
        let lines = value.lines().filter(|line| line.len() >= MIN_LINE_LENGTH);
        for form in [value, &escaped[1..escaped.len() - 1]].into_iter().chain(lines) {
            match self.0.iter_mut().find(|known| known.form == form) {
                Some(known) => known.is_variable |= is_variable,
                None if form.len() < MIN_SECRET_LENGTH => {}
                None => self.0.push(Secret { form: form.to_owned(), name: format!("${name}"), is_variable }),
            }
        }
        // One secret may be a part of another one.
        self.0.sort_by_key(|secret| std::cmp::Reverse(secret.form.len()));
    }

    /// Returns the length of the longest secret in bytes.
    pub(crate) fn longest(&self) -> usize {
        self.0.first().map_or(0, |secret| secret.form.len())
    }

    /// Hides all secrets in a server's error text, then truncates it.
    pub(crate) fn short(&self, problem: String) -> String {
        content::cut(self.hide_in(problem), MAX_PROBLEM_LENGTH)
    }

    /// Hides all secrets in a text.
    pub(crate) fn hide_in(&self, text: String) -> String {
        self.0.iter().fold(text, |text, secret| text.replace(&secret.form, &secret.name))
    }

    /// Hides the values of environment variables in a text. Other values remain: a question or a description may
    /// be about them, for example about a folder, and the configuration has them as written.
    // Schemas remain as they are: a changed default or choice would be sent back as an argument.
    pub(crate) fn hide_variables_in(&self, text: String) -> String {
        let variables = self.0.iter().filter(|secret| secret.is_variable);
        variables.fold(text, |text, secret| text.replace(&secret.form, &secret.name))
    }
}

/// Resolves the environment variables in the values. Returns the results and the secrets among them.
pub(crate) fn looked_up(
    values: &BTreeMap<String, String>,
) -> Result<(Vec<(String, String)>, Secrets), String> {
    let mut secrets = Secrets::default();
    let mut found = Vec::new();
    for (name, value) in values {
        let look_up = |variable: &str| {
            let value = env::var(variable)?;
            if !HANDED_ON.contains(&variable) {
                variables::withhold(variable);
                secrets.add(&value, variable, true);
            }
            Ok::<_, env::VarError>(Some(value))
        };
        let whole = shellexpand::env_with_context(value, look_up)
            .map_err(|error| format!("`{name}` needs the environment variable `{}`", error.var_name))?;
        secrets.add(&whole, name, false);
        found.push((name.clone(), whole.into_owned()));
    }
    Ok((found, secrets))
}

/// Returns a server's error text without the values of its configuration.
pub(crate) fn without_secrets(config: &McpConfig, problem: String) -> String {
    let (Endpoint::Program { env: given, .. } | Endpoint::Http { headers: given, .. }) = &config.endpoint;
    match looked_up(given) {
        Ok((_, secrets)) => secrets.short(problem),
        // The variables of its connection no longer exist.
        Err(gone) => gone,
    }
}
