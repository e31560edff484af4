//! `#[derive(View)]` and `#[derive(Input)]`.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Attribute, Data, DeriveInput, Error, Fields, Ident, Path, Result, spanned::Spanned};

use crate::home::Root;

/// Implements `View`.
///
/// # Errors
/// All problems of the struct at once.
pub(crate) fn expand_view(input: &DeriveInput) -> Result<TokenStream> {
    let Part { ident, of, fields } = Part::parse(input, "view")?;
    let home = Root::of(&input.attrs)?;
    let values = fields.iter().map(|Field { ident, place, flatten }| {
        let value = if *flatten {
            quote_spanned!(*place=> #home::View::view(&state.#ident))
        } else {
            quote_spanned!(*place=> ::core::clone::Clone::clone(&state.#ident))
        };
        quote_spanned! {*place=>
            #ident: {
                let value = #value;
                value
            },
        }
    });
    let state = if fields.is_empty() { quote!(_) } else { quote!(state) };
    Ok(quote! {
        #[automatically_derived]
        impl #home::View<#of> for #ident {
            fn view(#state: &#of) -> Self {
                Self { #(#values)* }
            }
        }
    })
}

/// Implements the conversion into the update of the state.
///
/// # Errors
/// All problems of the struct at once.
pub(crate) fn expand_input(input: &DeriveInput) -> Result<TokenStream> {
    let Part { ident, of, fields } = Part::parse(input, "input")?;
    let home = Root::of(&input.attrs)?;
    let writes = fields.iter().map(|Field { ident, place, flatten }| {
        if *flatten {
            quote_spanned!(*place=> update = update.#ident(input.#ident);)
        } else {
            quote_spanned! {*place=>
                update.#ident = ::core::option::Option::Some(::core::convert::Into::into(input.#ident));
            }
        }
    });
    Ok(quote! {
        #[automatically_derived]
        impl ::core::convert::From<#ident> for <#of as #home::State>::Update {
            #[allow(unused_mut, unused_variables)]
            fn from(input: #ident) -> Self {
                let mut update = <#of as #home::State>::update();
                #(#writes)*
                update
            }
        }
    })
}

/// A struct with some channels of a state.
struct Part<'a> {
    ident: &'a Ident,
    /// The state.
    of: Path,
    fields: Vec<Field<'a>>,
}

struct Field<'a> {
    ident: &'a Ident,
    /// The place of its type.
    place: Span,
    /// `true` if it is a part of a flattened state.
    flatten: bool,
}

impl<'a> Field<'a> {
    fn parse(field: &'a syn::Field, word: &str) -> Result<Self> {
        let ident = field.ident.as_ref().expect("the fields are named");
        let mut flatten = false;
        for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident(word)) {
            attribute.parse_nested_meta(|meta| {
                flatten = meta.path.is_ident("flatten");
                if flatten {
                    Ok(())
                } else {
                    Err(meta.error(format!("only `#[{word}(flatten)]` is known here")))
                }
            })?;
        }
        Ok(Self { ident, place: Span::call_site().located_at(field.ty.span()), flatten })
    }
}

impl<'a> Part<'a> {
    fn parse(input: &'a DeriveInput, word: &str) -> Result<Self> {
        let ident = &input.ident;
        let mut problems = Vec::new();
        let mut fields = Vec::new();
        match &input.data {
            Data::Struct(data) if matches!(data.fields, Fields::Named(_)) => {
                for field in &data.fields {
                    match Field::parse(field, word) {
                        Ok(field) => fields.push(field),
                        Err(problem) => problems.push(problem),
                    }
                }
            }
            _ => {
                let message = "a part of a state is a struct whose named fields are channels of it";
                problems.push(Error::new_spanned(ident, message));
            }
        }
        if !input.generics.params.is_empty() {
            let message = "a part of a state has no generics: the channels have none";
            problems.push(Error::new_spanned(&input.generics, message));
        }
        let of = of(ident, &input.attrs, word);
        match (of, problems.into_iter().reduce(crate::combine)) {
            (Ok(of), None) => Ok(Self { ident, of, fields }),
            (Ok(_), Some(problem)) | (Err(problem), None) => Err(problem),
            (Err(problem), Some(others)) => Err(crate::combine(others, problem)),
        }
    }
}

/// Returns the state that `#[view(of = State)]` names.
fn of(ident: &Ident, attributes: &[Attribute], word: &str) -> Result<Path> {
    let mut of = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident(word)) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("of") {
                return Err(meta.error(format!("only `#[{word}(of = State)]` is known")));
            }
            match of.replace(meta.value()?.parse::<Path>()?) {
                None => Ok(()),
                Some(_) => Err(meta.error("duplicate option; remove one of the two")),
            }
        })?;
    }
    let missing = || Error::new_spanned(ident, format!("the state is missing: `#[{word}(of = State)]`"));
    of.ok_or_else(missing)
}
