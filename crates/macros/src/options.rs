//! The options of a field: `#[channel(..)]`.
//!
//! Start at [`FieldOptions`].

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::{
    Attribute, Error, LitInt, LitStr, Path, Result, ext::IdentExt, meta::ParseNestedMeta, parse::Parser,
};

use crate::home::Root;

/// The parsed attributes of a field.
#[derive(Default)]
pub(crate) struct FieldOptions {
    pub(crate) rule: Option<Rule>,
    pub(crate) was: Vec<LitStr>,
    pub(crate) version: Option<LitInt>,
    pub(crate) migrate: Option<Path>,
    pub(crate) required: bool,
    pub(crate) untracked: bool,
    /// `true` if the field is not a channel, but a state whose channels belong to this one.
    pub(crate) flatten: bool,
}

impl FieldOptions {
    pub(crate) fn parse(attributes: &[Attribute]) -> Result<Self> {
        let mut options = Self::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("channel")) {
            let mut empty = true;
            attribute.parse_nested_meta(|meta| {
                empty = false;
                options.word(&meta)
            })?;
            if empty {
                return Err(Error::new_spanned(attribute, NO_REDUCER));
            }
        }
        Ok(options)
    }

    fn word(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let again = if meta.path.is_ident("was") {
            self.was.push(name(meta.value()?.parse()?)?);
            false
        } else if meta.path.is_ident("version") {
            self.version.replace(meta.value()?.parse()?).is_some()
        } else if meta.path.is_ident("migrate") {
            self.migrate.replace(meta.value()?.parse()?).is_some()
        } else if meta.path.is_ident("required") {
            std::mem::replace(&mut self.required, true)
        } else if meta.path.is_ident("untracked") {
            std::mem::replace(&mut self.untracked, true)
        } else if meta.path.is_ident("flatten") {
            std::mem::replace(&mut self.flatten, true)
        } else if self.rule.replace(Rule::parse(meta)?).is_some() {
            return Err(meta.error("a channel has one reducer; remove this one or the one before"));
        } else {
            false
        };
        if again { Err(meta.error("duplicate option; remove one of the two")) } else { Ok(()) }
    }

    /// Returns whether `flatten` is the only attribute.
    pub(crate) fn only_flatten(&self) -> bool {
        let Self { rule, was, version, migrate, required, untracked, flatten } = self;
        let more = rule.is_some() || version.is_some() || migrate.is_some() || *required || *untracked;
        *flatten && was.is_empty() && !more
    }
}

/// The reducer of a channel.
pub(crate) enum Rule {
    /// A reducer of superstep: its keyword, where the user chose it.
    BuiltIn(Ident),
    /// A custom reducer.
    With(Path),
    /// A function of the value and the write, and the name of the generated reducer.
    FoldWith { path: Path, reducer: Ident },
}

impl Rule {
    /// Reads the word of an attribute.
    fn parse(meta: &ParseNestedMeta<'_>) -> Result<Self> {
        let Some(word) = meta.path.get_ident() else {
            return Err(meta.error("a path alone is not a reducer; use `with = path::Type`"));
        };
        if word == "with" {
            return Ok(Self::With(meta.value()?.parse()?));
        }
        if word == "fold_with" {
            return Ok(Self::FoldWith { path: meta.value()?.parse()?, reducer: word.clone() });
        }
        // The compiler finds the reducer, or reports the word.
        Ok(Self::BuiltIn(word.clone()))
    }

    /// Returns whether a write replaces the value, and is the only one of a superstep.
    pub(crate) fn replaces(&self) -> bool {
        self.is_one_of(&["last_value", "ephemeral"])
    }

    /// Returns whether a write is a list, unless the channel is a `String`.
    pub(crate) fn is_list(&self) -> bool {
        self.is_one_of(&["append", "topic", "union"])
    }

    fn is_one_of(&self, words: &[&str]) -> bool {
        matches!(self, Self::BuiltIn(word) if words.iter().any(|known| word == known))
    }

    pub(crate) fn last_value(span: Span) -> Self {
        Self::BuiltIn(Ident::new("last_value", span))
    }

    /// Returns the reducer's path, with `home` as the crate of the built-in ones.
    pub(crate) fn path(&self, home: &Root) -> TokenStream {
        match self {
            Self::BuiltIn(word) => {
                let home = home.at(word.span());
                quote_spanned!(word.span()=> #home::state::reducers::#word)
            }
            Self::With(path) => path.to_token_stream(),
            Self::FoldWith { reducer, .. } => reducer.to_token_stream(),
        }
    }
}

/// Returns a name that a channel can have had.
fn name(was: LitStr) -> Result<LitStr> {
    let value = was.value();
    if Ident::parse_any.parse_str(&value).is_err() || value == "clear" {
        let message = format!("no channel was ever called `{value}`; it takes the name that the field had");
        return Err(Error::new_spanned(was, message));
    }
    Ok(was)
}

const NO_REDUCER: &str = "no reducer is chosen; write for example `append`, `fold_with = path` or `with = path::Type`; `flatten` takes in another state";
