//! What the user says about a channel: a field and its `#[channel(..)]`.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{Attribute, Error, Field, Path, Result, Type, ext::IdentExt, meta::ParseNestedMeta};

/// The built-in reducers, by the word that chooses them: the type, and whether only one task may write.
const BUILT_IN: [(&str, &str, bool); 7] = [
    ("append", "Append", false),
    ("merge_by_id", "MergeById", false),
    ("sum", "Sum", false),
    ("max", "Max", false),
    ("union", "Union", false),
    ("ephemeral", "Ephemeral", true),
    ("last_value", "LastValue", true),
];

/// One channel of a state.
pub(crate) struct Channel {
    /// The field.
    pub(crate) ident: Ident,
    /// The field's name as checkpoints have it, without `r#`.
    pub(crate) name: String,
    /// The field's type.
    pub(crate) ty: Type,
    /// How writes fold into it.
    pub(crate) rule: Rule,
}

/// The reducer of a channel.
pub(crate) enum Rule {
    /// One that comes with superstep.
    BuiltIn {
        /// The reducer's name; its span is where the user chose it.
        ident: Ident,
        /// Whether only one task may write the channel in a superstep.
        exclusive: bool,
    },
    /// One of the user's own.
    With(Path),
}

impl Channel {
    /// Reads a named field.
    ///
    /// # Errors
    /// An unknown reducer, more than one, or a reserved name.
    pub(crate) fn parse(field: Field) -> Result<Self> {
        let ident = field.ident.expect("the fields of a state are named");
        let name = ident.unraw().to_string();
        if name == "clear" {
            let message = "a channel cannot be called `clear`: that entry of an update lists the channels which start \
                           over; choose another name";
            return Err(Error::new(ident.span(), message));
        }
        let rule = parse_rule(&field.attrs)?.unwrap_or_else(|| Rule::last_value(ident.span()));
        Ok(Self {
            ident,
            name,
            ty: field.ty,
            rule,
        })
    }

    /// The first and the last token of the type, for errors that are about it.
    ///
    /// Stable Rust cannot join spans, but the compiler joins those of the first and the last token of an expression.
    pub(crate) fn span(&self) -> (Span, Span) {
        let mut tokens = self.ty.to_token_stream().into_iter();
        let first = tokens
            .next()
            .as_ref()
            .map_or_else(Span::call_site, TokenTree::span);
        (first, tokens.last().as_ref().map_or(first, TokenTree::span))
    }
}

impl Rule {
    fn last_value(span: Span) -> Self {
        Self::BuiltIn {
            ident: Ident::new("LastValue", span),
            exclusive: true,
        }
    }

    /// The reducer's path, with `home` as the crate of the built-in ones.
    pub(crate) fn path(&self, home: &TokenStream) -> TokenStream {
        match self {
            Self::BuiltIn { ident, .. } => quote!(#home::#ident),
            Self::With(path) => path.to_token_stream(),
        }
    }

    /// Whether it is known to let only one task write in a superstep.
    pub(crate) fn exclusive(&self) -> bool {
        matches!(self, Self::BuiltIn { exclusive: true, .. })
    }
}

/// The reducer that the attributes of a field choose.
fn parse_rule(attributes: &[Attribute]) -> Result<Option<Rule>> {
    let mut chosen = None;
    for attribute in attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("channel"))
    {
        let before = chosen.is_some();
        attribute.parse_nested_meta(|meta| {
            let rule = parse_word(&meta)?;
            if chosen.replace(rule).is_some() {
                return Err(meta.error("a channel has one reducer; remove this one or the one before"));
            }
            Ok(())
        })?;
        if chosen.is_none() && !before {
            return Err(Error::new_spanned(
                attribute,
                format!("choose a reducer: {}", known()),
            ));
        }
    }
    Ok(chosen)
}

fn parse_word(meta: &ParseNestedMeta<'_>) -> Result<Rule> {
    let Some(word) = meta.path.get_ident() else {
        return Err(meta.error(format!(
            "a reducer of your own is chosen with `with = path::Type`; built in: {}",
            known()
        )));
    };
    if word == "with" {
        return Ok(Rule::With(meta.value()?.parse()?));
    }
    let found = BUILT_IN.iter().find(|(known, ..)| word == known);
    let &(_, reducer, exclusive) =
        found.ok_or_else(|| meta.error(format!("`{word}` is no reducer; known are {}", known())))?;
    Ok(Rule::BuiltIn {
        ident: Ident::new(reducer, word.span()),
        exclusive,
    })
}

fn known() -> String {
    let words = BUILT_IN.map(|(word, ..)| format!("`{word}`"));
    format!("{} and `with = path::Type`", words.join(", "))
}
