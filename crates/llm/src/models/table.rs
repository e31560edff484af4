//! The table of models.

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use serde::{Deserialize, Serialize};

use super::info::ModelInfo;

/// The table of this version of superstep.
static EMBEDDED: LazyLock<Arc<ModelTable>> = LazyLock::new(|| {
    let table = ModelTable::parse(include_str!("../../models/models.toml"));
    Arc::new(table.expect("a test reads the embedded table"))
});

/// Facts about models, by name.
///
/// ```
/// use superstep_llm::models::ModelTable;
///
/// let own = ModelTable::parse("[[model]]\nid = \"claude-opus-5-5\"\nwindow = 200_000")?;
/// let table = ModelTable::embedded().with(&own);
/// let opus = table.find("claude-opus-5-5").expect("it is in the table");
/// assert_eq!((opus.window, opus.max_output), (Some(200_000), Some(128_000)));
/// assert!(opus.can("bound") && opus.cannot("sampling"));
/// # Ok::<(), superstep_llm::models::ModelTableError>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelTable {
    model: Vec<Arc<ModelInfo>>,
}

/// The error of a text that is not a table of models.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ModelTableError {
    /// The text is not TOML, or a field is not valid.
    #[error("the table of models is not valid: {problem}")]
    Invalid {
        /// The problem, with its position.
        problem: String,
    },
    /// Two entries have the same id.
    #[error("the table of models has two entries for `{id}`; remove one")]
    Repeated {
        /// The id.
        id: String,
    },
    /// An entry has no id.
    #[error("entry {number} of the table of models has no `id`; name the model")]
    Nameless {
        /// The number of the entry, from 1.
        number: usize,
    },
}

crate::debug_by_chain!(ModelTableError);

impl ModelTable {
    /// Returns the table of this version of superstep: estimates, with their source and day.
    pub fn embedded() -> Arc<Self> {
        Arc::clone(&EMBEDDED)
    }

    /// Reads a table in TOML: one `[[model]]` for each [`ModelInfo`].
    ///
    /// # Errors
    /// [`ModelTableError`] for invalid TOML, unknown fields, and entries with the same or without an id.
    pub fn parse(toml: &str) -> Result<Self, ModelTableError> {
        let table: Self = toml::from_str(toml)
            .map_err(|error| ModelTableError::Invalid { problem: error.to_string().trim_end().to_owned() })?;
        for (at, model) in table.model.iter().enumerate() {
            if model.id.is_empty() {
                return Err(ModelTableError::Nameless { number: at + 1 });
            }
            if table.model[..at].iter().any(|earlier| earlier.id == model.id) {
                return Err(ModelTableError::Repeated { id: model.id.clone() });
            }
        }
        Ok(table)
    }

    /// Returns this table with the facts of `own` over it, by id.
    #[must_use]
    pub fn with(&self, own: &Self) -> Self {
        // Entries of `own` come first: their aliases and prefixes count before equal ones of others.
        let base = |id: &str| self.model.iter().find(|model| model.id == id);
        let over = own.model.iter().map(|model| match base(&model.id) {
            Some(base) => Arc::new(model.over(base)),
            None => Arc::clone(model),
        });
        let rest = self.model.iter().filter(|model| own.model.iter().all(|other| other.id != model.id));
        Self { model: over.chain(rest.cloned()).collect() }
    }

    /// Returns the facts about the model with this name: an id, else an alias, else the longest prefix. `None` if it is unknown.
    pub fn find(&self, name: &str) -> Option<&Arc<ModelInfo>> {
        let id = || self.model.iter().find(|model| model.id == name);
        let alias = || self.model.iter().find(|model| model.alias.contains(name));
        let length = |model: &ModelInfo| {
            let prefix =
                model.prefix.as_deref().filter(|prefix| !prefix.is_empty() && name.starts_with(prefix));
            prefix.map(str::len)
        };
        let longest = || {
            let matching = self.model.iter().rev().filter(|model| length(model).is_some());
            matching.max_by_key(|model| length(model))
        };
        id().or_else(alias).or_else(longest)
    }

    /// Returns all models.
    pub fn models(&self) -> impl Iterator<Item = &ModelInfo> {
        self.model.iter().map(|model| &**model)
    }
}

impl fmt::Debug for ModelTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ModelTable of {} models", self.model.len())
    }
}

impl FromIterator<Arc<ModelInfo>> for ModelTable {
    fn from_iter<I: IntoIterator<Item = Arc<ModelInfo>>>(models: I) -> Self {
        Self { model: models.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Usage, models::NanoDollars};

    fn table(toml: &str) -> ModelTable {
        ModelTable::parse(toml).unwrap()
    }

    #[test]
    fn the_embedded_table_is_dated_and_has_windows() {
        let table = ModelTable::embedded();
        assert!(table.models().count() >= 150);
        for model in table.models() {
            assert!(model.window.is_some_and(|window| window >= 4_096), "{}", model.id);
            assert!(!model.source.is_empty() && model.as_of.len() == "2026-11-28".len(), "{}", model.id);
            for name in model.alias.iter().chain([&model.id]) {
                assert_eq!(table.find(name).map(|found| &*found.id), Some(&*model.id), "{name}");
            }
        }
        let opus = table.find("claude-opus-5-5-20261001").unwrap();
        assert_eq!((&*opus.id, opus.window, opus.cache_min), ("claude-opus-5-5", Some(1_000_000), Some(512)));
        let usage = Usage { cached_tokens: 1_000_000, ..Usage::new(2_000_000, 100_000) };
        assert_eq!(opus.price.as_ref().unwrap().cost(usage), NanoDollars(6_200_000_000));
        for unknown in ["", "claude-opus-5-5-lite", "claude", "llama3.3:70b"] {
            assert_eq!(table.find(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn an_id_counts_before_an_alias_and_an_alias_before_the_longest_prefix() {
        let table = table(
            "[[model]]\nid = \"a\"\nprefix = \"a-\"\n[[model]]\nid = \"b\"\nalias = [\"a-1\", \"a\"]\n\
             [[model]]\nid = \"c\"\nprefix = \"a-2\"\n[[model]]\nid = \"d\"\nprefix = \"\"",
        );
        let found = |name: &str| table.find(name).map(|model| model.id.clone());
        for (name, id) in [("a", "a"), ("a-1", "b"), ("a-1x", "a"), ("a-20", "c")] {
            assert_eq!(found(name).as_deref(), Some(id), "{name}");
        }
        assert_eq!(found("x"), None);
    }

    #[test]
    fn an_own_table_replaces_only_the_facts_that_it_has() {
        let base = table(
            "[[model]]\nid = \"a\"\nwindow = 10\nmax_output = 5\ncan = [\"tools\"]\nsource = \"s\"\n\
             price = { input = \"1\", output = \"2\" }\n[[model]]\nid = \"b\"\nprefix = \"x\"",
        );
        let own = table(
            "[[model]]\nid = \"a\"\nwindow = 7\ncan = [\"pdf\"]\n[[model]]\nid = \"c\"\nprefix = \"x\"",
        );
        let both = base.with(&own);
        let a = both.find("a").unwrap();
        assert_eq!((a.window, a.max_output, &*a.source), (Some(7), Some(5), "s"));
        assert!(a.can("pdf") && !a.can("tools") && a.price.is_some());
        assert_eq!(both.find("x1").unwrap().id, "c", "the own prefix counts first");
        assert_eq!(both.models().count(), 3);
    }

    #[test]
    fn an_invalid_table_is_an_error_with_its_position() {
        let wrong = |toml: &str| ModelTable::parse(toml).unwrap_err().to_string();
        for (toml, says) in [
            ("[[model]]\nid = \"a\"\nwindw = 3", "unknown field `windw`"),
            ("[[model]]\nid = \"a\"\nwindow = -3", "line 3"),
            ("[[model]]\nid = \"a\"\nprice = { input = \"x\", output = \"1\" }", "invalid price `x`"),
            ("[[model]]\nid = \"a\"\nprice = { input = \"1\" }", "missing field `output`"),
            ("[[model]]\nid = \"a\"\n[[model]]\nid = \"a\"", "two entries for `a`"),
            ("[[model]]\nwindow = 3", "entry 1 of the table of models has no `id`"),
        ] {
            assert!(wrong(toml).contains(says), "{}", wrong(toml));
        }
    }
}
