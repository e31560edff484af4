//! The path of the crate whose traits a derive implements, as the user's crate sees it.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{Attribute, Error, Path, Result};

/// The packages that export the traits at their root, each with the name of its library.
const HOMES: [(&str, &str); 2] = [("superstep", "superstep"), ("superstep-graph", "superstep_graph")];

/// The crate that exports the traits.
pub(crate) struct Root(TokenStream);

impl Root {
    /// Reads `#[superstep(crate = path)]`; without it, finds the crate under the name that the user's manifest gives it.
    ///
    /// # Errors
    /// If there is no such attribute and the manifest has no such crate.
    pub(crate) fn of(attributes: &[Attribute]) -> Result<Self> {
        let mut given = None;
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("superstep")) {
            attribute.parse_nested_meta(|meta| {
                if !meta.path.is_ident("crate") {
                    return Err(meta.error("only `#[superstep(crate = path)]` is known here"));
                }
                given = Some(meta.value()?.parse::<Path>()?);
                Ok(())
            })?;
        }
        match given {
            Some(path) => Ok(Self(path.into_token_stream())),
            None => found(&HOMES).map(Self).ok_or_else(|| {
                let message = "the manifest has neither `superstep` nor `superstep-graph`; add one to its \
                    dependencies, or use `#[superstep(crate = path)]`";
                Error::new(Span::call_site(), message)
            }),
        }
    }

    /// Returns the path of the crate, for code that belongs to the place at `span`.
    pub(crate) fn at(&self, span: Span) -> TokenStream {
        let place = |mut token: TokenTree| {
            token.set_span(span);
            token
        };
        self.0.clone().into_iter().map(place).collect()
    }
}

impl ToTokens for Root {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.0.to_tokens(tokens);
    }
}

/// Finds the first of these packages in the user's manifest: its path under the name that it has there. A build without
/// manifests has each library under its own name.
pub(crate) fn found(packages: &[(&str, &str)]) -> Option<TokenStream> {
    let path = |name: &str| {
        let name = Ident::new(name, Span::call_site());
        quote!(::#name)
    };
    for (package, library) in packages {
        match crate_name(package) {
            // Its tests and examples see the library under its name; the library itself through
            // `extern crate self`.
            Ok(FoundCrate::Itself) => return Some(path(library)),
            Ok(FoundCrate::Name(name)) => return Some(path(&name)),
            Err(proc_macro_crate::Error::CrateNotFound { .. }) => {}
            Err(_) => return Some(path(library)),
        }
    }
    None
}
