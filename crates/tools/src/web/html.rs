//! Conversion of HTML to text for a model.
//!
//! html5ever splits the page into tags and text as a browser does, without building a tree. The cost grows
//! with the length of a page and not with its depth, and the conversion can be cancelled at any point.

// Libraries that build a tree first take time quadratic in its depth: a page of 100 KB of `<b>` took minutes.
use std::cell::RefCell;

use html5ever::{
    tendril::StrTendril,
    tokenizer::{
        BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
        states::RawKind,
    },
};
use reqwest::Url;
use tokio_util::sync::CancellationToken;

use crate::call::cut;

/// Number of bytes parsed between two checks for cancellation.
const PART_BYTES: usize = 4 << 10;

/// Converts a page to text: paragraphs, headings, lists, table rows and link targets. Stops on cancellation
/// and soon after the text exceeds `most` bytes.
pub(super) fn text(page: &str, base: &Url, most: usize, stop: &CancellationToken) -> String {
    let sink = Sink { base: base.clone(), most, text: RefCell::default() };
    let tokenizer = Tokenizer::new(sink, TokenizerOpts::default());
    let input = BufferQueue::default();
    let mut rest = page;
    while !rest.is_empty() && !stop.is_cancelled() && tokenizer.sink.text.borrow().shown.len() <= most {
        let part = match cut(rest, PART_BYTES) {
            "" => rest,
            part => part,
        };
        input.push_back(StrTendril::from_slice(part));
        let _ = tokenizer.feed(&input);
        rest = &rest[part.len()..];
    }
    tokenizer.end();
    let text = tokenizer.sink.text.into_inner();
    text.shown.trim().to_owned()
}

struct Sink {
    base: Url,
    most: usize,
    text: RefCell<Text>,
}

#[derive(Default)]
struct Text {
    shown: String,
    /// Number of line ends to insert before more text.
    breaks: usize,
    /// A space must precede the next text.
    space: bool,
    /// Number of open elements whose white space is significant.
    preformatted: u32,
    /// The target of the open link, and the text's length where it began.
    link: Option<(String, usize)>,
    /// The hidden element that is open, and its nesting depth.
    hidden: Option<(String, u32)>,
    /// The current table row already has a cell.
    in_row: bool,
}

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let mut text = self.text.borrow_mut();
        match token {
            Token::CharacterTokens(part) if text.hidden.is_none() => text.add(&part, self.most),
            Token::TagToken(tag) => {
                let name = &*tag.name;
                if text.hidden.is_some() {
                    text.hide(&tag);
                } else if tag.kind == TagKind::StartTag {
                    text.open(&tag, &self.base);
                } else {
                    text.close(name);
                }
                if tag.kind == TagKind::StartTag {
                    return match name {
                        "script" => TokenSinkResult::RawData(RawKind::ScriptData),
                        "style" | "iframe" | "noembed" | "noframes" | "xmp" => {
                            TokenSinkResult::RawData(RawKind::Rawtext)
                        }
                        "title" | "textarea" => TokenSinkResult::RawData(RawKind::Rcdata),
                        _ => TokenSinkResult::Continue,
                    };
                }
            }
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

impl Text {
    fn open(&mut self, tag: &Tag, base: &Url) {
        let name = &*tag.name;
        let attribute = |wanted: &str| {
            tag.attrs
                .iter()
                .find(|attribute| &*attribute.name.local == wanted)
                .map(|attribute| &*attribute.value)
        };
        match name {
            "script" | "style" | "template" | "svg" | "iframe" | "noembed" | "noframes" | "head" => {
                // Only the title of a head is read; `hide` finds it.
                self.hidden = (!tag.self_closing).then(|| (name.to_owned(), 1));
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.stand_apart(2);
                let depth = usize::from(name.as_bytes()[1] - b'0');
                self.mark(&format!("{} ", "#".repeat(depth)));
            }
            "li" => {
                self.stand_apart(1);
                self.mark("- ");
            }
            "td" | "th" => {
                if std::mem::replace(&mut self.in_row, true) {
                    self.space = true;
                    self.mark("| ");
                }
            }
            "br" => self.stand_apart((self.breaks + 1).min(2)),
            "tr" => {
                self.in_row = false;
                self.stand_apart(1);
            }
            "hr" => {
                self.stand_apart(2);
                self.mark("---");
                self.stand_apart(2);
            }
            "img" => {
                if let Some(alt) = attribute("alt").filter(|alt| !alt.trim().is_empty()) {
                    self.add(&format!("[{}]", alt.trim()), usize::MAX);
                }
            }
            "a" => {
                self.close("a");
                let target = attribute("href").filter(|href| !href.starts_with('#'));
                let target = target.and_then(|href| base.join(href).ok());
                let target = target.filter(|url| ["http", "https"].contains(&url.scheme()));
                self.link = target.map(|url| (url.into(), self.shown.len()));
            }
            "pre" => {
                self.stand_apart(2);
                self.preformatted += 1;
            }
            name => self.stand_apart(breaks(name)),
        }
    }

    fn close(&mut self, name: &str) {
        match name {
            "a" => {
                // A link without text is useless to the reader.
                if let Some((target, began)) = self.link.take().filter(|(_, began)| self.shown.len() > *began)
                    && !self.shown[began..].trim_end().ends_with(&target)
                {
                    self.shown.push_str(&format!(" ({target})"));
                }
            }
            "pre" => {
                self.preformatted = self.preformatted.saturating_sub(1);
                self.stand_apart(2);
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.stand_apart(2),
            name => self.stand_apart(breaks(name)),
        }
    }

    /// Handles a tag inside of hidden content.
    fn hide(&mut self, tag: &Tag) {
        let Some((name, open)) = &mut self.hidden else { return };
        let is_title = name == "head" && matches!(&*tag.name, "title" | "body");
        if is_title && tag.kind == TagKind::StartTag {
            self.hidden = None;
            self.stand_apart(2);
        } else if *tag.name == **name && !tag.self_closing {
            *open = if tag.kind == TagKind::StartTag { *open + 1 } else { *open - 1 };
            if *open == 0 {
                self.hidden = None;
            }
        }
    }

    /// Requests at least `breaks` line ends before the next text.
    fn stand_apart(&mut self, breaks: usize) {
        if breaks > 0 {
            self.breaks = self.breaks.max(breaks);
            self.space = false;
        }
    }

    /// Adds text of the page.
    fn add(&mut self, part: &str, most: usize) {
        if self.shown.len() > most {
            return;
        }
        if self.preformatted > 0 {
            self.mark(part);
            return;
        }
        for (index, word) in part.split_ascii_whitespace().enumerate() {
            if index > 0 || self.space || part.starts_with(|c: char| c.is_ascii_whitespace()) {
                self.space = self.breaks == 0;
            }
            self.mark(word);
        }
        self.space |= self.breaks == 0 && part.ends_with(|c: char| c.is_ascii_whitespace());
    }

    /// Appends literal text after the pending breaks and spaces.
    fn mark(&mut self, text: &str) {
        let breaks = std::mem::take(&mut self.breaks);
        let space = std::mem::take(&mut self.space);
        if !self.shown.is_empty() {
            let at_end = self.shown.bytes().rev().take_while(|byte| *byte == b'\n').count();
            self.shown.extend(std::iter::repeat_n('\n', breaks.saturating_sub(at_end)));
            if space && breaks == 0 && !self.shown.ends_with([' ', '\n']) {
                self.shown.push(' ');
            }
        }
        self.shown.push_str(text);
    }
}

/// Returns the number of line ends before and after an element.
fn breaks(name: &str) -> usize {
    match name {
        "p" | "ul" | "ol" | "dl" | "table" | "blockquote" | "figure" | "form" | "title" | "body" => 2,
        "div" | "section" | "article" | "header" | "footer" | "nav" | "main" | "aside" | "address" | "tr"
        | "li" | "dt" | "dd" | "details" | "summary" | "fieldset" | "figcaption" | "option" | "caption" => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(page: &str) -> String {
        let base = Url::parse("https://example.com/a/b").unwrap();
        text(page, &base, 10_000, &CancellationToken::new())
    }

    #[test]
    fn a_page_is_read_as_it_is_meant() {
        let page = "<!doctype html><html><head><meta charset=utf-8><title>The &amp; page</title><style>p{}</style>\
            <script>if (a</b) x()</script></head><body>\n<nav><a href=\"/home\">Home</a> <a href=#x>Here</a></nav>\
            <h2>One\n  two</h2>\n<p>See <a href='c'>the <b>other</b></a>, <a href=\"mailto:x@y\">mail</a>.<br>Next.\
            <ul><li>first<li> second </ul><img src=x alt='A cat'><svg><text>no</text></svg>\
            <pre>  a\n    b\n</pre><table><tr><th>x<th>y<tr><td>1</td> <td>2</td></tr></table><hr>\
            <p>https://example.com/z: <a href=/z>https://example.com/z</a></body></html>";
        assert_eq!(
            shown(page),
            "The & page\n\nHome (https://example.com/home) Here\n\n## One two\n\n\
             See the other (https://example.com/a/c), mail.\nNext.\n\n- first\n- second\n\n[A cat]\n\n  a\n    b\n\n\
             x | y\n1 | 2\n\n---\n\nhttps://example.com/z: https://example.com/z"
        );
    }

    #[test]
    fn broken_pages_are_read_as_well_as_they_can() {
        assert_eq!(shown("a < b &lt; c &nope; <"), "a < b < c &nope; <");
        assert_eq!(shown("<head><meta x><body>text"), "text");
        assert_eq!(shown("a<script>x"), "a");
        assert_eq!(shown("</a></pre></ul>a</svg>b"), "ab");
        assert_eq!(shown("<svg><svg></svg>no</svg>yes"), "yes");
        assert_eq!(shown(""), "");
    }

    #[test]
    fn no_page_takes_long_or_becomes_large() {
        for part in [
            "<div>",
            "<b id=1>",
            "<table><tr><td>",
            "<ul><li>",
            "<a href=x>y",
            "<pre>",
            "<svg>",
            "<!--",
            "&",
            "<a b",
        ] {
            let page = part.repeat((1 << 20) / part.len());
            assert!(shown(&page).len() < 20_000, "{part}");
        }
    }

    #[test]
    fn conversion_stops_when_cancelled() {
        let stop = CancellationToken::new();
        stop.cancel();
        let base = Url::parse("https://example.com").unwrap();
        assert_eq!(text("never read", &base, 100, &stop), "");
    }
}
