//! The options of a field: `#[channel(..)]`.
//!
//! Start at [`FieldOptions`].

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::{
    Attribute, Error, LitInt, LitStr, Path, Result, ext::IdentExt, meta::ParseNestedMeta, parse::Parser,
};

use crate::home::Root;

/// The built-in reducers, by keyword: the type, and whether the channel accepts one write per superstep.
const BUILT_IN: [(&str, &str, bool); 10] = [
    ("append", "Append", false),
    ("merge_by_id", "MergeById", false),
    ("sum", "Sum", false),
    ("max", "Max", false),
    ("union", "Union", false),
    ("topic", "Topic", false),
    ("barrier", "Arrive", false),
    ("ephemeral", "Ephemeral", true),
    ("last_value", "LastValue", true),
    ("any_value", "AnyValue", false),
];

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
        let mut said = Self::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("channel")) {
            let mut empty = true;
            attribute.parse_nested_meta(|meta| {
                empty = false;
                said.word(&meta)
            })?;
            if empty {
                return Err(Error::new_spanned(
                    attribute,
                    format!("no reducer is chosen; known are {}", known()),
                ));
            }
        }
        Ok(said)
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
    /// A reducer of superstep.
    BuiltIn {
        /// The reducer's name; its span is where the user chose it.
        ident: Ident,
        /// `true` if the channel accepts one write per superstep.
        exclusive: bool,
    },
    /// A custom reducer.
    With(Path),
    /// A function of the value and the write, and the name of the generated reducer.
    FoldWith { path: Path, reducer: Ident },
}

impl Rule {
    /// Reads the word of an attribute.
    fn parse(meta: &ParseNestedMeta<'_>) -> Result<Self> {
        let Some(word) = meta.path.get_ident() else {
            return Err(meta.error(format!("a path alone is not a reducer; known reducers are {}", known())));
        };
        if word == "with" {
            return Ok(Self::With(meta.value()?.parse()?));
        }
        if word == "fold_with" {
            return Ok(Self::FoldWith { path: meta.value()?.parse()?, reducer: word.clone() });
        }
        let found = BUILT_IN.iter().find(|(known, ..)| word == known);
        let &(_, reducer, exclusive) = found.ok_or_else(|| {
            let beside = "`untracked`, `was`, `version`, `migrate` and `required` may stand beside one";
            meta.error(format!("unknown reducer `{word}`; known reducers are {}; {beside}", known()))
        })?;
        Ok(Self::BuiltIn { ident: Ident::new(reducer, word.span()), exclusive })
    }

    /// Returns whether a write is a list, unless the channel is a `String`.
    pub(crate) fn is_list(&self) -> bool {
        let lists = ["Append", "Topic", "Union"];
        matches!(self, Self::BuiltIn { ident, .. } if lists.iter().any(|list| ident == list))
    }

    pub(crate) fn last_value(span: Span) -> Self {
        Self::BuiltIn { ident: Ident::new("LastValue", span), exclusive: true }
    }

    /// Returns the reducer's path, with `home` as the crate of the built-in ones.
    pub(crate) fn path(&self, home: &Root) -> TokenStream {
        match self {
            Self::BuiltIn { ident, .. } => {
                let home = home.at(ident.span());
                quote_spanned!(ident.span()=> #home::state::#ident)
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

fn known() -> String {
    let words = BUILT_IN.map(|(word, ..)| format!("`{word}`"));
    format!(
        "{}, `fold_with = path` and `with = path::Type`; `flatten` takes in another state",
        words.join(", ")
    )
}
