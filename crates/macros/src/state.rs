//! `#[derive(State)]`.

mod differing;
mod input;
mod schema;

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::{DeriveInput, Ident, LitStr, Result, Type, ext::IdentExt};

use self::input::{Input, Parts, parse};
use crate::{
    channel::Channel,
    flatten::{self, Flat},
    home::Root,
};

/// Generates the update type and implements `State` and `Update`.
///
/// # Errors
/// All problems of the struct at once.
pub(crate) fn expand(input: DeriveInput) -> Result<TokenStream> {
    let home = Root::of(&input.attrs)?;
    let (state, Parts { channels, positions, flats }) = parse(input)?;
    let code = Code::new(home, &channels, &positions, &flats);
    let capacity = state.capacity(&code);
    let fitting = fitting(&channels, &code);
    // The compiler reports errors in this order, and this part gives the clearest error about a type that is
    // not serializable.
    let impl_state = state.impl_state(&code);
    let impl_update = state.impl_update(&code);
    let update = state.update_type(&code, &channels);
    let builders = state.builders(&code, &channels);
    let made = channels.iter().filter_map(|channel| channel.made(&state.vis, &code.home));
    let made: TokenStream = made.collect();
    let flattens = state.flattens(&code);
    Ok(quote!(#made #capacity #fitting #impl_state #impl_update #update #builders #flattens))
}

/// Code about the channels that is used more than once: a column for each kind, a row for each channel.
struct Code<'a> {
    home: Root,
    /// The positions, as constant expressions.
    positions: Vec<TokenStream>,
    idents: Vec<&'a Ident>,
    names: Vec<&'a str>,
    types: Vec<&'a Type>,
    /// The reducers, such as `<Sum as Reducer<i64>>`.
    reducers: Vec<TokenStream>,
    /// The types of writes.
    writes: Vec<TokenStream>,
    /// The default values.
    defaults: Vec<TokenStream>,
    /// The former names, versions and migrations, and whether channels are required or untracked.
    history: Vec<TokenStream>,
    /// The former names.
    was: Vec<&'a [LitStr]>,
    /// The places of their types.
    places: Vec<Span>,
    /// `true` for channels that are stored.
    stored: Vec<bool>,
    /// The number of channels, as a constant expression.
    count: TokenStream,
    flats: FlatCode<'a>,
}

/// The code of the flattened states.
struct FlatCode<'a> {
    idents: Vec<&'a Ident>,
    types: Vec<&'a Type>,
    updates: Vec<TokenStream>,
    /// The positions of their channels, as ranges.
    positions: Vec<TokenStream>,
}

impl<'a> Code<'a> {
    fn new(home: Root, channels: &'a [Channel], positions: &[(usize, Vec<Type>)], flats: &'a [Flat]) -> Self {
        let types: Vec<_> = flats.iter().map(|flat| flat.ty.clone()).collect();
        Self {
            positions: positions
                .iter()
                .map(|(fields, flats)| flatten::position(*fields, flats, &home))
                .collect(),
            idents: channels.iter().map(|channel| &channel.ident).collect(),
            names: channels.iter().map(|channel| channel.name.as_str()).collect(),
            types: channels.iter().map(|channel| &channel.ty).collect(),
            reducers: channels.iter().map(|channel| channel.reducer(&home)).collect(),
            writes: channels.iter().map(|channel| channel.write(&home)).collect(),
            defaults: channels.iter().map(Channel::default).collect(),
            history: channels.iter().map(Channel::history).collect(),
            was: channels.iter().map(|channel| channel.was.as_slice()).collect(),
            places: channels.iter().map(Channel::place).collect(),
            stored: channels.iter().map(|channel| !channel.untracked).collect(),
            count: flatten::position(channels.len(), &types, &home),
            flats: FlatCode {
                idents: flats.iter().map(|flat| &flat.ident).collect(),
                types: flats.iter().map(|flat| &flat.ty).collect(),
                updates: flats.iter().map(|flat| flat.update(&home)).collect(),
                positions: flats.iter().map(|flat| flat.positions(&home)).collect(),
            },
            home,
        }
    }
}

impl Input {
    fn update_type(&self, code: &Code<'_>, channels: &[Channel]) -> TokenStream {
        let Self { vis, ident, update } = self;
        let Code { home, writes, flats, .. } = code;
        let fields = channels.iter().zip(writes).map(|(channel, write)| {
            let (ident, name, place) = (&channel.ident, &channel.name, channel.place());
            let doc = format!("The write to `{name}`, if there is one.");
            quote_spanned! {place=>
                #[doc = #doc]
                #vis #ident: ::core::option::Option<#write>,
            }
        });
        let flattened = flats.idents.iter().zip(&flats.updates).map(|(ident, update)| {
            let doc = format!("The writes to the channels of `{}`.", ident.unraw());
            quote! {
                #[doc = #doc]
                #vis #ident: #update,
            }
        });
        let doc = format!("The update of a [`{}`]: for each channel a write or nothing.", ident.unraw());
        let debug = if channels.iter().any(|channel| channel.untracked) {
            (quote!(), Some(self.debug(channels, &flats.idents)))
        } else {
            (quote!(::core::fmt::Debug,), None)
        };
        let (derived_debug, written_debug) = debug;
        quote! {
            #written_debug

            #[doc = #doc]
            #[derive(
                ::core::clone::Clone,
                #derived_debug
                ::core::default::Default,
            )]
            #vis struct #update {
                #(#fields)*
                #(#flattened)*
                /// The channels cleared before the writes of this update are folded.
                #vis clear: #home::__private::Cleared<#update>,
                // As visible as the others, so that `..Default::default()` compiles.
                #[doc(hidden)]
                #vis __later: #home::__private::Later<#update>,
            }
        }
    }

    /// Generates `Debug` like the derive, except that untracked channels may have types without `Debug`.
    fn debug(&self, channels: &[Channel], flats: &[&Ident]) -> TokenStream {
        let update = &self.update;
        let name = update.to_string();
        let fields = channels.iter().map(|Channel { ident, name, untracked, .. }| {
            let shown = if *untracked {
                quote!(&self.#ident.as_ref().map(|_| ::core::format_args!("(untracked)")))
            } else {
                quote!(&self.#ident)
            };
            quote!(.field(#name, #shown))
        });
        let flats = flats.iter().map(|ident| {
            let name = ident.unraw().to_string();
            quote!(.field(#name, &self.#ident))
        });
        quote! {
            #[automatically_derived]
            impl ::core::fmt::Debug for #update {
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    f.debug_struct(#name)#(#fields)*#(#flats)*
                        .field("clear", &self.clear)
                        .field("__later", &self.__later)
                        .finish()
                }
            }
        }
    }

    fn builders(&self, code: &Code<'_>, channels: &[Channel]) -> TokenStream {
        let Self { vis, update, .. } = self;
        let Code { home, positions, .. } = code;
        let (parts, all_channels) = (self.parts(code), self.channels(code));
        let methods = channels.iter().zip(positions).map(|(channel, position)| {
            let (ident, name, place) = (&channel.ident, &channel.name, channel.place());
            let (argument, write) = channel.argument(home);
            let doc = format!("Writes to `{name}`. A second call replaces the write of the first.");
            let clear = channel.clear_methods().map(|[clear, set]| {
                let doc = format!("Clears `{name}` before this update's write is folded.");
                let set_doc = format!(
                    "Replaces the value of `{name}`; no other task may write it in the same superstep."
                );
                quote_spanned! {place=>
                    #[doc = #doc]
                    #[must_use]
                    #vis fn #clear(mut self) -> Self {
                        self.__last().clear.insert(#position);
                        self
                    }

                    #[doc = #set_doc]
                    #[must_use]
                    #vis fn #set(self, write: #argument) -> Self {
                        self.#clear().#ident(write)
                    }
                }
            });
            quote_spanned! {place=>
                #[doc = #doc]
                #[must_use]
                #vis fn #ident(mut self, write: #argument) -> Self {
                    self.__last().#ident = ::core::option::Option::Some(#write);
                    self
                }
                #clear
            }
        });
        let flat_methods = code.flats.idents.iter().zip(&code.flats.updates).map(|(ident, update)| {
            let doc = format!(
                "Writes `update` to the channels of `{}`; later calls are folded after earlier ones.",
                ident.unraw()
            );
            quote! {
                #[doc = #doc]
                #[must_use]
                #vis fn #ident(mut self, update: impl ::core::convert::Into<#update>) -> Self {
                    let last = self.__last();
                    last.#ident = #home::state::Update::then(
                        ::core::mem::take(&mut last.#ident),
                        ::core::convert::Into::into(update),
                    );
                    self
                }
            }
        });
        quote! {
            // A program may use only some of the methods.
            #[allow(dead_code)]
            impl #update {
                #all_channels

                #parts

                #(#methods)*

                #(#flat_methods)*
            }
        }
    }

    /// Generates the function with the channels, without trait bounds, so that a missing trait is reported
    /// once.
    fn channels(&self, code: &Code<'_>) -> TokenStream {
        let Code { home, names, reducers, history, flats, positions, .. } = code;
        let channels: Vec<_> = names
            .iter()
            .zip(reducers)
            .zip(history)
            .map(|((name, reducer), history)| {
                quote! {
                    #home::state::Channel {
                        name: ::std::borrow::Cow::Borrowed(#name),
                        exclusive: #reducer::EXCLUSIVE,
                        ephemeral: #reducer::EPHEMERAL,
                        #history
                    }
                }
            })
            .collect();
        if flats.idents.is_empty() {
            return quote! {
                fn __channels() -> &'static [#home::state::Channel] {
                    const CHANNELS: &[#home::state::Channel] = &[#(#channels),*];
                    CHANNELS
                }
            };
        }
        let FlatCode { updates, positions: ranges, .. } = flats;
        quote! {
            fn __channels() -> &'static [#home::state::Channel] {
                static CHANNELS: ::std::sync::LazyLock<::std::vec::Vec<#home::state::Channel>> =
                    ::std::sync::LazyLock::new(|| {
                        #home::__private::in_order(
                            [#((#positions, #channels)),*],
                            [#((#ranges, <#updates as #home::__private::Fixed>::channels())),*],
                        )
                    });
                &CHANNELS
            }
        }
    }

    /// Generates the inherent form of the update's trait methods. An update may have following updates, which
    /// these methods reach without the traits; otherwise the compiler would repeat the error of each missing
    /// trait.
    fn parts(&self, code: &Code<'_>) -> TokenStream {
        let Self { ident, .. } = self;
        let Code { home, idents, names, positions, reducers, defaults, flats, .. } = code;
        let FlatCode { idents: inner, types, updates, positions: ranges } = flats;
        quote! {
            /// Returns the part that is folded last.
            fn __last(&mut self) -> &mut Self {
                if self.__later.is_empty() { self } else { self.__later.last_mut() }
            }

            fn __fold(self, state: &mut #ident) -> ::core::result::Result<(), #home::state::FoldError> {
                #(
                    if self.clear.contains(#positions) {
                        state.#idents = #defaults;
                    }
                    if let ::core::option::Option::Some(write) = self.#idents {
                        #reducers::reduce(&mut state.#idents, write)
                            .map_err(|source| #home::state::FoldError { channel: #names.into(), source })?;
                    }
                )*
                #(<#types as #home::State>::fold(&mut state.#inner, self.#inner)?;)*
                if !self.__later.is_empty() {
                    for later in self.__later {
                        later.__fold(state)?;
                    }
                }
                ::core::result::Result::Ok(())
            }

            fn __written(&self) -> #home::__private::ChannelSet {
                let mut channels = self.clear.channels();
                #(
                    if self.#idents.is_some() {
                        channels.insert(#positions);
                    }
                )*
                #(
                    let written = <#updates as #home::__private::Fixed>::written(&self.#inner);
                    channels = channels.union(written.moved((#ranges).start));
                )*
                self.__later.iter().fold(channels, |channels, later| channels.union(later.__written()))
            }

            fn __exclusive(&self) -> #home::__private::ChannelSet {
                let mut channels = self.clear.channels();
                #(
                    if #reducers::EXCLUSIVE && self.#idents.is_some() {
                        channels.insert(#positions);
                    }
                )*
                #(
                    let exclusive = <#updates as #home::__private::Fixed>::exclusive(&self.#inner);
                    channels = channels.union(exclusive.moved((#ranges).start));
                )*
                self.__later.iter().fold(channels, |channels, later| channels.union(later.__exclusive()))
            }

            fn __restrict(&mut self, channels: #home::__private::ChannelSet) {
                let later = ::core::mem::take(&mut self.__later);
                self.clear.retain(channels);
                #(
                    if !channels.contains(#positions) {
                        self.#idents = ::core::option::Option::None;
                    }
                )*
                #(
                    <#updates as #home::__private::Fixed>::restrict(&mut self.#inner, channels.part(#ranges));
                )*
                for mut later in later {
                    later.__restrict(channels);
                    *self = #home::state::Update::then(::core::mem::take(self), later);
                }
            }
        }
    }

    fn impl_state(&self, code: &Code<'_>) -> TokenStream {
        let Self { ident, update, .. } = self;
        let Code { home, idents, positions, reducers, defaults, flats, .. } = code;
        let FlatCode { idents: inner, types: states, positions: ranges, .. } = flats;
        let (differing, schema, codec) = (self.differing_of_state(home), self.schema(code), self.codec(code));
        quote! {
            #[automatically_derived]
            impl #home::State for #ident {
                type Update = #update;

                fn channels(&self) -> &[#home::state::Channel] {
                    #update::__channels()
                }

                fn written(&self, update: &#update) -> #home::__private::ChannelSet {
                    update.__written()
                }

                fn exclusive(&self, update: &#update) -> #home::__private::ChannelSet {
                    update.__exclusive()
                }

                fn restrict(&self, update: &mut #update, channels: #home::__private::ChannelSet) {
                    update.__restrict(channels);
                }

                #differing
                #schema

                fn clear_ephemeral(&mut self) {
                    #(
                        if #reducers::EPHEMERAL {
                            self.#idents = #defaults;
                        }
                    )*
                    #(<#states as #home::State>::clear_ephemeral(&mut self.#inner);)*
                }

                fn retain(&mut self, channels: #home::__private::ChannelSet) {
                    #(
                        if !channels.contains(#positions) {
                            self.#idents = #defaults;
                        }
                    )*
                    #(<#states as #home::State>::retain(&mut self.#inner, channels.part(#ranges));)*
                }

                fn fold(&mut self, update: #update) -> ::core::result::Result<(), #home::state::FoldError> {
                    update.__fold(self)
                }

                #codec
            }
        }
    }

    /// Generates the JSON forms of channels.
    fn codec(&self, code: &Code<'_>) -> TokenStream {
        let Code { home, idents, types, positions, stored, count, flats, .. } = code;
        let FlatCode { idents: inner, types: states, positions: ranges, .. } = flats;
        let json = quote!(#home::__private::serde_json);
        let serde = quote!(#home::__private::serde);
        let absent = format!(
            "the state `{}` has {{}} channels, and none that is stored at position {{}}",
            self.ident.unraw()
        );
        let columns = positions.iter().zip(idents).zip(types).zip(stored).filter(|(_, stored)| **stored);
        let (mut constants, mut encoded, mut decoded) = (Vec::new(), Vec::new(), Vec::new());
        let mut serialized = Vec::new();
        for (((position, ident), ty), _) in columns {
            let at = format_ident!("AT_{}", constants.len());
            constants.push(quote!(const #at: usize = #position;));
            encoded.push(quote!(#at => #json::to_vec::<#ty>(&self.#ident),));
            serialized.push(quote!(#at => <#ty as #serde::Serialize>::serialize(&self.#ident, serializer),));
            decoded.push(quote!(#at => #json::from_slice::<#ty>(json).map(|value| self.#ident = value),));
        }
        quote! {
            fn encode(&self, channel: usize) -> ::core::result::Result<::std::vec::Vec<u8>, #json::Error> {
                #(#constants)*
                match channel {
                    #(#encoded)*
                    #(
                        _ if (#ranges).contains(&channel) => {
                            <#states as #home::State>::encode(&self.#inner, channel - (#ranges).start)
                        }
                    )*
                    _ => ::core::result::Result::Err(<#json::Error as #serde::ser::Error>::custom(
                        ::core::format_args!(#absent, #count, channel),
                    )),
                }
            }

            fn serialize_channel<Z: #serde::Serializer>(
                &self,
                channel: usize,
                serializer: Z,
            ) -> ::core::result::Result<Z::Ok, Z::Error> {
                #(#constants)*
                match channel {
                    #(#serialized)*
                    #(
                        _ if (#ranges).contains(&channel) => {
                            let at = channel - (#ranges).start;
                            <#states as #home::State>::serialize_channel(&self.#inner, at, serializer)
                        }
                    )*
                    _ => ::core::result::Result::Err(<Z::Error as #serde::ser::Error>::custom(
                        ::core::format_args!(#absent, #count, channel),
                    )),
                }
            }

            fn decode(&mut self, channel: usize, json: &[u8]) -> ::core::result::Result<(), #json::Error> {
                #(#constants)*
                match channel {
                    #(#decoded)*
                    #(
                        _ if (#ranges).contains(&channel) => {
                            <#states as #home::State>::decode(&mut self.#inner, channel - (#ranges).start, json)
                        }
                    )*
                    _ => ::core::result::Result::Err(<#json::Error as #serde::de::Error>::custom(
                        ::core::format_args!(#absent, #count, channel),
                    )),
                }
            }
        }
    }

    fn impl_update(&self, code: &Code<'_>) -> TokenStream {
        let Self { update, .. } = self;
        let Code { home, idents, flats, .. } = code;
        let inner = &flats.idents;
        let (json, fixed) = (self.json(code), self.fixed(code));
        quote! {
            #fixed

            #json

            #[automatically_derived]
            impl #home::state::Update for #update {
                fn then(mut self, mut later: Self) -> Self {
                    let more = ::core::mem::take(&mut later.__later);
                    let last = self.__last();
                    // Channels are independent, so their order does not matter.
                    if last.__written().intersection(later.__written()).is_empty() {
                        last.clear.extend(&later.clear);
                        #(
                            if later.#idents.is_some() {
                                last.#idents = later.#idents;
                            }
                        )*
                        #(
                            last.#inner = #home::state::Update::then(
                                ::core::mem::take(&mut last.#inner),
                                later.#inner,
                            );
                        )*
                    } else {
                        self.__later.push(later);
                    }
                    if more.is_empty() { self } else { more.into_iter().fold(self, #home::state::Update::then) }
                }
            }
        }
    }

    /// Returns the JSON form: entries for the written channels, those of flattened states among them.
    fn json(&self, code: &Code<'_>) -> TokenStream {
        let update = &self.update;
        let home = &code.home;
        let serde = quote!(#home::__private::serde);
        quote! {
            #[automatically_derived]
            impl #serde::Serialize for #update {
                fn serialize<S: #serde::Serializer>(
                    &self,
                    serializer: S,
                ) -> ::core::result::Result<S::Ok, S::Error> {
                    #home::__private::serialize(self, serializer)
                }
            }

            #[automatically_derived]
            impl<'de> #serde::Deserialize<'de> for #update {
                fn deserialize<D: #serde::Deserializer<'de>>(
                    deserializer: D,
                ) -> ::core::result::Result<Self, D::Error> {
                    #home::__private::deserialize(deserializer)
                }
            }
        }
    }

    /// Generates the metadata of an update beyond the public traits.
    fn fixed(&self, code: &Code<'_>) -> TokenStream {
        let update = &self.update;
        let Code { home, names, was, count, flats, .. } = code;
        let FlatCode { idents: inner, updates, positions: ranges, .. } = flats;
        let serde = quote!(#home::__private::serde);
        let fixed = quote!(#home::__private::Fixed);
        let all_names: Vec<String> = names
            .iter()
            .zip(was)
            .flat_map(|(name, was)| [(*name).to_owned()].into_iter().chain(was.iter().map(LitStr::value)))
            .collect();
        let own = all_names.len();
        let (entries, differing) = (self.entries(code), self.differing(code));
        quote! {
            #[automatically_derived]
            impl #fixed for #update {
                const COUNT: usize = #count;
                const NAMES: &'static [&'static str] = {
                    const ALL: [&str; #own #(+ <#updates as #fixed>::NAMES.len())*] =
                        #home::__private::joined(&[&[#(#all_names),*] #(, <#updates as #fixed>::NAMES)*]);
                    &ALL
                };

                fn channels() -> &'static [#home::state::Channel] {
                    Self::__channels()
                }

                fn written(&self) -> #home::__private::ChannelSet {
                    self.__written()
                }

                fn exclusive(&self) -> #home::__private::ChannelSet {
                    self.__exclusive()
                }

                fn restrict(&mut self, channels: #home::__private::ChannelSet) {
                    self.__restrict(channels);
                }

                #entries

                fn cleared(&self) -> #home::__private::ChannelSet {
                    let cleared = self.clear.channels();
                    #(
                        let inside = <#updates as #fixed>::cleared(&self.#inner);
                        let cleared = cleared.union(inside.moved((#ranges).start));
                    )*
                    cleared
                }

                fn clear(&mut self, channel: usize) {
                    #(
                        if (#ranges).contains(&channel) {
                            return <#updates as #fixed>::clear(&mut self.#inner, channel - (#ranges).start);
                        }
                    )*
                    self.clear.insert(channel);
                }

                fn has_following(&self) -> bool {
                    !self.__later.is_empty() #(|| <#updates as #fixed>::has_following(&self.#inner))*
                }

                fn write_later<Q: #serde::ser::SerializeSeq>(
                    &self,
                    list: &mut Q,
                ) -> ::core::result::Result<(), Q::Error> {
                    #(<#updates as #fixed>::write_later(&self.#inner, list)?;)*
                    for later in self.__later.iter() {
                        list.serialize_element(&#home::__private::First(later))?;
                        later.write_later(list)?;
                    }
                    ::core::result::Result::Ok(())
                }

                #differing

                fn later(&mut self) -> &mut #home::__private::Later<Self> {
                    &mut self.__later
                }
            }
        }
    }

    /// Generates the entries of the JSON form of an update.
    fn entries(&self, code: &Code<'_>) -> TokenStream {
        let Code { home, idents, names, stored, places, was, flats, .. } = code;
        let FlatCode { idents: inner, updates, .. } = flats;
        let serde = quote!(#home::__private::serde);
        let fixed = quote!(#home::__private::Fixed);
        let rows = idents.iter().zip(names).zip(stored).zip(places).zip(was).filter(|row| *row.0.0.1);
        let (mut written, mut read) = (Vec::new(), Vec::new());
        for ((((ident, name), _), place), was) in rows {
            // Bounds on the write are reported at the type that the user wrote.
            let home = home.at(*place);
            written.push(quote_spanned!(*place=> #home::__private::write(&self.#ident, #name, map)?;));
            read.push(quote_spanned!(*place=> #name #(| #was)* => #home::__private::read(&mut self.#ident, #name, map)?,));
        }
        quote! {
            fn write_entries<M: #serde::ser::SerializeMap>(
                &self,
                map: &mut M,
            ) -> ::core::result::Result<(), M::Error> {
                #(#written)*
                #(<#updates as #fixed>::write_entries(&self.#inner, map)?;)*
                ::core::result::Result::Ok(())
            }

            fn read_entry<'de, A: #serde::de::MapAccess<'de>>(
                &mut self,
                name: &str,
                map: &mut A,
            ) -> ::core::result::Result<bool, A::Error> {
                match name {
                    #(#read)*
                    _ => return ::core::result::Result::Ok(
                        false #(|| <#updates as #fixed>::read_entry(&mut self.#inner, name, map)?)*
                    ),
                }
                #[allow(unreachable_code)]
                ::core::result::Result::Ok(true)
            }
        }
    }

    /// Generates the access to flattened states and to their updates.
    fn flattens(&self, code: &Code<'_>) -> TokenStream {
        let Self { ident, update, .. } = self;
        let Code { home, flats, .. } = code;
        let FlatCode { idents: inner, types, updates, .. } = flats;
        quote! {
            #(
                #[automatically_derived]
                impl #home::state::Flattens<#types> for #ident {
                    fn part(&self) -> &#types {
                        &self.#inner
                    }

                    fn into_part(self) -> #types {
                        self.#inner
                    }

                    fn lift(update: #updates) -> #update {
                        #update { #inner: update, ..::core::default::Default::default() }
                    }
                }
            )*
        }
    }

    /// Generates the checks that a channel set can hold every channel of the state, and that channel names
    /// are unique.
    fn capacity(&self, code: &Code<'_>) -> TokenStream {
        let Code { home, count, flats, .. } = code;
        let (name, update) = (self.ident.unraw().to_string(), &self.update);
        if flats.idents.is_empty() {
            let message = format!(
                "the state `{name}` has {} channels, more than 128; group some in a struct",
                code.positions.len()
            );
            return quote_spanned! {self.ident.span()=>
                const _: () = ::core::assert!(#count <= #home::__private::ChannelSet::CAPACITY, #message);
            };
        }
        let message =
            format!("the state `{name}` has more than 128 channels, with those of its flattened states");
        quote_spanned! {self.ident.span()=>
            const _: () = ::core::assert!(#count <= #home::__private::ChannelSet::CAPACITY, #message);
            const _: () = if let ::core::option::Option::Some(problem) =
                #home::__private::Problem::twice(#name, <#update as #home::__private::Fixed>::NAMES)
            {
                ::core::panic!("{}", problem.text())
            };
        }
    }
}

/// Returns a use of every reducer before all other code, so that the first error about a reducer that does
/// not fit its field's type is about this field.
fn fitting(channels: &[Channel], code: &Code<'_>) -> TokenStream {
    let mentions = channels.iter().zip(&code.writes).map(|(channel, write)| {
        quote_spanned! {channel.place()=>
            const _: ::core::marker::PhantomData<#write> = ::core::marker::PhantomData;
        }
    });
    mentions.collect()
}
