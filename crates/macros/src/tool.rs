//! `#[tool]`.

mod subject;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{
    Attribute, Error, Expr, ExprLit, ExprPath, FnArg, ItemFn, Lit, LitInt, LitStr, Meta, Pat, PatIdent,
    PatType, Result, ReturnType, Type,
    ext::IdentExt,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
    spanned::Spanned,
};

use self::subject::Subjects;
use crate::home;

/// The maximum length of a tool name that providers accept.
const MAX_NAME_LENGTH: usize = 64;

/// The options in the parentheses of the attribute.
#[derive(Default)]
pub(crate) struct Options {
    name: Option<LitStr>,
    ask: Option<Ask>,
    subject: Option<Subjects>,
    /// The flags of a `Behaviour` that are set.
    behaviour: Vec<Ident>,
    /// The time limit of a call.
    timeout_ms: Option<LitInt>,
    /// The path of the module that exports the types of tools.
    home: Option<ExprPath>,
}

/// The question to a person before a call.
enum Ask {
    /// A text with arguments in braces.
    Text(LitStr),
    /// A function of the arguments.
    Path(ExprPath),
}

/// A parameter of the function.
enum Param {
    /// An argument from the model.
    Argument { name: PatIdent, ty: Type, attributes: Vec<Attribute> },
    /// All of them.
    Arguments { name: PatIdent, ty: Type },
    /// A dependency of the tool.
    Dep { name: PatIdent, ty: Type },
    /// The call's own.
    Cx,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut options = Self::default();
        for meta in Punctuated::<Meta, syn::Token![,]>::parse_terminated(input)? {
            options.add(meta)?;
        }
        Ok(options)
    }
}

impl Options {
    fn add(&mut self, meta: Meta) -> Result<()> {
        let name = meta.path().get_ident().map(Ident::to_string).unwrap_or_default();
        let twice = || Error::new_spanned(meta.path(), format!("duplicate option `{name}`"));
        match (name.as_str(), &meta) {
            ("exclusive" | "poll" | "answers" | "idempotent", Meta::Path(path)) => {
                let flag = path.require_ident()?.clone();
                if self.behaviour.contains(&flag) {
                    return Err(twice());
                }
                self.behaviour.push(flag);
            }
            ("name", Meta::NameValue(pair)) => {
                let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &pair.value else {
                    return Err(Error::new_spanned(&pair.value, "a name is a text"));
                };
                if self.name.replace(text.clone()).is_some() {
                    return Err(twice());
                }
            }
            ("ask", Meta::NameValue(pair)) => {
                let ask = match &pair.value {
                    Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ask::Text(text.clone()),
                    Expr::Path(path) => Ask::Path(path.clone()),
                    other => {
                        let message = "the question is a text with arguments in braces, or the path of a \
                            `fn(&serde_json::Value) -> Option<String>`";
                        return Err(Error::new_spanned(other, message));
                    }
                };
                if self.ask.replace(ask).is_some() {
                    return Err(twice());
                }
            }
            ("subject", Meta::NameValue(pair)) => {
                let subject = match &pair.value {
                    Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Subjects::parse(text)?,
                    Expr::Path(path) => Subjects::Path(path.clone()),
                    other => {
                        let message = "a subject is a text such as \"path(file), url(link)\", or the path of a \
                            `fn(&str, &serde_json::Value) -> Option<Subject>`";
                        return Err(Error::new_spanned(other, message));
                    }
                };
                if self.subject.replace(subject).is_some() {
                    return Err(twice());
                }
            }
            ("crate", Meta::NameValue(pair)) => {
                let Expr::Path(path) = &pair.value else {
                    return Err(Error::new_spanned(&pair.value, "a crate is a path"));
                };
                if self.home.replace(path.clone()).is_some() {
                    return Err(twice());
                }
            }
            ("timeout_ms", Meta::NameValue(pair)) => {
                let Expr::Lit(ExprLit { lit: Lit::Int(ms), .. }) = &pair.value else {
                    return Err(Error::new_spanned(&pair.value, "a time is a whole number of milliseconds"));
                };
                ms.base10_parse::<u64>()?;
                if self.timeout_ms.replace(ms.clone()).is_some() {
                    return Err(twice());
                }
            }
            _ => {
                let message = "a tool has `name = \"..\"`, `ask = \"..\"`, `subject = \"..\"`, `timeout_ms = ..`, `crate = ..`, \
                    `exclusive`, `poll`, `answers` and `idempotent`";
                return Err(Error::new_spanned(meta, message));
            }
        }
        Ok(())
    }
}

/// Generates the function that creates the tool.
///
/// # Errors
/// All problems of the function at once.
pub(crate) fn expand(options: &Options, item: ItemFn) -> Result<TokenStream> {
    let name = options.name.clone().unwrap_or_else(|| {
        let name = item.sig.ident.unraw();
        LitStr::new(&name.to_string(), item.sig.ident.span())
    });
    let problems = [check_signature(&item), check_name(&name), check_docs(&item)];
    let (params, wrong) = params(&item);
    let subject = options.subject.as_ref().and_then(|subject| subject.check(&params).err());
    let problems = problems.into_iter().filter_map(Result::err).chain(wrong).chain(subject);
    if let Some(problem) = problems.reduce(crate::combine) {
        return Err(problem);
    }
    let home = match &options.home {
        Some(path) => path.to_token_stream(),
        None => home()?,
    };
    Ok(Expansion { options, item, name, params, home }.tokens())
}

fn check_signature(item: &ItemFn) -> Result<()> {
    let sig = &item.sig;
    if sig.asyncness.is_none() {
        let message = format!("`{}` is not async; a tool is an `async fn`", sig.ident);
        return Err(Error::new_spanned(sig.fn_token, message));
    }
    if !sig.generics.params.is_empty() {
        let message = "a tool cannot be generic, because its arguments have to be known at compile time";
        return Err(Error::new_spanned(&sig.generics, message));
    }
    Ok(())
}

fn check_name(name: &LitStr) -> Result<()> {
    let text = name.value();
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if text.is_empty() || text.len() > MAX_NAME_LENGTH || !is_plain {
        let message = format!(
            "`{text}` cannot be the name of a tool: models take up to {MAX_NAME_LENGTH} ASCII letters, digits, `_` and `-`"
        );
        return Err(Error::new_spanned(name, message));
    }
    Ok(())
}

fn check_docs(item: &ItemFn) -> Result<()> {
    if docs(&item.attrs).is_empty() {
        let message = "a tool needs a doc comment, which describes it to the model";
        return Err(Error::new_spanned(&item.sig.ident, message));
    }
    Ok(())
}

/// Returns the parameters and their errors.
fn params(item: &ItemFn) -> (Vec<Param>, Vec<Error>) {
    let (mut params, mut wrong) = (Vec::new(), Vec::new());
    for input in &item.sig.inputs {
        match param(input) {
            Ok(param) => params.push(param),
            Err(error) => wrong.push(error),
        }
    }
    let cxs = params.iter().filter(|param| matches!(param, Param::Cx)).count();
    let wholes = params.iter().filter(|param| matches!(param, Param::Arguments { .. })).count();
    let singles = params.iter().filter(|param| matches!(param, Param::Argument { .. })).count();
    let at = &item.sig.inputs;
    if cxs > 1 {
        wrong.push(Error::new_spanned(at, "a tool gets one `ToolCx`"));
    }
    if wholes > 1 || (wholes == 1 && singles > 0) {
        let message = "`#[args]` has all arguments of the model; put the others into that struct";
        wrong.push(Error::new_spanned(at, message));
    }
    (params, wrong)
}

fn param(input: &FnArg) -> Result<Param> {
    let FnArg::Typed(PatType { attrs, pat, ty, .. }) = input else {
        let message = "a tool is a function, not a method; pass its dependencies as parameters with `#[dep]`";
        return Err(Error::new_spanned(input, message));
    };
    let Pat::Ident(name) = &**pat else {
        let message = "a parameter of a tool needs a name: the model passes arguments by name";
        return Err(Error::new_spanned(pat, message));
    };
    let (name, ty) = (name.clone(), (**ty).clone());
    match &ty {
        Type::Reference(_) => {
            let message = "a tool takes its parameters by value: `String` for `&str`, `Vec` for a slice, \
                `ToolCx` for `&ToolCx`";
            return Err(Error::new_spanned(&ty, message));
        }
        Type::ImplTrait(_) => {
            let message = "a tool cannot be generic, because its arguments have to be known at compile time";
            return Err(Error::new_spanned(&ty, message));
        }
        Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "ToolCx") => {
            return match attrs.first() {
                Some(attribute) => {
                    Err(Error::new_spanned(attribute, "`ToolCx` is not an argument of the model"))
                }
                None => Ok(Param::Cx),
            };
        }
        _ => {}
    }
    let is = |attribute: &Attribute, word: &str| attribute.path().is_ident(word);
    if let Some(attribute) = attrs.iter().find(|attribute| is(attribute, "dep") || is(attribute, "args")) {
        attribute.meta.require_path_only()?;
        let others = attrs.iter().filter(|other| !is(other, "doc")).count() - 1;
        if others > 0 {
            let message = "only an argument of the model has other attributes";
            return Err(Error::new_spanned(pat, message));
        }
        let is_dep = is(attribute, "dep");
        return Ok(if is_dep { Param::Dep { name, ty } } else { Param::Arguments { name, ty } });
    }
    let known = |attribute: &&Attribute| ["doc", "serde", "schemars"].iter().any(|word| is(attribute, word));
    if let Some(other) = attrs.iter().find(|attribute| !known(attribute)) {
        let message = "a parameter of a tool has `#[dep]`, `#[args]`, or `#[serde(..)]` and `#[schemars(..)]` as the \
            field of a struct has them";
        return Err(Error::new_spanned(other, message));
    }
    Ok(Param::Argument { name, ty, attributes: attrs.clone() })
}

/// Returns the text of doc comments: lines of a paragraph are joined, paragraphs remain separate.
fn docs(attributes: &[Attribute]) -> String {
    let mut text = String::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        let Meta::NameValue(pair) = &attribute.meta else { continue };
        let Expr::Lit(ExprLit { lit: Lit::Str(doc), .. }) = &pair.value else { continue };
        for line in doc.value().split('\n').map(str::trim) {
            match line {
                "" if text.is_empty() || text.ends_with('\n') => {}
                "" => text.push_str("\n\n"),
                _ if text.is_empty() || text.ends_with('\n') => text.push_str(line),
                _ => text.extend([" ", line]),
            }
        }
    }
    text.trim_end().to_owned()
}

/// The path of the module that exports the types of tools.
fn home() -> Result<TokenStream> {
    if let Some(superstep) = home::found(&[("superstep", "superstep")]) {
        return Ok(quote!(#superstep::llm));
    }
    home::found(&[("superstep-llm", "superstep_llm")]).ok_or_else(|| {
        let message = "the manifest has neither `superstep` nor `superstep-llm`; add one to its \
            dependencies, or use `crate = path`";
        Error::new(Span::call_site(), message)
    })
}

struct Expansion<'a> {
    options: &'a Options,
    item: ItemFn,
    name: LitStr,
    params: Vec<Param>,
    home: TokenStream,
}

impl Expansion<'_> {
    fn tokens(&self) -> TokenStream {
        let Self { options, item, name, home, .. } = self;
        let (vis, ident) = (&item.vis, &item.sig.ident);
        let docs = item.attrs.iter().filter(|attribute| attribute.path().is_ident("doc"));
        let description = self::docs(&item.attrs);
        let (dep_names, dep_types) = self.deps();
        let copies = dep_names.iter().zip(&dep_types).map(
            |(name, ty)| quote_spanned!(ty.span()=> let #name = <#ty as ::std::clone::Clone>::clone(&#name);),
        );
        let (args_type, args_item) = self.args();
        let (args, cx) = (Ident::new("args", Span::mixed_site()), Ident::new("cx", Span::mixed_site()));
        let run = self.run();
        let taken = self.taken(&args);
        let answer = self.answer(&cx);
        let flags = &options.behaviour;
        let timeout = options
            .timeout_ms
            .as_ref()
            .map(|ms| quote!(timeout: ::std::option::Option::Some(::std::time::Duration::from_millis(#ms)),));
        let ask = self.ask(&args);
        let (made, subject) =
            options.subject.as_ref().map(|subject| subject.tokens(home)).unwrap_or_default();
        quote! {
            #(#docs)*
            #vis fn #ident(#(#dep_names: #dep_types),*) -> ::std::sync::Arc<dyn #home::Tool> {
                #args_item
                #run
                let spec = #home::ToolSpec::of::<#args_type>(#name, #description);
                #made
                let tool = #home::tool_fn(spec, move |#args: #args_type, #cx: #home::ToolCx| {
                    #(#copies)*
                    async move {
                        #taken
                        #answer
                    }
                });
                #[allow(clippy::needless_update)]
                let behaviour =
                    #home::Behaviour { #(#flags: true,)* #timeout ..::std::default::Default::default() };
                ::std::sync::Arc::new(tool.with_behaviour(behaviour)#ask #subject)
            }
        }
    }

    fn deps(&self) -> (Vec<Ident>, Vec<&Type>) {
        let deps = self.params.iter().filter_map(|param| match param {
            Param::Dep { name, ty } => Some((name.ident.clone(), ty)),
            _ => None,
        });
        deps.unzip()
    }

    /// Returns the type of the arguments, and its definition if the tool has parameters for them.
    fn args(&self) -> (TokenStream, TokenStream) {
        let whole = self.params.iter().find_map(|param| match param {
            Param::Arguments { ty, .. } => Some(ty.to_token_stream()),
            _ => None,
        });
        if let Some(whole) = whole {
            return (whole, TokenStream::new());
        }
        let fields = self.params.iter().filter_map(|param| match param {
            Param::Argument { name, ty, attributes } => {
                let name = &name.ident;
                Some(quote!(#(#attributes)* #name: #ty))
            }
            _ => None,
        });
        let home = &self.home;
        let private = |name: &str| format!("{home}::__private::{name}").replace(' ', "");
        let (serde, schemars) = (private("serde"), private("schemars"));
        let item = quote! {
            #[derive(#home::__private::serde::Deserialize, #home::__private::schemars::JsonSchema)]
            #[serde(crate = #serde)]
            #[schemars(crate = #schemars)]
            struct __Args { #(#fields,)* }
        };
        (quote!(__Args), item)
    }

    /// Returns the function itself, under a name that differs from its parameters.
    fn run(&self) -> ItemFn {
        let mut run = self.item.clone();
        run.attrs.retain(|attribute| !attribute.path().is_ident("doc"));
        run.vis = syn::Visibility::Inherited;
        run.sig.ident = format_ident!("__run", span = self.item.sig.ident.span());
        for input in &mut run.sig.inputs {
            if let FnArg::Typed(param) = input {
                param.attrs.clear();
            }
        }
        run
    }

    /// Destructures the arguments.
    fn taken(&self, args: &Ident) -> TokenStream {
        let names = self.params.iter().filter_map(|param| match param {
            Param::Argument { name, .. } => Some(&name.ident),
            _ => None,
        });
        let whole = self.params.iter().find_map(|param| match param {
            Param::Arguments { name, .. } => Some(&name.ident),
            _ => None,
        });
        match whole {
            Some(whole) => quote!(let #whole = #args;),
            None => quote!(let __Args { #(#names),* } = #args;),
        }
    }

    /// Generates the call of the function, and the conversion of its result.
    fn answer(&self, cx: &Ident) -> TokenStream {
        let home = &self.home;
        let values = self.params.iter().map(|param| match param {
            Param::Argument { name, .. } | Param::Arguments { name, .. } | Param::Dep { name, .. } => {
                &name.ident
            }
            Param::Cx => cx,
        });
        let (span, is_result) = match &self.item.sig.output {
            ReturnType::Default => (Span::call_site(), false),
            ReturnType::Type(_, ty) => (ty.span(), is_result(ty)),
        };
        // Errors about a result are errors about its type.
        let run = Ident::new("__run", span);
        let returned = quote_spanned!(span=> #run(#(#values),*).await);
        // An alias such as `std::io::Result` counts as one too; any other type is the text for the model.
        let into = if is_result { quote_spanned!(span=> fallible) } else { quote_spanned!(span=> plain) };
        quote_spanned!(span=> #home::__private::#into(#returned))
    }

    /// Generates the call that sets the question, if there is one.
    fn ask(&self, args: &Ident) -> TokenStream {
        let (home, name) = (&self.home, &self.name);
        match &self.options.ask {
            None => TokenStream::new(),
            Some(Ask::Path(path)) => quote_spanned!(path.span()=> .with_approval(#path)),
            Some(Ask::Text(text)) => {
                let (args_type, _) = self.args();
                let taken = self.taken(args);
                let without = format!("Run {}?", name.value());
                quote! {
                    .with_approval(|given| {
                        let given = ::std::clone::Clone::clone(given);
                        let read = #home::__private::serde_json::from_value::<#args_type>(given);
                        // Arguments that cannot be parsed are rejected later; here they get a question all
                        // the same.
                        let ::std::result::Result::Ok(#args) = read else {
                            return ::std::option::Option::Some(::std::string::String::from(#without));
                        };
                        #[allow(unused_variables)]
                        #taken
                        ::std::option::Option::Some(::std::format!(#text))
                    })
                }
            }
        }
    }
}

fn is_result(ty: &Type) -> bool {
    let Type::Path(path) = ty else { return false };
    path.path.segments.last().is_some_and(|last| last.ident.to_string().ends_with("Result"))
}
