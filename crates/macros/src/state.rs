//! `#[derive(State)]`.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{Data, DeriveInput, Error, Fields, Ident, Result, Visibility, ext::IdentExt};

use crate::{channel::Channel, home};

/// Makes the update type and implements `State` and `Update`.
///
/// # Errors
/// All that is wrong with the struct at once.
pub(crate) fn expand(input: DeriveInput) -> Result<TokenStream> {
    let state = Input::parse(input)?;
    let update = state.update_type();
    let builders = state.builders();
    let impl_state = state.impl_state();
    let impl_update = state.impl_update();
    let capacity = state.capacity();
    Ok(quote!(#update #builders #impl_state #impl_update #capacity))
}

/// A struct that is a state.
struct Input {
    home: TokenStream,
    vis: Visibility,
    ident: Ident,
    update: Ident,
    channels: Vec<Field>,
}

/// A channel with the code that is needed more than once.
struct Field {
    channel: Channel,
    position: usize,
    /// `<Sum as Reducer<i64>>`, in the place of the field's type.
    reducer: TokenStream,
    /// What is written to the channel.
    write: TokenStream,
}

impl Input {
    fn parse(input: DeriveInput) -> Result<Self> {
        let DeriveInput {
            attrs,
            vis,
            ident,
            generics,
            data,
        } = input;
        let Data::Struct(data) = data else {
            return Err(Error::new_spanned(
                ident,
                "a state is a struct whose named fields are its channels",
            ));
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
        if let Some(attribute) = attrs
            .iter()
            .find(|attribute| attribute.path().is_ident("channel"))
        {
            problems.push(Error::new_spanned(
                attribute,
                "`#[channel(..)]` belongs to a field, not to the state",
            ));
        }
        let mut channels = Vec::new();
        for field in fields.named {
            match Channel::parse(field) {
                Ok(channel) => channels.push(channel),
                Err(problem) => problems.push(problem),
            }
        }
        problems.extend(same_methods(&channels));
        if let Some(all) = problems.into_iter().reduce(|mut all, next| {
            all.combine(next);
            all
        }) {
            return Err(all);
        }
        let home = home::path()?;
        let update = format_ident!("{}Update", ident.unraw(), span = ident.span());
        let channels = channels.into_iter().enumerate();
        let channels = channels
            .map(|(position, channel)| Field::new(&home, position, channel))
            .collect();
        Ok(Self {
            home,
            vis,
            ident,
            update,
            channels,
        })
    }

    fn update_type(&self) -> TokenStream {
        let Self {
            home,
            vis,
            ident,
            update,
            channels,
        } = self;
        let private = path_text(&quote!(#home::__private));
        let serde = format!("{private}::serde");
        let some = format!("{private}::some");
        let doc = format!(
            "What a node writes to a [`{}`]: for each channel a write or nothing.",
            ident.unraw()
        );
        let fields = channels.iter().map(|Field { channel: Channel { ident, name, .. }, write, .. }| {
            let doc = format!("The write to `{name}`, if there is one.");
            quote! {
                #[doc = #doc]
                #[serde(skip_serializing_if = "::core::option::Option::is_none", deserialize_with = #some)]
                #vis #ident: ::core::option::Option<#write>,
            }
        });
        let is_empty = format!("{private}::Cleared::is_empty");
        quote! {
            #[doc = #doc]
            #[derive(
                ::core::clone::Clone,
                ::core::fmt::Debug,
                ::core::default::Default,
                #home::__private::serde::Serialize,
                #home::__private::serde::Deserialize,
            )]
            #[serde(crate = #serde, deny_unknown_fields, default)]
            #vis struct #update {
                #(#fields)*
                /// The channels that start over before the writes of this update are folded.
                #[serde(skip_serializing_if = #is_empty)]
                #vis clear: #home::__private::Cleared<#ident>,
            }
        }
    }

    fn builders(&self) -> TokenStream {
        let Self {
            vis,
            update,
            channels,
            ..
        } = self;
        let methods = channels.iter().map(|field| {
            let Field {
                channel: Channel {
                    ident, name, rule, ..
                },
                position,
                write,
                ..
            } = field;
            let doc = format!("Writes to `{name}`. A second call replaces the write of the first.");
            let clear = (!rule.exclusive()).then(|| {
                let method = clear_method(&field.channel);
                let doc = format!(
                    "Lets `{name}` start over from its default before this update's write is folded."
                );
                quote! {
                    #[doc = #doc]
                    #[must_use]
                    #vis fn #method(mut self) -> Self {
                        self.clear.insert(#position);
                        self
                    }
                }
            });
            quote! {
                #[doc = #doc]
                #[must_use]
                #vis fn #ident(mut self, write: impl ::core::convert::Into<#write>) -> Self {
                    self.#ident = ::core::option::Option::Some(::core::convert::Into::into(write));
                    self
                }
                #clear
            }
        });
        quote! {
            // Not every program uses every method.
            #[allow(dead_code)]
            impl #update {
                #(#methods)*
            }
        }
    }

    fn impl_state(&self) -> TokenStream {
        let Self {
            home,
            ident,
            update,
            channels,
            ..
        } = self;
        let list = channels.iter().map(|Field { channel, reducer, .. }| {
            let name = &channel.name;
            quote!(#home::Channel { name: #name, ephemeral: #reducer::EPHEMERAL })
        });
        let clear_ephemeral = channels.iter().map(|field| {
            let (Channel { ident, .. }, reducer, default) = (&field.channel, &field.reducer, field.default());
            quote!(if #reducer::EPHEMERAL { self.#ident = #default; })
        });
        let fold = channels.iter().map(|field| {
            let Field {
                channel: Channel { ident, name, .. },
                position,
                reducer,
                ..
            } = field;
            let default = field.default();
            quote! {
                if update.clear.contains(#position) {
                    self.#ident = #default;
                }
                if let ::core::option::Option::Some(write) = update.#ident {
                    #reducer::reduce(&mut self.#ident, write)
                        .map_err(|source| #home::FoldError { channel: #name, source })?;
                }
            }
        });
        let json = quote!(#home::__private::serde_json);
        let encode = channels.iter().map(
            |Field {
                 channel: Channel { ident, ty, .. },
                 position,
                 ..
             }| { quote!(#position => #json::to_vec::<#ty>(&self.#ident),) },
        );
        let decode = channels.iter().map(
            |Field {
                 channel: Channel { ident, ty, .. },
                 position,
                 ..
             }| {
                quote!(#position => #json::from_slice::<#ty>(json).map(|value| self.#ident = value),)
            },
        );
        let absent = format!(
            "the state `{}` has {} channels, and none at position {{}}",
            ident.unraw(),
            channels.len()
        );
        quote! {
            #[automatically_derived]
            impl #home::State for #ident {
                type Update = #update;

                const CHANNELS: &'static [#home::Channel] = &[#(#list),*];

                fn clear_ephemeral(&mut self) {
                    #(#clear_ephemeral)*
                }

                fn fold(&mut self, update: #update) -> ::core::result::Result<(), #home::FoldError> {
                    #(#fold)*
                    ::core::result::Result::Ok(())
                }

                fn encode(
                    &self,
                    channel: usize,
                ) -> ::core::result::Result<::std::vec::Vec<u8>, #json::Error> {
                    match channel {
                        #(#encode)*
                        _ => ::core::result::Result::Err(<#json::Error as #home::__private::serde::ser::Error>::custom(
                            ::core::format_args!(#absent, channel),
                        )),
                    }
                }

                fn decode(&mut self, channel: usize, json: &[u8]) -> ::core::result::Result<(), #json::Error> {
                    match channel {
                        #(#decode)*
                        _ => ::core::result::Result::Err(<#json::Error as #home::__private::serde::de::Error>::custom(
                            ::core::format_args!(#absent, channel),
                        )),
                    }
                }
            }
        }
    }

    fn impl_update(&self) -> TokenStream {
        let Self {
            home,
            update,
            channels,
            ..
        } = self;
        let written = channels.iter().map(
            |Field {
                 channel: Channel { ident, .. },
                 position,
                 ..
             }| { quote!(if self.#ident.is_some() { channels.insert(#position); }) },
        );
        let exclusive = channels.iter().map(
            |Field {
                 channel: Channel { ident, .. },
                 position,
                 reducer,
                 ..
             }| {
                quote!(if #reducer::EXCLUSIVE && self.#ident.is_some() { channels.insert(#position); })
            },
        );
        quote! {
            #[automatically_derived]
            impl #home::Update for #update {
                fn written(&self) -> #home::__private::ChannelSet {
                    let mut channels = self.clear.channels();
                    #(#written)*
                    channels
                }

                fn exclusive(&self) -> #home::__private::ChannelSet {
                    let mut channels = self.clear.channels();
                    #(#exclusive)*
                    channels
                }
            }
        }
    }

    /// The check that a set of channels can hold every channel of the state.
    fn capacity(&self) -> TokenStream {
        let Self {
            home,
            ident,
            channels,
            ..
        } = self;
        let count = channels.len();
        let message = format!(
            "the state `{}` has {count} channels, which are too many",
            ident.unraw()
        );
        quote_spanned! {Span::call_site().located_at(ident.span())=>
            const _: () = ::core::assert!(#count <= #home::__private::ChannelSet::CAPACITY, #message);
        }
    }
}

impl Field {
    fn new(home: &TokenStream, position: usize, channel: Channel) -> Self {
        let (first, last) = channel.span();
        let (path, ty) = (channel.rule.path(home), &channel.ty);
        let reducer = quote_spanned!(first=> <#path as #home::Reducer<#ty>>);
        let write = quote_spanned!(last=> #reducer::Write);
        Self {
            position,
            reducer,
            write,
            channel,
        }
    }

    /// The default value of the channel's type.
    fn default(&self) -> TokenStream {
        let (first, last) = self.channel.span();
        let ty = &self.channel.ty;
        let start = quote_spanned!(first=> <#ty as ::core::default::Default>);
        quote_spanned!(last=> #start::default())
    }
}

fn clear_method(channel: &Channel) -> Ident {
    format_ident!("clear_{}", channel.name, span = channel.ident.span())
}

/// The channels whose builder method another channel's `clear_..` would hide.
fn same_methods(channels: &[Channel]) -> impl Iterator<Item = Error> {
    channels.iter().filter(|channel| !channel.rule.exclusive()).filter_map(|cleared| {
        let method = clear_method(cleared);
        let other = channels.iter().find(|channel| method == channel.name)?;
        let message = format!(
            "the update has a method `{method}` already, which lets channel `{}` start over; choose another name",
            cleared.name
        );
        Some(Error::new_spanned(&other.ident, message))
    })
}

/// A path as it is written, for attributes that take a string.
fn path_text(path: &TokenStream) -> String {
    path.to_token_stream()
        .into_iter()
        .map(|token| token.to_string())
        .collect()
}
