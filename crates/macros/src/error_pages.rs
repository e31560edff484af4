//! Tests of the code on the pages of `docs/errors`.

use std::{env, fs, path::Path};

use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{
    Attribute, Error, Ident, ItemFn, Result, Token,
    parse::{Parse, ParseStream},
};

/// The line that begins the hidden lines of a page; they end with the comment.
const HIDDEN: &str = "\n<!-- test\n";

/// Pages whose tests have the same attributes, such as `#[tokio::test]: SS101 SS102;`.
struct Row {
    attributes: Vec<Attribute>,
    codes: Vec<Ident>,
}

/// A table of all pages.
pub(crate) struct Table(Vec<Row>);

impl Parse for Table {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut rows = Vec::new();
        while !input.is_empty() {
            let attributes = input.call(Attribute::parse_outer)?;
            input.parse::<Token![:]>()?;
            let mut codes = Vec::new();
            while !input.peek(Token![;]) {
                codes.push(input.parse()?);
            }
            input.parse::<Token![;]>()?;
            rows.push(Row { attributes, codes });
        }
        Ok(Self(rows))
    }
}

/// Returns a test for each page, and `CODES`, which lists the pages.
pub(crate) fn expand(table: &Table) -> Result<TokenStream> {
    let mut tests = TokenStream::new();
    let mut codes = Vec::new();
    for Row { attributes, codes: row } in &table.0 {
        for code in row {
            let file = format!("/docs/errors/{code}.md");
            let is_async = attributes.iter().any(|attribute| attribute.path().segments.len() > 1);
            let test = test(code, &file, is_async)?;
            codes.push(code.to_string());
            tests.extend(quote! {
                #(#attributes)*
                #test
                // The compiler learns from it that a change of the page changes this crate.
                const _: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), #file));
            });
        }
    }
    Ok(quote!(#tests pub(super) const CODES: &[&str] = &[#(#codes),*];))
}

/// Returns the function `ss101` of the page `SS101`, whose errors are reported at `code` in the table.
fn test(code: &Ident, file: &str, is_async: bool) -> Result<TokenStream> {
    let fail = |problem: String| Error::new(code.span(), format!("`{}`: {problem}", &file[1..]));
    let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let page = fs::read_to_string(Path::new(&(folder + file))).map_err(|error| fail(error.to_string()))?;
    let function = function(&code.to_string(), &page).map_err(fail)?;
    let mut function: ItemFn =
        syn::parse_str(&function).map_err(|error| fail(format!("{error} in\n{function}")))?;
    function.sig.asyncness = is_async.then(<Token![async]>::default);
    Ok(spanned(function.into_token_stream(), code.span()))
}

/// Returns the hidden lines of a page as a function, with the visible blocks in their places.
fn function(code: &str, page: &str) -> std::result::Result<String, String> {
    let (page, hidden) = page.split_once(HIDDEN).ok_or("no line `<!-- test` begins its hidden lines")?;
    let mut body = hidden.split_once("\n-->").ok_or("no line `-->` ends its hidden lines")?.0.to_owned();
    if !body.contains("CODE") && !body.contains("fails!") {
        return Err("no hidden line expects `CODE`".to_owned());
    }
    for (at, block) in page.split("```rust").skip(1).enumerate() {
        let block = block.split_once('\n').and_then(|(_, block)| block.split_once("```"));
        let (block, _) = block.ok_or("a block has no end")?;
        let place = format!("{{{{{}}}}}", at + 1);
        if !body.contains(&place) {
            return Err(format!("the hidden lines have no `{place}`"));
        }
        body = body.replace(&place, block);
    }
    let name = code.to_lowercase();
    Ok(format!("fn {name}() -> Done {{ const CODE: &str = {code:?};\n{body}\nOk(())\n}}"))
}

/// Gives all tokens a span.
fn spanned(tokens: TokenStream, span: Span) -> TokenStream {
    let token = |mut token: TokenTree| {
        if let TokenTree::Group(group) = &token {
            token = Group::new(group.delimiter(), spanned(group.stream(), span)).into();
        }
        token.set_span(span);
        token
    };
    tokens.into_iter().map(token).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# SS1: a\n\n```rust,no_run\nwrong();\n```\n\n```rust,no_run\nright();\n```\n";

    #[test]
    fn the_blocks_of_a_page_are_placed_in_its_hidden_lines() {
        let page = format!("{PAGE}\n<!-- test\nassert_fails(CODE, {{ {{{{1}}}} }});\n{{{{2}}}}\n-->\n");
        let function = function("SS1", &page).unwrap();
        assert_eq!(
            function.split_whitespace().collect::<Vec<_>>().join(" "),
            "fn ss1() -> Done { const CODE: &str = \"SS1\"; assert_fails(CODE, { wrong(); }); right(); Ok(()) }"
        );
    }

    #[test]
    fn a_page_without_a_test_of_all_blocks_is_refused() {
        let error = |hidden: &str| function("SS1", &format!("{PAGE}{hidden}")).unwrap_err();
        assert_eq!(error(""), "no line `<!-- test` begins its hidden lines");
        assert_eq!(error("\n<!-- test\n{{1}}\n{{2}}\n-->\n"), "no hidden line expects `CODE`");
        assert_eq!(error("\n<!-- test\nfails! { {{1}} }\n-->\n"), "the hidden lines have no `{{2}}`");
    }
}
