//! Where the traits are found from the crate that uses a derive.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::{Error, Result};

/// The packages that export the traits at their root, each with the name of its library.
const HOMES: [(&str, &str); 2] = [("superstep", "superstep"), ("superstep-graph", "superstep_graph")];

/// The path of the crate that exports the traits, under the name it has in the user's manifest.
///
/// # Errors
/// If the manifest names none of them.
pub(crate) fn path() -> Result<TokenStream> {
    for (package, library) in HOMES {
        let name = match crate_name(package) {
            // Its tests and examples see the library under its name; the library itself through `extern crate self`.
            Ok(FoundCrate::Itself) => library.to_owned(),
            Ok(FoundCrate::Name(name)) => name,
            Err(_) => continue,
        };
        let name = Ident::new(&name, Span::call_site());
        return Ok(quote!(::#name));
    }
    let message =
        "the manifest names neither `superstep` nor `superstep-graph`; add one of them to its dependencies";
    Err(Error::new(Span::call_site(), message))
}
