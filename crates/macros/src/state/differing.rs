//! Comparison of an update with the one read back from its JSON.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};

use super::{Code, Input};
use crate::home::Root;

impl Input {
    /// Returns the function that finds the stored channels whose writes differ between two updates, as far as
    /// the compiler finds that their types can be compared.
    pub(super) fn differing(&self, code: &Code<'_>) -> TokenStream {
        let Code { home, positions, idents, stored, places, flats, .. } = code;
        let fixed = quote!(#home::__private::Fixed);
        let channels = positions.iter().zip(idents).zip(places).zip(stored).filter(|(_, stored)| **stored);
        let channels = channels.map(|(((position, ident), place), _)| {
            quote_spanned! {*place=>
                if (&#home::__private::Pair(&self.#ident, &other.#ident)).differ() {
                    channels.insert(#position);
                }
            }
        });
        let (inner, updates, ranges) = (&flats.idents, &flats.updates, &flats.positions);
        quote! {
            #[allow(clippy::needless_borrow, unused_imports)]
            fn differing(&self, other: &Self) -> #home::__private::ChannelSet {
                use #home::__private::{Comparable as _, Incomparable as _};
                let mut channels = #home::__private::ChannelSet::EMPTY;
                #(#channels)*
                #(
                    let differing = <#updates as #fixed>::differing(&self.#inner, &other.#inner);
                    channels = channels.union(differing.moved((#ranges).start));
                )*
                let (later, others) = (self.__later.iter(), other.__later.iter());
                if later.len() == others.len() {
                    for (one, other) in later.zip(others) {
                        channels = channels.union(<Self as #fixed>::differing(one, other));
                    }
                }
                channels
            }
        }
    }

    /// Returns the same function of the state.
    pub(super) fn differing_of_state(&self, home: &Root) -> TokenStream {
        let update = &self.update;
        quote! {
            fn differing(&self, one: &#update, other: &#update) -> #home::__private::ChannelSet {
                <#update as #home::__private::Fixed>::differing(one, other)
            }
        }
    }
}
