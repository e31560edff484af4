//! The description of a channel: a field and its `#[channel(..)]`.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{
    Error, Field, GenericArgument, LitInt, LitStr, Path, PathArguments, Result, Type, Visibility,
    ext::IdentExt, spanned::Spanned,
};

use crate::{
    flatten::Flat,
    home::Root,
    options::{FieldOptions, Rule},
};

/// One channel of a state.
pub(crate) struct Channel {
    pub(crate) ident: Ident,
    /// The field's name in checkpoints, without `r#`.
    pub(crate) name: String,
    pub(crate) ty: Type,
    pub(crate) was: Vec<LitStr>,
    /// The version of the stored data, with the migration of older ones.
    version: Option<(LitInt, Path)>,
    /// `true` if a thread must have a value of it.
    required: bool,
    /// `true` if it is never stored.
    pub(crate) untracked: bool,
    /// The reducer.
    rule: Rule,
}

impl Channel {
    /// Reads a named field.
    ///
    /// # Errors
    /// A reserved name, or options that exclude each other.
    pub(crate) fn parse(state: &Ident, field: Field, options: FieldOptions) -> Result<Self> {
        let ident = field.ident.expect("the fields of a state are named");
        let name = ident.unraw().to_string();
        if name == "clear" {
            let message = "a channel cannot be called `clear`: in an update that lists the channels which start over; choose another name";
            return Err(Error::new(ident.span(), message));
        }
        let FieldOptions { rule, was, version, migrate, required, untracked, flatten: _ } = options;
        if untracked && (required || version.is_some() || migrate.is_some() || !was.is_empty()) {
            let message =
                "an untracked channel is never stored, so options about its stored form have no effect";
            return Err(Error::new(ident.span(), message));
        }
        let mut rule = rule.unwrap_or_else(|| Rule::last_value(ident.span()));
        if let Rule::FoldWith { path, reducer } = &mut rule {
            *reducer = format_ident!("__{}_{name}", state.unraw(), span = path.span());
            if inside_option(&field.ty).is_none() {
                let message = "`fold_with` requires an `Option<T>`, whose first write replaces `None`; for \
                    a rule that begins with a default value, implement `Reducer` and use `with = MyRule`";
                return Err(Error::new_spanned(&field.ty, message));
            }
        }
        // The value of a custom reducer's channel is unknown to the macro.
        if !untracked
            && !matches!(rule, Rule::With(_))
            && let Some(option) = never_read(&field.ty)
        {
            let message = "`Some(None)` and `Some(())` are `null` in JSON, as `None` is, and would be read \
                back as that, so they can never be stored; use an enum or a `bool`, or mark the channel \
                `untracked`";
            return Err(Error::new_spanned(option, message));
        }
        let version = versioned(version, migrate)?;
        Ok(Self { ident, name, ty: field.ty, was, version, required, untracked, rule })
    }

    /// Returns the fields of a `Channel` about earlier stored data.
    pub(crate) fn history(&self) -> TokenStream {
        let Self { was, required, untracked, .. } = self;
        let (version, migrate) = match &self.version {
            None => (quote!(1), quote!(::core::option::Option::None)),
            Some((version, path)) => {
                let call = quote_spanned! {path.span()=>
                    |json, from, stored| #path(json, from, stored).map_err(::core::convert::Into::into)
                };
                (quote!(#version), quote!(::core::option::Option::Some(#call)))
            }
        };
        let cow = quote!(::std::borrow::Cow::Borrowed);
        quote!(was: #cow(&[#(#cow(#was)),*]), version: #version, migrate: #migrate, required: #required, untracked: #untracked)
    }

    /// Returns the reducer as a type, such as `<Sum as Reducer<i64>>`.
    pub(crate) fn reducer(&self, home: &Root) -> TokenStream {
        let (first, _) = self.span();
        let (path, ty, home) = (self.rule.path(home), &self.ty, home.at(first));
        quote_spanned!(first=> <#path as #home::Reducer<#ty>>)
    }

    /// Returns the generated reducer of a function, if there is one.
    pub(crate) fn made(&self, vis: &Visibility, home: &Root) -> Option<TokenStream> {
        let Rule::FoldWith { path, reducer } = &self.rule else { return None };
        let write = inside_option(&self.ty)?;
        let (ty, place) = (&self.ty, self.place());
        let doc = format!("The reducer of `{}`.", self.name);
        Some(quote_spanned! {place=>
            #[doc = #doc]
            #[doc(hidden)]
            #[allow(non_camel_case_types)]
            #[derive(Debug)]
            #vis enum #reducer {}

            #[automatically_derived]
            impl #home::Reducer<#ty> for #reducer {
                type Write = #write;

                fn reduce(
                    value: &mut #ty,
                    write: Self::Write,
                ) -> ::core::result::Result<(), #home::ReduceError> {
                    *value = ::core::option::Option::Some(match ::core::option::Option::take(value) {
                        ::core::option::Option::None => write,
                        ::core::option::Option::Some(old) => #path(old, write),
                    });
                    ::core::result::Result::Ok(())
                }
            }
        })
    }

    /// Returns the type of its writes.
    pub(crate) fn write(&self, home: &Root) -> TokenStream {
        let reducer = self.reducer(home);
        quote_spanned!(self.span().1=> #reducer::Write)
    }

    /// Returns the type of a builder method's argument `write`, and the write that is made of it.
    ///
    /// The argument accepts convenient types: a number of the channel's own type, so that literals need no
    /// suffix; for an `Option` also the value inside; for a list any iterator.
    pub(crate) fn argument(&self, home: &Root) -> (TokenStream, TokenStream) {
        // `impl Into<T>` alone rejects `.words(30)` for a `usize`, because an integer literal could be an `i32`, and
        // `.note("a")` for an `Option<String>`. `IntoOption` has so few implementations that the compiler infers a
        // literal.
        let (write, at) = (self.write(home), home.at(self.place()));
        let into = quote!(::core::convert::Into::into(write));
        let inside = match &self.rule {
            Rule::FoldWith { .. } => inside_option(&self.ty).unwrap_or(&self.ty),
            _ => &self.ty,
        };
        match &self.rule {
            rule if rule.is_list() && !is_one_of(&self.ty, &["String"]) || self.is_replaced_list() => {
                let item = match only_argument(&self.ty).filter(|item| is_number(item)) {
                    Some(number) => quote!(Item = #number),
                    None => quote!(Item: ::core::convert::Into<<#write as ::core::iter::IntoIterator>::Item>),
                };
                let items = quote!(::core::iter::IntoIterator::into_iter(write));
                let made = quote!(::core::iter::Iterator::map(#items, ::core::convert::Into::into));
                (
                    quote!(impl ::core::iter::IntoIterator<#item>),
                    quote!(::core::iter::Iterator::collect::<#write>(#made)),
                )
            }
            Rule::BuiltIn(_) | Rule::FoldWith { .. } if is_number(inside) => (quote!(#inside), quote!(write)),
            rule if rule.replaces() => match inside_option(&self.ty) {
                Some(inside) => (
                    quote!(impl #at::convert::IntoOption<#inside>),
                    quote!(#at::convert::IntoOption::into_option(write)),
                ),
                None => (quote!(impl ::core::convert::Into<#write>), into),
            },
            _ => (quote!(impl ::core::convert::Into<#write>), into),
        }
    }

    /// Returns whether a write is a list that replaces the value. Bytes are not treated as one: they are written as a text or a
    /// slice.
    fn is_replaced_list(&self) -> bool {
        const LISTS: [&str; 4] = ["Vec", "VecDeque", "BTreeSet", "HashSet"];
        self.rule.replaces()
            && is_one_of(&self.ty, &LISTS)
            && only_argument(&self.ty).is_some_and(|item| !is_one_of(item, &["u8"]))
    }

    /// Returns the default value of its type.
    pub(crate) fn default(&self) -> TokenStream {
        let (first, last) = self.span();
        let ty = &self.ty;
        let start = quote_spanned!(first=> <#ty as ::core::default::Default>);
        quote_spanned!(last=> #start::default())
    }

    /// Returns the names of the builder methods that clear the channel, without a write and with one, if it
    /// has them.
    ///
    /// A channel with one write per superstep has none, since the write replaces the value.
    pub(crate) fn clear_methods(&self) -> Option<[Ident; 2]> {
        let span = self.ident.span();
        (!self.rule.replaces())
            .then(|| ["clear", "set"].map(|verb| format_ident!("{verb}_{}", self.name, span = span)))
    }

    /// Returns the place of the type, for errors in generated code.
    pub(crate) fn place(&self) -> Span {
        self.span().0
    }

    /// Returns the places of the first and the last token of the type.
    ///
    /// Stable Rust cannot join spans, but the compiler joins those of the first and the last token of an
    /// expression. The code there stays generated code, which lints leave alone.
    fn span(&self) -> (Span, Span) {
        let tokens = self.ty.to_token_stream().into_iter();
        let mut places = tokens.map(|token| Span::call_site().located_at(token.span()));
        let first = places.next().expect("a type has at least one token");
        (first, places.last().unwrap_or(first))
    }
}

/// Returns the channels whose method on the update the `clear_..` or `set_..` of another channel would hide.
pub(crate) fn same_methods(channels: &[Channel], flats: &[Flat]) -> impl Iterator<Item = Error> {
    let methods =
        |cleared| Channel::clear_methods(cleared).into_iter().flatten().map(move |it| (cleared, it));
    channels.iter().flat_map(methods).filter_map(move |(cleared, method)| {
        let fields =
            channels.iter().map(|channel| &channel.ident).chain(flats.iter().map(|flat| &flat.ident));
        let other = { fields }.find(|field| method == field.unraw())?;
        let message =
            format!("channel `{}` has a method `{method}` on the update; choose another name", cleared.name);
        Some(Error::new_spanned(other, message))
    })
}

/// Returns errors for former names of a channel that belong to another one, now or formerly.
pub(crate) fn same_names(channels: &[Channel]) -> impl Iterator<Item = Error> {
    let mut names: Vec<String> = channels.iter().map(|channel| channel.name.clone()).collect();
    channels.iter().flat_map(|channel| &channel.was).filter_map(move |was| {
        let taken = names.contains(&was.value());
        names.push(was.value());
        let message =
            format!("`{}` is already the name of a channel, or a duplicate; remove it here", was.value());
        taken.then(|| Error::new_spanned(was, message))
    })
}

/// Returns the `T` of an `Option<T>`, if the type is written so.
fn inside_option(ty: &Type) -> Option<&Type> {
    is_one_of(ty, &["Option"]).then(|| only_argument(ty)).flatten()
}

/// Returns the `T` of a type that is written `Name<T>`.
fn only_argument(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let PathArguments::AngleBracketed(arguments) = &path.path.segments.last()?.arguments else { return None };
    match (arguments.args.first(), arguments.args.len()) {
        (Some(GenericArgument::Type(inside)), 1) => Some(inside),
        _ => None,
    }
}

/// Returns the first `Option<Option<T>>` or `Option<()>` in a type, as far as it is written with well-known
/// types.
fn never_read(ty: &Type) -> Option<&Type> {
    const HOLD: [&str; 13] = [
        "Option", "Box", "Arc", "Rc", "Vec", "VecDeque", "BTreeMap", "HashMap", "IndexMap", "BTreeSet",
        "HashSet", "Log", "ById",
    ];
    match ty {
        Type::Paren(inside) => never_read(&inside.elem),
        Type::Group(inside) => never_read(&inside.elem),
        Type::Array(items) => never_read(&items.elem),
        Type::Tuple(items) => items.elems.iter().find_map(never_read),
        Type::Path(_) if inside_option(ty).is_some_and(is_null) => Some(ty),
        Type::Path(path) => {
            let last = path.path.segments.last()?;
            let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
            let inside = arguments.args.iter().filter_map(|argument| match argument {
                GenericArgument::Type(inside) => Some(inside),
                _ => None,
            });
            HOLD.iter().any(|name| last.ident == name).then_some(inside)?.find_map(never_read)
        }
        _ => None,
    }
}

/// Returns whether some of its values are `null` in JSON, as `None` is.
fn is_null(ty: &Type) -> bool {
    match ty {
        Type::Paren(inside) => is_null(&inside.elem),
        Type::Group(inside) => is_null(&inside.elem),
        Type::Tuple(items) => items.elems.is_empty(),
        _ => inside_option(ty).is_some(),
    }
}

/// Returns whether the last name of the type's path is one of these.
fn is_one_of(ty: &Type, names: &[&str]) -> bool {
    let Type::Path(path) = ty else { return false };
    path.path.segments.last().is_some_and(|last| names.iter().any(|name| last.ident == name))
}

/// Returns whether the type is a primitive number.
fn is_number(ty: &Type) -> bool {
    const NUMBERS: [&str; 14] = [
        "i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32", "u64", "u128", "usize", "f32", "f64",
    ];
    is_one_of(ty, &NUMBERS)
}

/// Checks that a version above 1 has a migration, and that a migration has a version.
fn versioned(version: Option<LitInt>, migrate: Option<Path>) -> Result<Option<(LitInt, Path)>> {
    match (version, migrate) {
        (None, None) => Ok(None),
        (Some(version), Some(migrate)) if version.base10_parse::<u32>()? > 1 => Ok(Some((version, migrate))),
        (Some(version), _) if version.base10_parse::<u32>()? < 2 => Err(Error::new_spanned(
            version,
            "new channels have version 1; use version 2 when the stored form changes",
        )),
        (Some(version), _) => {
            let message = "older versions may be stored; read them with `migrate = path`";
            Err(Error::new_spanned(version, message))
        }
        (None, Some(migrate)) => {
            let message = "only older versions are migrated; add `version = 2` when the stored form changes";
            Err(Error::new_spanned(migrate, message))
        }
    }
}
