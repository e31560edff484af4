//! `#[derive(View)]` and `#[derive(Input)]`.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Attribute, Data, DeriveInput, Error, Fields, Ident, Path, Result, spanned::Spanned};

use crate::home::Home;

/// Implements `View`.
///
/// # Errors
/// All that is wrong with the struct at once.
pub(crate) fn expand_view(input: &DeriveInput) -> Result<TokenStream> {
    let Part { ident, of, fields } = Part::parse(input, "view")?;
    let home = Home::find()?;
    let values = fields.iter().map(|(field, place)| {
        quote_spanned! {*place=>
            #field: {
                let value = ::core::clone::Clone::clone(&state.#field);
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
/// All that is wrong with the struct at once.
pub(crate) fn expand_input(input: &DeriveInput) -> Result<TokenStream> {
    let Part { ident, of, fields } = Part::parse(input, "input")?;
    let home = Home::find()?;
    let writes = fields.iter().map(|(field, place)| {
        quote_spanned! {*place=>
            update.#field = ::core::option::Option::Some(::core::convert::Into::into(input.#field));
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
    /// The fields, each with the place of its type.
    fields: Vec<(&'a Ident, Span)>,
}

impl<'a> Part<'a> {
    fn parse(input: &'a DeriveInput, word: &str) -> Result<Self> {
        let ident = &input.ident;
        let mut problems = Vec::new();
        let mut fields = Vec::new();
        match &input.data {
            Data::Struct(data) if matches!(data.fields, Fields::Named(_)) => {
                for field in &data.fields {
                    let name = field.ident.as_ref().expect("the fields are named");
                    fields.push((name, Span::call_site().located_at(field.ty.span())));
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

/// The state that `#[view(of = State)]` names.
fn of(ident: &Ident, attributes: &[Attribute], word: &str) -> Result<Path> {
    let mut of = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident(word)) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("of") {
                return Err(meta.error(format!("only `#[{word}(of = State)]` is known")));
            }
            match of.replace(meta.value()?.parse::<Path>()?) {
                None => Ok(()),
                Some(_) => Err(meta.error("this is said twice; remove one of the two")),
            }
        })?;
    }
    let missing = || Error::new_spanned(ident, format!("say of which state: `#[{word}(of = State)]`"));
    of.ok_or_else(missing)
}
