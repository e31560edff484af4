//! The option `subject` of `#[tool]`.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{
    Error, ExprPath, LitStr, Result, Token,
    ext::IdentExt,
    parenthesized,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
};

use super::Param;

/// The subjects of the arguments.
pub(super) enum Subjects {
    /// Named arguments.
    Named(Vec<Named>),
    /// A function of an argument's name and the arguments.
    Path(ExprPath),
}

/// One argument, as in `path(file in folder)`.
pub(super) struct Named {
    kind: Ident,
    argument: Ident,
    /// The `#[dep]` with the folder of a path.
    root: Option<Ident>,
}

impl Parse for Named {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let kind: Ident = input.parse()?;
        if !["path", "url", "command", "text"].iter().any(|known| kind == known) {
            return Err(Error::new_spanned(
                kind,
                "an argument stands for a `path`, `url`, `command` or `text`",
            ));
        }
        let content;
        parenthesized!(content in input);
        let argument = Ident::parse_any(&content)?;
        let root = if content.peek(Token![in]) && kind == "path" {
            content.parse::<Token![in]>().and_then(|_| content.parse().map(Some))?
        } else {
            None
        };
        if content.is_empty() {
            Ok(Self { kind, argument, root })
        } else {
            Err(content.error("expected `)`"))
        }
    }
}

impl Subjects {
    pub(super) fn parse(text: &LitStr) -> Result<Self> {
        let named = text.parse_with(Punctuated::<Named, Token![,]>::parse_terminated)?;
        Ok(Self::Named(named.into_iter().collect()))
    }

    /// Checks that the function has the named parameters.
    pub(super) fn check(&self, params: &[Param]) -> Result<()> {
        let Self::Named(all) = self else { return Ok(()) };
        // The names in the schema may differ from those in the function.
        let is_free = params.iter().any(|param| match param {
            Param::Argument { attributes, .. } => {
                attributes.iter().any(|other| other.path().is_ident("serde"))
            }
            Param::Arguments { .. } => true,
            Param::Dep { .. } | Param::Cx => false,
        });
        let has = |wanted: &Ident, is_dep: bool| {
            params.iter().any(|param| match param {
                Param::Argument { name, .. } if !is_dep => name.ident.unraw() == wanted.unraw(),
                Param::Dep { name, .. } if is_dep => name.ident == *wanted,
                _ => false,
            })
        };
        let wrong = all.iter().find_map(|Named { argument, root, .. }| match root {
            _ if !is_free && !has(argument, false) => Some((argument, "is not an argument of the model")),
            Some(root) if !has(root, true) => Some((root, "is not a parameter with `#[dep]`")),
            _ => None,
        });
        wrong.map_or(Ok(()), |(name, what)| Err(Error::new_spanned(name, format!("`{name}` {what}"))))
    }

    /// Returns the code before the creation of the tool, and the call that sets the subjects.
    pub(super) fn tokens(&self, home: &TokenStream) -> (TokenStream, TokenStream) {
        match self {
            Self::Path(path) => (TokenStream::new(), quote!(.with_subject(#path))),
            Self::Named(all) => {
                let all = all.iter().map(|Named { kind, argument, root }| {
                    let name = argument.unraw().to_string();
                    let stands = match kind.to_string().as_str() {
                        "url" => quote!(Url),
                        "command" => quote!(Command),
                        "text" => quote!(Text),
                        _ => {
                            // Without a folder of its own, it uses the current folder of the process.
                            let root = root.as_ref().map_or_else(|| quote!("."), |root| quote!(&#root));
                            quote!(Path(::std::path::PathBuf::from(::std::convert::AsRef::<::std::path::Path>::as_ref(#root))))
                        }
                    };
                    quote!((#name, #home::__private::Stands::#stands))
                });
                let made = quote! {
                    let __stands = [#(#all),*];
                    let __schema = ::std::clone::Clone::clone(&spec.parameters);
                };
                let told = quote! {
                    .with_subject(move |argument, args| {
                        #home::__private::subject(&__stands, &__schema, argument, args)
                    })
                };
                (made, told)
            }
        }
    }
}
