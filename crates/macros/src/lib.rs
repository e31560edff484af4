//! The derives of superstep.

use proc_macro::TokenStream;

/// Makes a struct a state.
#[proc_macro_derive(State, attributes(channel))]
pub fn derive_state(_input: TokenStream) -> TokenStream {
    TokenStream::new()
}

/// Makes an enum a route.
#[proc_macro_derive(Route)]
pub fn derive_route(_input: TokenStream) -> TokenStream {
    TokenStream::new()
}
