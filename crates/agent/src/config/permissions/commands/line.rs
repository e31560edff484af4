//! The simple commands of a command line, for denying rules: a superset of those that `sh` runs.
//!
//! Start at [`parse`].

use std::str::Chars;

use super::pattern::Item;

/// The maximum depth of substitutions.
const MAX_DEPTH: usize = 8;

/// The characters that shells remove before they parse, except within single quotes and comments.
const CONTINUATION: &str = "\\\n";

/// A command line.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) commands: Vec<Simple>,
    /// The shell calculates with variables.
    pub(super) evaluates: bool,
}

/// A simple command: also the parts of compound commands, with their reserved words.
#[derive(Debug, Default)]
pub(super) struct Simple {
    pub(super) words: Vec<Word>,
    /// The files of its redirections.
    pub(super) targets: Vec<Word>,
}

/// A word without its quotes.
#[derive(Clone, Debug, Default)]
pub(super) struct Word {
    pub(super) items: Vec<Item>,
    /// A part of it is the value of a variable or a substitution, or a list in braces.
    pub(super) is_computed: bool,
    /// The shell replaces it by names of files.
    pub(super) is_globbed: bool,
    pub(super) is_assignment: bool,
    /// Only some shells take it for an assignment: `x+=y`, `x[1]=y`.
    pub(super) is_of_arrays: bool,
    is_quoted: bool,
    is_begun: bool,
    /// The places of `items` that are not quoted.
    open: Vec<usize>,
}

impl Word {
    /// Returns a word of which nothing is known.
    pub(super) fn unknown() -> Self {
        Self { items: vec![Item::Any], is_computed: true, ..Self::default() }
    }

    /// Returns the text, if the shell does not compute it.
    pub(super) fn text(&self) -> Option<String> {
        self.items.iter().map(|item| item.char()).collect()
    }

    fn push(&mut self, c: char, is_open: bool) {
        if is_open {
            self.open.push(self.items.len());
        }
        self.is_begun = true;
        self.items.push(Item::Char(c));
    }

    fn compute(&mut self) {
        (self.is_begun, self.is_computed) = (true, true);
        self.items.push(Item::Any);
    }

    /// Notes the begin of a value, if the text so far is a variable's name, such as `x`, `x+` or `x[1]`.
    fn assign(&mut self) {
        let chars: String = self.items.iter().map(|item| item.char().unwrap_or('$')).collect();
        let name = chars.strip_suffix('+').unwrap_or(&chars);
        let name =
            name.split_once('[').filter(|(_, index)| index.ends_with(']')).map_or(name, |(name, _)| name);
        if !self.is_quoted && is_name(name) {
            (self.is_assignment, self.is_of_arrays) = (name == chars, name != chars);
        }
    }

    /// Returns whether some shells look for the end of a subscript behind the word, through spaces and signs.
    fn is_cut_in_subscript(&self) -> bool {
        let begin = self.open.iter().copied().find(|at| self.items.get(*at) == Some(&Item::Char('[')));
        begin.is_some_and(|begin| {
            let name: Option<String> = self.items[..begin].iter().map(|item| item.char()).collect();
            name.is_some_and(|name| is_name(&name)) && !self.items[begin..].contains(&Item::Char(']'))
        })
    }

    /// Returns what follows the `=` of an assignment, also of one that is an argument or quoted.
    pub(super) fn value_items(&self) -> Option<&[Item]> {
        let end = self.items.iter().position(|item| *item == Item::Char('='))?;
        let name: Option<String> = self.items[..end].iter().map(|item| item.char()).collect();
        (self.is_of_arrays || is_name(&name?)).then_some(&self.items[end + 1..])
    }

    /// Returns whether it is one of these texts.
    pub(super) fn is_one_of(&self, texts: &[&str]) -> bool {
        self.text().is_some_and(|text| texts.contains(&&*text))
    }

    /// Applies what the shell does with the signs that are not quoted.
    fn finish(&mut self) {
        let is = |at: &usize, c: char| self.items[*at] == Item::Char(c);
        let has = |c: char| self.items.contains(&Item::Char(c));
        let double = self.items.windows(2).any(|pair| pair == [Item::Char('.'); 2]);
        let tilde =
            self.open.first() == Some(&0) && is(&0, '~') && self.items.get(1) != Some(&Item::Char('/'));
        if self.open.iter().any(|at| is(at, '{')) && (has(',') || double || self.is_computed) {
            (self.items, self.is_computed) = (vec![Item::Any], true);
            return;
        }
        let class = self.open.iter().find(|at| is(at, '[')).copied();
        let end = self.items.iter().rposition(|item| *item == Item::Char(']'));
        let stars: Vec<_> = self.open.iter().copied().filter(|at| is(at, '*') || is(at, '?')).collect();
        self.is_globbed = !stars.is_empty();
        stars.into_iter().for_each(|at| self.items[at] = Item::Any);
        if let (Some(begin), Some(end)) = (class, end)
            && begin < end
        {
            self.is_globbed = true;
            self.items.splice(begin..=end, [Item::Any]);
        }
        if tilde {
            (self.items[0], self.is_computed) = (Item::Any, true);
        }
    }
}

fn is_name(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Parses a command line; `None` if it cannot be parsed, or shells parse it differently.
pub(super) fn parse(line: &str) -> Option<Line> {
    parse_at(line, 0)
}

fn parse_at(line: &str, depth: usize) -> Option<Line> {
    let mut parser = Parser { rest: line.chars(), depth, found: Line::default() };
    parser.list(false)?;
    Some(parser.found)
}

struct Parser<'a> {
    rest: Chars<'a>,
    depth: usize,
    found: Line,
}

/// The start of a redirection, whose next word is its target.
enum Redirection {
    File,
    Document { strips: bool },
}

/// A here-document whose text follows the line.
struct Document {
    delimiter: String,
    strips: bool,
    is_quoted: bool,
}

/// The command that is being read.
#[derive(Default)]
struct Reading {
    simple: Simple,
    /// The redirection without its target.
    redirection: Option<Redirection>,
    /// The here-documents that begin behind the line.
    documents: Vec<Document>,
}

/// Skips line continuations.
fn skip_continuations(rest: &mut Chars<'_>) {
    while let Some(behind) = rest.as_str().strip_prefix(CONTINUATION) {
        *rest = behind.chars();
    }
}

impl Parser<'_> {
    /// Returns the next character behind line continuations, which shells remove first, also within operators and names.
    fn peek(&mut self) -> Option<char> {
        skip_continuations(&mut self.rest);
        self.rest.clone().next()
    }

    fn second(&mut self) -> Option<char> {
        let _ = self.peek();
        let mut behind = self.rest.clone();
        behind.next();
        skip_continuations(&mut behind);
        behind.next()
    }

    fn next_if(&mut self, wanted: &str) -> Option<char> {
        let c = self.peek().filter(|c| wanted.contains(*c))?;
        self.rest.next();
        Some(c)
    }

    /// Parses commands to the end of the text, or to the `)` of a substitution.
    fn list(&mut self, in_substitution: bool) -> Option<()> {
        let (mut parens, mut is_spaced) = (0_usize, true);
        let mut reading = Reading::default();
        loop {
            // Shells differ in whether the document begins behind the next line.
            if !reading.documents.is_empty() && self.rest.as_str().starts_with(CONTINUATION) {
                return None;
            }
            let c = self.peek();
            let ends = c.is_none_or(|c| "\n;&|()".contains(c));
            if ends && reading.redirection.is_some() {
                return None;
            }
            match c {
                None => {
                    self.found.commands.push(reading.simple);
                    return (!in_substitution && reading.documents.is_empty()).then_some(());
                }
                Some(' ' | '\t') => drop(self.rest.next()),
                Some('#') => {
                    let end = self.rest.as_str().find('\n').unwrap_or(self.rest.as_str().len());
                    self.rest = self.rest.as_str()[end..].chars();
                }
                // Arithmetic, in which `<<` is no document, or subshells.
                Some('(') if reading.simple.words.is_empty() && self.second() == Some('(') => return None,
                Some('(') => {
                    if !reading.simple.words.is_empty() {
                        self.parenthesis(&reading.simple, is_spaced)?;
                    } else {
                        self.rest.next();
                        parens += 1;
                    }
                    self.found.commands.push(std::mem::take(&mut reading.simple));
                }
                Some(sign @ ('\n' | ';' | '&' | '|' | ')')) => {
                    self.rest.next();
                    self.found.commands.push(std::mem::take(&mut reading.simple));
                    match sign {
                        '\n' => {
                            reading.documents.drain(..).try_for_each(|document| self.document(&document))?
                        }
                        ')' if in_substitution && parens == 0 => {
                            return reading.documents.is_empty().then_some(());
                        }
                        ')' => parens = parens.saturating_sub(1),
                        _ => {}
                    }
                }
                Some('<' | '>') if self.second() != Some('(') => {
                    if reading.redirection.replace(self.redirection()?).is_some() {
                        return None;
                    }
                }
                Some(_) => self.add_word(&mut reading, in_substitution)?,
            }
            is_spaced = matches!(c, Some(' ' | '\t'));
        }
    }

    /// Parses a word of the command: an argument, or the target of a redirection.
    fn add_word(&mut self, reading: &mut Reading, in_substitution: bool) -> Option<()> {
        let before = self.rest.as_str();
        let word = self.word()?;
        let read = &before[..before.len() - self.rest.as_str().len()];
        let is_delimiter = matches!(reading.redirection, Some(Redirection::Document { .. }));
        if (is_delimiter || !reading.documents.is_empty()) && read.contains('\n') {
            return None;
        }
        if word.is_cut_in_subscript() {
            return None;
        }
        let text = word.text();
        let is_descriptor = !word.is_quoted
            && text.as_ref().is_some_and(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
            && matches!(self.peek(), Some('<' | '>'));
        match reading.redirection.take() {
            _ if !word.is_begun => {}
            // A `)` in it would end the substitution.
            None if in_substitution && text.as_deref() == Some("case") => return None,
            None if is_descriptor => {}
            None => reading.simple.words.push(word),
            Some(Redirection::File) => reading.simple.targets.push(word),
            Some(Redirection::Document { strips }) => {
                let is_plain = |text: &String| {
                    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                };
                let (delimiter, is_quoted) = (text.filter(is_plain)?, word.is_quoted);
                reading.documents.push(Document { delimiter, strips, is_quoted });
            }
        }
        Some(())
    }

    /// Parses the `()` of a function, or the `(` of a subshell behind a reserved word.
    fn parenthesis(&mut self, simple: &Simple, is_spaced: bool) -> Option<()> {
        self.rest.next();
        let last = simple.words.last().and_then(Word::text)?;
        if is_spaced && (super::LEADING.contains(&&*last) || matches!(&*last, "in" | "time")) {
            // Within a substitution its `)` would be taken for the end.
            return (self.depth == 0).then_some(());
        }
        while self.next_if(" \t").is_some() {}
        // `@()` is a pattern in some shells.
        let is_plain = last.chars().all(|c| c.is_ascii_alphanumeric() || "_-.:".contains(c));
        (is_plain && simple.words.len() == 1).then_some(())?;
        self.next_if(")").map(drop)
    }

    fn redirection(&mut self) -> Option<Redirection> {
        let first = self.rest.next()?;
        if first == '<' && self.next_if("<").is_some() {
            if self.next_if("<").is_some() {
                return Some(Redirection::File);
            }
            return Some(Redirection::Document { strips: self.next_if("-").is_some() });
        }
        self.next_if(if first == '<' { ">&" } else { ">&|" });
        Some(Redirection::File)
    }

    /// Skips a here-document. Only plain variables may be expanded in it.
    fn document(&mut self, document: &Document) -> Option<()> {
        let mut body = String::new();
        loop {
            let rest = self.rest.as_str();
            let (line, is_last) = match rest.split_once('\n') {
                Some((line, behind)) => {
                    self.rest = behind.chars();
                    (line, false)
                }
                None => {
                    self.rest = "".chars();
                    (rest, true)
                }
            };
            let shown = if document.strips { line.trim_start_matches('\t') } else { line };
            if shown == document.delimiter {
                break;
            }
            // Shells differ in where a document with such a line ends.
            if is_last || line.trim_start().starts_with(&document.delimiter) {
                return None;
            }
            body.push_str(line);
        }
        let is_expanded =
            body.contains(['`', '\\']) || ["$(", "${", "$["].iter().any(|sign| body.contains(sign));
        (document.is_quoted || !is_expanded).then_some(())
    }

    fn word(&mut self) -> Option<Word> {
        let mut word = Word::default();
        while let Some(c) = self.peek() {
            match c {
                '<' | '>' if self.second() == Some('(') => {
                    self.rest.next();
                    self.next_if("(")?;
                    self.substitution(&mut word)?;
                    continue;
                }
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => break,
                '#' if !word.is_begun => break,
                _ => drop(self.rest.next()),
            }
            match c {
                '\'' => {
                    (word.is_begun, word.is_quoted) = (true, true);
                    let (quoted, behind) = self.rest.as_str().split_once('\'')?;
                    quoted.chars().for_each(|c| word.push(c, false));
                    self.rest = behind.chars();
                }
                '"' => self.double_quoted(&mut word)?,
                '\\' => match self.rest.next()? {
                    '\n' => {}
                    c => {
                        word.is_quoted = true;
                        word.push(c, false);
                    }
                },
                '$' => self.dollar(&mut word, false)?,
                '`' => self.backticks(&mut word, false)?,
                c if c.is_whitespace() || c.is_control() => return None,
                c => {
                    if c == '=' && !word.is_assignment && !word.is_of_arrays {
                        word.assign();
                    }
                    word.push(c, true);
                }
            }
        }
        word.finish();
        Some(word)
    }

    fn double_quoted(&mut self, word: &mut Word) -> Option<()> {
        (word.is_begun, word.is_quoted) = (true, true);
        loop {
            match self.rest.next()? {
                '"' => return Some(()),
                '\\' => match self.rest.next()? {
                    '\n' => {}
                    c => {
                        if !"\"\\$`".contains(c) {
                            word.push('\\', false);
                        }
                        word.push(c, false);
                    }
                },
                '$' => self.dollar(word, true)?,
                '`' => self.backticks(word, true)?,
                c => word.push(c, false),
            }
        }
    }

    /// Parses the text behind a `$`.
    fn dollar(&mut self, word: &mut Word, in_quotes: bool) -> Option<()> {
        let in_name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
        match self.peek() {
            Some('\'' | '"') if !in_quotes => return None,
            Some('[') => return None,
            Some('(') => {
                self.rest.next();
                if self.peek() != Some('(') {
                    return self.substitution(word);
                }
                self.rest.next();
                self.arithmetic()?;
            }
            Some('{') => {
                self.rest.next();
                self.parameter()?;
            }
            Some(c) if c.is_ascii_digit() || "@*#?$!-".contains(c) => drop(self.rest.next()),
            Some(c) if in_name(&c) => {
                while self.peek().filter(in_name).is_some() {
                    self.rest.next();
                }
            }
            _ => {
                word.push('$', false);
                return Some(());
            }
        }
        word.compute();
        Some(())
    }

    /// Parses the commands of a substitution behind its `(`.
    fn substitution(&mut self, word: &mut Word) -> Option<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        self.list(true)?;
        self.depth -= 1;
        word.compute();
        Some(())
    }

    fn arithmetic(&mut self) -> Option<()> {
        let (mut depth, mut before) = (0_usize, ' ');
        loop {
            let c = self.rest.next()?;
            match c {
                ')' if depth == 0 => return self.next_if(")").map(drop),
                ')' => depth -= 1,
                '(' if before != '$' => depth += 1,
                c if c.is_ascii_alphanumeric() || "_ +-*/%<>=!&|^~?:,$".contains(c) => {
                    self.found.evaluates |= c.is_ascii_alphabetic() || "_$".contains(c);
                }
                _ => return None,
            }
            before = c;
        }
    }

    /// Parses `${name}` and its forms with plain text.
    fn parameter(&mut self) -> Option<()> {
        let (name, behind) = self.rest.as_str().split_once('}')?;
        self.rest = behind.chars();
        let is_begin = |c: char| c.is_ascii_alphanumeric() || "_#!@*?$-".contains(c);
        let is_plain = |c: char| c.is_alphanumeric() || "_#!@*?-%:=+/.,^~[] ".contains(c);
        // A subscript, or the begin and the length of a part.
        let is_part = name.split_once(':').is_some_and(|(_, part)| !part.starts_with(['-', '=', '?', '+']));
        self.found.evaluates |= is_part || name.contains('[');
        // `bash` executes substitutions in the value for `${x@P}`.
        let mut before = None;
        let transforms = name.chars().any(|c| {
            let is_operator = c == '@' && !matches!(before, None | Some('[' | '#' | '!'));
            before = Some(c);
            is_operator
        });
        (name.starts_with(is_begin) && name.chars().skip(1).all(is_plain) && !transforms).then_some(())
    }

    fn backticks(&mut self, word: &mut Word, in_quotes: bool) -> Option<()> {
        let mut text = String::new();
        loop {
            match self.rest.next()? {
                '`' => break,
                '\\' => match self.rest.next()? {
                    '"' if in_quotes => return None,
                    c => {
                        if !"`\\$".contains(c) {
                            text.push('\\');
                        }
                        text.push(c);
                    }
                },
                c => text.push(c),
            }
        }
        if self.depth >= MAX_DEPTH {
            return None;
        }
        let Line { commands, evaluates } = parse_at(&text, self.depth + 1)?;
        self.found.commands.extend(commands);
        self.found.evaluates |= evaluates;
        word.compute();
        Some(())
    }
}
