//! JSON Schemas of channels.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};

use super::{Code, Input};

impl Input {
    /// Returns the function that describes a channel, as far as the compiler finds that its type has a schema.
    pub(super) fn schema(&self, code: &Code<'_>) -> TokenStream {
        let Code { home, positions, idents, stored, places, flats, .. } = code;
        let (update, shape) = (&self.update, quote!(#home::__private::Shape));
        let channels = positions.iter().zip(idents).zip(places).zip(stored).filter(|(_, stored)| **stored);
        let channels = channels.map(|(((position, ident), place), _)| {
            quote_spanned! {*place=>
                if channel == #position {
                    return match form {
                        #home::state::Stored::Value => (&#shape::of_value(&self.#ident)).schema(generator),
                        #home::state::Stored::Write => {
                            (&#shape::of_write(|update: &#update| &update.#ident)).schema(generator)
                        }
                    };
                }
            }
        });
        let (inner, types, ranges) = (&flats.idents, &flats.types, &flats.positions);
        quote! {
            #[allow(clippy::needless_borrow, unused_imports, unused_variables)]
            fn schema(
                &self,
                channel: usize,
                form: #home::state::Stored,
                generator: &mut #home::__private::SchemaGenerator,
            ) -> ::core::option::Option<#home::__private::Schema> {
                use #home::__private::{Described as _, Undescribed as _};
                #(#channels)*
                #(
                    if (#ranges).contains(&channel) {
                        let channel = channel - (#ranges).start;
                        return <#types as #home::State>::schema(&self.#inner, channel, form, generator);
                    }
                )*
                ::core::option::Option::None
            }
        }
    }
}
