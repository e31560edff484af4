//! `#[derive(State)]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::{Data, DeriveInput, Error, Fields, Ident, LitStr, Result, Type, Visibility, ext::IdentExt};

use crate::{
    channel::{self, Channel},
    home::Home,
};

/// Makes the update type and implements `State` and `Update`.
///
/// # Errors
/// All that is wrong with the struct at once.
pub(crate) fn expand(input: DeriveInput) -> Result<TokenStream> {
    let (state, channels) = parse(input)?;
    let code = Code::new(Home::find()?, &channels);
    let capacity = state.capacity(&code);
    let fitting = fitting(&channels, &code);
    // The compiler reports in this order, and this part speaks plainest of a type that is not serializable.
    let impl_state = state.impl_state(&code);
    let impl_update = state.impl_update(&code);
    let update = state.update_type(&code, &channels);
    let builders = state.builders(&code, &channels);
    let made = channels.iter().filter_map(|channel| channel.made(&state.vis, &code.home));
    let made: TokenStream = made.collect();
    Ok(quote!(#made #capacity #fitting #impl_state #impl_update #update #builders))
}

/// A struct that is a state.
struct Input {
    vis: Visibility,
    ident: Ident,
    update: Ident,
}

fn parse(input: DeriveInput) -> Result<(Input, Vec<Channel>)> {
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
            "a state has no generics: one update type and one stored form belong to it; name the types";
        problems.push(Error::new_spanned(&generics, message));
    }
    if let Some(attribute) = attrs.iter().find(|attribute| attribute.path().is_ident("channel")) {
        problems.push(Error::new_spanned(attribute, "`#[channel(..)]` belongs to a field, not to the state"));
    }
    let mut channels = Vec::new();
    for field in fields.named {
        match Channel::parse(&ident, field) {
            Ok(channel) => channels.push(channel),
            Err(problem) => problems.push(problem),
        }
    }
    problems.extend(channel::same_methods(&channels));
    problems.extend(channel::same_names(&channels));
    if let Some(problem) = problems.into_iter().reduce(crate::combine) {
        return Err(problem);
    }
    let update = format_ident!("{}Update", ident.unraw(), span = ident.span());
    Ok((Input { vis, ident, update }, channels))
}

/// What is said of the channels more than once: a column for each thing, a row for each channel.
struct Code<'a> {
    home: Home,
    positions: Vec<usize>,
    idents: Vec<&'a Ident>,
    names: Vec<&'a str>,
    types: Vec<&'a Type>,
    /// Such as `<Sum as Reducer<i64>>`.
    reducers: Vec<TokenStream>,
    /// The types of what is written.
    writes: Vec<TokenStream>,
    /// The default values of the types.
    defaults: Vec<TokenStream>,
    /// The names they had, their versions and migrations, and whether they are required or untracked.
    history: Vec<TokenStream>,
    /// Whether they are stored.
    stored: Vec<bool>,
}

impl<'a> Code<'a> {
    fn new(home: Home, channels: &'a [Channel]) -> Self {
        Self {
            positions: (0..channels.len()).collect(),
            idents: channels.iter().map(|channel| &channel.ident).collect(),
            names: channels.iter().map(|channel| channel.name.as_str()).collect(),
            types: channels.iter().map(|channel| &channel.ty).collect(),
            reducers: channels.iter().map(|channel| channel.reducer(&home)).collect(),
            writes: channels.iter().map(|channel| channel.write(&home)).collect(),
            defaults: channels.iter().map(Channel::default).collect(),
            history: channels.iter().map(Channel::history).collect(),
            stored: channels.iter().map(|channel| !channel.untracked).collect(),
            home,
        }
    }
}

impl Input {
    fn update_type(&self, code: &Code<'_>, channels: &[Channel]) -> TokenStream {
        let Self { vis, ident, update } = self;
        let Code { home, writes, .. } = code;
        let serde = home.private("serde");
        let some = home.private("some");
        let is_empty = home.private("Cleared::is_empty");
        let no_later = home.private("Later::is_empty");
        let fields = channels.iter().zip(writes).map(|(channel, write)| {
            let (ident, name, place) = (&channel.ident, &channel.name, channel.place());
            let doc = format!("The write to `{name}`, if there is one.");
            // What the derives below demand of the field is demanded of the type that the user wrote.
            let some = LitStr::new(&some, place);
            let aliases = channel.was.iter().map(|was| quote!(#[serde(alias = #was)]));
            let stored = if channel.untracked {
                quote!(#[serde(skip)])
            } else {
                quote_spanned! {place=>
                    #[serde(skip_serializing_if = "::core::option::Option::is_none", deserialize_with = #some)]
                    #(#aliases)*
                }
            };
            quote_spanned! {place=>
                #[doc = #doc]
                #stored
                #vis #ident: ::core::option::Option<#write>,
            }
        });
        let doc =
            format!("What a node writes to a [`{}`]: for each channel a write or nothing.", ident.unraw());
        let debug = if channels.iter().any(|channel| channel.untracked) {
            (quote!(), Some(self.debug(channels)))
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
                #home::__private::serde::Serialize,
                #home::__private::serde::Deserialize,
            )]
            #[serde(crate = #serde, deny_unknown_fields, default)]
            #vis struct #update {
                #(#fields)*
                /// The channels that start over before the writes of this update are folded.
                #[serde(skip_serializing_if = #is_empty)]
                #vis clear: #home::__private::Cleared<#update>,
                // As visible as the others, so that `..Default::default()` can be written.
                #[doc(hidden)]
                #[serde(rename = "$then", skip_serializing_if = #no_later)]
                #vis __later: #home::__private::Later<#update>,
            }
        }
    }

    /// What the derive would make, but that untracked channels may have types which cannot be shown.
    fn debug(&self, channels: &[Channel]) -> TokenStream {
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
        quote! {
            #[automatically_derived]
            impl ::core::fmt::Debug for #update {
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    f.debug_struct(#name)#(#fields)*
                        .field("clear", &self.clear)
                        .field("__later", &self.__later)
                        .finish()
                }
            }
        }
    }

    fn builders(&self, code: &Code<'_>, channels: &[Channel]) -> TokenStream {
        let Self { vis, update, .. } = self;
        let Code { home, names, reducers, history, .. } = code;
        let parts = self.parts(code);
        let methods = channels.iter().zip(&code.writes).enumerate().map(|(position, (channel, write))| {
            let (ident, name, place) = (&channel.ident, &channel.name, channel.place());
            let doc = format!("Writes to `{name}`. A second call replaces the write of the first.");
            let clear = channel.clear_methods().map(|[clear, set]| {
                let doc = format!(
                    "Lets `{name}` start over from its default before the write of this update is folded."
                );
                let set_doc = format!(
                    "Overwrites `{name}`: it starts over from its default, then `write` is folded. Nobody else may \
                     write it in the same superstep."
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
                    #vis fn #set(self, write: impl ::core::convert::Into<#write>) -> Self {
                        self.#clear().#ident(write)
                    }
                }
            });
            quote_spanned! {place=>
                #[doc = #doc]
                #[must_use]
                #vis fn #ident(mut self, write: impl ::core::convert::Into<#write>) -> Self {
                    self.__last().#ident = ::core::option::Option::Some(::core::convert::Into::into(write));
                    self
                }
                #clear
            }
        });
        quote! {
            // Not every program writes or clears every channel.
            #[allow(dead_code)]
            impl #update {
                // Here, where no trait is demanded, so that a trait which is missing is reported once.
                const __CHANNELS: &'static [#home::Channel] =
                    &[#(#home::Channel { name: ::std::borrow::Cow::Borrowed(#names), exclusive: #reducers::EXCLUSIVE, ephemeral: #reducers::EPHEMERAL, #history }),*];

                #parts

                #(#methods)*
            }
        }
    }

    /// What the traits promise of an update. It may have others after it, which these reach without the traits: asked
    /// by way of those, the compiler would repeat whatever is missing for them.
    fn parts(&self, code: &Code<'_>) -> TokenStream {
        let Self { ident, .. } = self;
        let Code { home, idents, names, positions, reducers, defaults, .. } = code;
        quote! {
            /// The part that is folded last.
            fn __last(&mut self) -> &mut Self {
                if self.__later.is_empty() { self } else { self.__later.last_mut() }
            }

            fn __fold(self, state: &mut #ident) -> ::core::result::Result<(), #home::FoldError> {
                #(
                    if self.clear.contains(#positions) {
                        state.#idents = #defaults;
                    }
                    if let ::core::option::Option::Some(write) = self.#idents {
                        #reducers::reduce(&mut state.#idents, write)
                            .map_err(|source| #home::FoldError { channel: #names.into(), source })?;
                    }
                )*
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
                self.__later.iter().fold(channels, |channels, later| channels.union(later.__written()))
            }

            fn __exclusive(&self) -> #home::__private::ChannelSet {
                let mut channels = self.clear.channels();
                #(
                    if #reducers::EXCLUSIVE && self.#idents.is_some() {
                        channels.insert(#positions);
                    }
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
                for mut later in later {
                    later.__restrict(channels);
                    *self = #home::Update::then(::core::mem::take(self), later);
                }
            }
        }
    }

    fn impl_state(&self, code: &Code<'_>) -> TokenStream {
        let Self { ident, update, .. } = self;
        let Code { home, idents, types, positions, reducers, defaults, stored, .. } = code;
        let json = quote!(#home::__private::serde_json);
        let serde = quote!(#home::__private::serde);
        let count = positions.len();
        let absent = format!(
            "the state `{}` has {count} channels, and none that is stored at position {{}}",
            ident.unraw()
        );
        let columns = positions.iter().zip(idents).zip(types).zip(stored).filter(|(_, stored)| **stored);
        let (mut encoded, mut decoded) = (Vec::new(), Vec::new());
        for (((position, ident), ty), _) in columns {
            encoded.push(quote!(#position => #json::to_vec::<#ty>(&self.#ident),));
            decoded
                .push(quote!(#position => #json::from_slice::<#ty>(json).map(|value| self.#ident = value),));
        }
        quote! {
            #[automatically_derived]
            impl #home::State for #ident {
                type Update = #update;

                fn channels(&self) -> &[#home::Channel] {
                    #update::__CHANNELS
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

                fn clear_ephemeral(&mut self) {
                    #(
                        if #reducers::EPHEMERAL {
                            self.#idents = #defaults;
                        }
                    )*
                }

                fn retain(&mut self, channels: #home::__private::ChannelSet) {
                    #(
                        if !channels.contains(#positions) {
                            self.#idents = #defaults;
                        }
                    )*
                }

                fn fold(&mut self, update: #update) -> ::core::result::Result<(), #home::FoldError> {
                    update.__fold(self)
                }

                fn encode(&self, channel: usize) -> ::core::result::Result<::std::vec::Vec<u8>, #json::Error> {
                    match channel {
                        #(#encoded)*
                        _ => ::core::result::Result::Err(<#json::Error as #serde::ser::Error>::custom(
                            ::core::format_args!(#absent, channel),
                        )),
                    }
                }

                fn decode(&mut self, channel: usize, json: &[u8]) -> ::core::result::Result<(), #json::Error> {
                    match channel {
                        #(#decoded)*
                        _ => ::core::result::Result::Err(<#json::Error as #serde::de::Error>::custom(
                            ::core::format_args!(#absent, channel),
                        )),
                    }
                }
            }
        }
    }

    fn impl_update(&self, code: &Code<'_>) -> TokenStream {
        let Self { update, .. } = self;
        let Code { home, idents, .. } = code;
        quote! {
            #[automatically_derived]
            impl #home::__private::FixedChannels for #update {
                const CHANNELS: &'static [#home::Channel] = #update::__CHANNELS;
            }

            #[automatically_derived]
            impl #home::Update for #update {
                fn then(mut self, mut later: Self) -> Self {
                    let more = ::core::mem::take(&mut later.__later);
                    let last = self.__last();
                    // Channels know nothing of each other, so their order does not matter.
                    if last.__written().intersection(later.__written()).is_empty() {
                        last.clear.extend(&later.clear);
                        #(
                            if later.#idents.is_some() {
                                last.#idents = later.#idents;
                            }
                        )*
                    } else {
                        self.__later.push(later);
                    }
                    if more.is_empty() { self } else { more.into_iter().fold(self, #home::Update::then) }
                }
            }
        }
    }

    /// The check that a set of channels can hold every channel of the state.
    fn capacity(&self, code: &Code<'_>) -> TokenStream {
        let (home, count) = (&code.home, code.positions.len());
        let message = format!("the state `{}` has {count} channels, which are too many", self.ident.unraw());
        quote_spanned! {self.ident.span()=>
            const _: () = ::core::assert!(#count <= #home::__private::ChannelSet::CAPACITY, #message);
        }
    }
}

/// A mention of every reducer that the compiler sees before all others, so that its first word about a reducer which
/// does not fit the type of the field is about this field.
fn fitting(channels: &[Channel], code: &Code<'_>) -> TokenStream {
    let mentions = channels.iter().zip(&code.writes).map(|(channel, write)| {
        quote_spanned! {channel.place()=>
            const _: ::core::marker::PhantomData<#write> = ::core::marker::PhantomData;
        }
    });
    mentions.collect()
}
