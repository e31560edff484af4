//! What the user says about a channel: a field and its `#[channel(..)]`.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote_spanned};
use syn::{Attribute, Error, Field, Path, Result, Type, ext::IdentExt, meta::ParseNestedMeta};

use crate::home::Home;

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
    rule: Rule,
}

/// The reducer of a channel.
enum Rule {
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
            let message = "a channel cannot be called `clear`: in an update that lists the channels which start over; choose another name";
            return Err(Error::new(ident.span(), message));
        }
        let rule = parse_rule(&field.attrs)?.unwrap_or_else(|| Rule::last_value(ident.span()));
        Ok(Self { ident, name, ty: field.ty, rule })
    }

    /// The reducer as the compiler is told of it, such as `<Sum as Reducer<i64>>`.
    pub(crate) fn reducer(&self, home: &Home) -> TokenStream {
        let (first, _) = self.span();
        let (path, ty, home) = (self.rule.path(home), &self.ty, home.at(first));
        quote_spanned!(first=> <#path as #home::Reducer<#ty>>)
    }

    /// The type of what is written to it.
    pub(crate) fn write(&self, home: &Home) -> TokenStream {
        let reducer = self.reducer(home);
        quote_spanned!(self.span().1=> #reducer::Write)
    }

    /// The default value of its type.
    pub(crate) fn default(&self) -> TokenStream {
        let (first, last) = self.span();
        let ty = &self.ty;
        let start = quote_spanned!(first=> <#ty as ::core::default::Default>);
        quote_spanned!(last=> #start::default())
    }

    /// The builder method that lets it start over, if it has one.
    ///
    /// Where only one task may write, the write replaces the value anyway.
    pub(crate) fn clear_method(&self) -> Option<Ident> {
        let exclusive = matches!(self.rule, Rule::BuiltIn { exclusive: true, .. });
        (!exclusive).then(|| format_ident!("clear_{}", self.name, span = self.ident.span()))
    }

    /// The place of the type, for generated code that the compiler may find fault with.
    pub(crate) fn place(&self) -> Span {
        self.span().0
    }

    /// The places of the first and the last token of the type.
    ///
    /// Stable Rust cannot join spans, but the compiler joins those of the first and the last token of an expression.
    /// The code there stays generated code, which lints leave alone.
    fn span(&self) -> (Span, Span) {
        let tokens = self.ty.to_token_stream().into_iter();
        let mut places = tokens.map(|token| Span::call_site().located_at(token.span()));
        let first = places.next().expect("a type has at least one token");
        (first, places.last().unwrap_or(first))
    }
}

/// The channels whose method on the update the `clear_..` of another channel would hide.
pub(crate) fn same_methods(channels: &[Channel]) -> impl Iterator<Item = Error> {
    channels.iter().filter_map(|cleared| {
        let method = cleared.clear_method()?;
        let other = channels.iter().find(|channel| method == channel.name)?;
        let message =
            format!("channel `{}` has a method `{method}` on the update; choose another name", cleared.name);
        Some(Error::new_spanned(&other.ident, message))
    })
}

impl Rule {
    fn last_value(span: Span) -> Self {
        Self::BuiltIn { ident: Ident::new("LastValue", span), exclusive: true }
    }

    /// The reducer's path, with `home` as the crate of the built-in ones.
    fn path(&self, home: &Home) -> TokenStream {
        match self {
            Self::BuiltIn { ident, .. } => {
                let home = home.at(ident.span());
                quote_spanned!(ident.span()=> #home::#ident)
            }
            Self::With(path) => path.to_token_stream(),
        }
    }
}

/// The reducer that the attributes of a field choose.
fn parse_rule(attributes: &[Attribute]) -> Result<Option<Rule>> {
    let mut chosen = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("channel")) {
        let mut empty = true;
        attribute.parse_nested_meta(|meta| {
            empty = false;
            let rule = parse_word(&meta)?;
            if chosen.replace(rule).is_some() {
                return Err(meta.error("a channel has one reducer; remove this one or the one before"));
            }
            Ok(())
        })?;
        if empty {
            return Err(Error::new_spanned(
                attribute,
                format!("no reducer is chosen; known are {}", known()),
            ));
        }
    }
    Ok(chosen)
}

fn parse_word(meta: &ParseNestedMeta<'_>) -> Result<Rule> {
    let Some(word) = meta.path.get_ident() else {
        return Err(meta.error(format!("a path is no reducer on its own; known are {}", known())));
    };
    if word == "with" {
        return Ok(Rule::With(meta.value()?.parse()?));
    }
    let found = BUILT_IN.iter().find(|(known, ..)| word == known);
    let &(_, reducer, exclusive) =
        found.ok_or_else(|| meta.error(format!("`{word}` is no reducer; known are {}", known())))?;
    Ok(Rule::BuiltIn { ident: Ident::new(reducer, word.span()), exclusive })
}

fn known() -> String {
    let words = BUILT_IN.map(|(word, ..)| format!("`{word}`"));
    format!("{} and `with = path::Type`", words.join(", "))
}
