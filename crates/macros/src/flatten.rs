//! A field that is itself a state, whose channels belong to the outer state.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Error, Field, Result, Type, spanned::Spanned};

use crate::{home::Root, options::FieldOptions};

/// One flattened state.
pub(crate) struct Flat {
    pub(crate) ident: Ident,
    /// The type of the field: the state.
    pub(crate) ty: Type,
    /// The number of channels of the outer state that precede its own: a number of fields, and the channels
    /// of these states.
    fields_before: usize,
    flats_before: Vec<Type>,
}

impl Flat {
    /// Reads a named field, with the attribute `flatten`. `channels` and `flats` come before it.
    ///
    /// # Errors
    /// If it has other attributes, or the field has a reserved name.
    pub(crate) fn parse(
        field: Field,
        options: &FieldOptions,
        channels: usize,
        flats: &[Self],
    ) -> Result<Self> {
        let ident = field.ident.expect("the fields of a state are named");
        if !options.only_flatten() {
            let message = "the channels of a flattened state have their own options; leave only `flatten` \
                here";
            return Err(Error::new_spanned(ident, message));
        }
        if ident == "clear" {
            let message = "a field cannot be called `clear`: in an update that lists the channels which start over; choose another name";
            return Err(Error::new_spanned(ident, message));
        }
        let flats_before = flats.iter().map(|flat| flat.ty.clone()).collect();
        Ok(Self { ident, ty: field.ty, fields_before: channels, flats_before })
    }

    /// Returns the type of its updates.
    pub(crate) fn update(&self, home: &Root) -> TokenStream {
        update_of(&self.ty, home)
    }

    /// Returns the positions of its channels in the outer state.
    pub(crate) fn positions(&self, home: &Root) -> TokenStream {
        let start = position(self.fields_before, &self.flats_before, home);
        let update = self.update(home);
        quote!(#start..#start + <#update as #home::__private::Fixed>::COUNT)
    }
}

/// Returns the position after this number of fields and the channels of these flattened states.
pub(crate) fn position(fields: usize, flats: &[Type], home: &Root) -> TokenStream {
    if flats.is_empty() {
        return quote!(#fields);
    }
    let updates = flats.iter().map(|ty| update_of(ty, home));
    quote!((#fields #(+ <#updates as #home::__private::Fixed>::COUNT)*))
}

fn update_of(ty: &Type, home: &Root) -> TokenStream {
    let place = Span::call_site().located_at(ty.span());
    let home = home.at(place);
    quote_spanned!(place=> <#ty as #home::State>::Update)
}
