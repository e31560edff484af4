//! The path of the traits in the crate that uses a derive.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::{Error, Result};

/// The packages that export the traits at their root, each with the name of its library.
const HOMES: [(&str, &str); 2] = [("superstep", "superstep"), ("superstep-graph", "superstep_graph")];

/// The crate that exports the traits, under its name in the user's manifest.
pub(crate) struct Home(String);

impl Home {
    /// Searches the user's manifest.
    ///
    /// # Errors
    /// If it does not name the crate.
    pub(crate) fn find() -> Result<Self> {
        for (package, library) in HOMES {
            match crate_name(package) {
                // Its tests and examples refer to the library by its name; the library itself through
                // `extern crate self`.
                Ok(FoundCrate::Itself) => return Ok(Self(library.to_owned())),
                Ok(FoundCrate::Name(name)) => return Ok(Self(name)),
                Err(_) => {}
            }
        }
        let message =
            "the manifest names neither `superstep` nor `superstep-graph`; add one to its dependencies";
        Err(Error::new(Span::call_site(), message))
    }

    /// Returns the path of the crate, for code that belongs to the place at `span`.
    pub(crate) fn at(&self, span: Span) -> TokenStream {
        let name = Ident::new(&self.0, span);
        quote_spanned!(span=> ::#name)
    }
}

impl ToTokens for Home {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.at(Span::call_site()).to_tokens(tokens);
    }
}
