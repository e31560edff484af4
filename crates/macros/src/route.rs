//! `#[derive(Route)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, Result, ext::IdentExt};

use crate::home::Root;

/// Implements `Route`.
///
/// # Errors
/// All problems of the enum at once.
pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let ident = &input.ident;
    let Data::Enum(data) = &input.data else {
        return Err(Error::new_spanned(ident, "a route has to be an enum with one variant for each branch"));
    };
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &input.generics,
            "a route has no generics: its variants are known beforehand",
        ));
    }
    if data.variants.is_empty() {
        return Err(Error::new_spanned(ident, "a route needs at least one variant"));
    }
    let with_fields = data.variants.iter().filter(|variant| !matches!(variant.fields, Fields::Unit));
    let problems = with_fields.map(|variant| {
        let message = format!(
            "`{}` has fields, and a route carries no data; put the data into the state",
            variant.ident
        );
        Error::new_spanned(&variant.fields, message)
    });
    if let Some(problem) = problems.reduce(crate::combine) {
        return Err(problem);
    }

    let home = Root::of(&input.attrs)?;
    let variants: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    let positions = 0..variants.len();
    let labels = variants.iter().map(|variant| variant.unraw().to_string());
    Ok(quote! {
        #[automatically_derived]
        impl #home::Route for #ident {
            const ALL: &'static [Self] = &[#(Self::#variants),*];

            fn index(self) -> usize {
                match self {
                    #(Self::#variants => #positions,)*
                }
            }

            fn label(self) -> &'static str {
                match self {
                    #(Self::#variants => #labels,)*
                }
            }
        }
    })
}
