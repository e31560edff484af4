//! The struct that derives `State`.

use quote::format_ident;
use syn::{Data, DeriveInput, Error, Field, Fields, Ident, Result, Type, Visibility, ext::IdentExt};

use crate::{
    channel::{self, Channel},
    flatten::Flat,
    options::FieldOptions,
};

/// The derive's input: a struct that is a state.
pub(super) struct Input {
    pub(super) vis: Visibility,
    pub(super) ident: Ident,
    pub(super) update: Ident,
}

/// The fields of a state.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) channels: Vec<Channel>,
    /// The number of channels that precede each of them: a number of fields, and the channels of these
    /// states.
    pub(super) positions: Vec<(usize, Vec<Type>)>,
    pub(super) flats: Vec<Flat>,
}

impl Parts {
    fn add(&mut self, state: &Ident, field: Field) -> Result<()> {
        let options = FieldOptions::parse(&field.attrs)?;
        if options.flatten {
            self.flats.push(Flat::parse(field, &options, self.channels.len(), &self.flats)?);
        } else {
            let flats = self.flats.iter().map(|flat| flat.ty.clone()).collect();
            self.positions.push((self.channels.len(), flats));
            self.channels.push(Channel::parse(state, field, options)?);
        }
        Ok(())
    }
}

/// Reads the struct.
///
/// # Errors
/// All its problems at once.
pub(super) fn parse(input: DeriveInput) -> Result<(Input, Parts)> {
    let DeriveInput { attrs, vis, ident, generics, data, .. } = input;
    let Data::Struct(data) = data else {
        return Err(Error::new_spanned(ident, "a state is a struct whose named fields are its channels"));
    };
    let Fields::Named(fields) = data.fields else {
        return Err(Error::new_spanned(
            ident,
            "a state has named fields: checkpoints refer to channels by name",
        ));
    };
    let mut problems = Vec::new();
    if !generics.params.is_empty() {
        let message =
            "a state cannot be generic, because it has one update type and one stored form; name the types";
        problems.push(Error::new_spanned(&generics, message));
    }
    if let Some(attribute) = attrs.iter().find(|attribute| attribute.path().is_ident("channel")) {
        problems.push(Error::new_spanned(attribute, "`#[channel(..)]` belongs to a field, not to the state"));
    }
    let mut parts = Parts::default();
    for field in fields.named {
        problems.extend(parts.add(&ident, field).err());
    }
    problems.extend(channel::same_methods(&parts.channels, &parts.flats));
    problems.extend(channel::same_names(&parts.channels));
    if let Some(problem) = problems.into_iter().reduce(crate::combine) {
        return Err(problem);
    }
    let update = format_ident!("{}Update", ident.unraw(), span = ident.span());
    Ok((Input { vis, ident, update }, parts))
}
