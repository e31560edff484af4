//! The form of a text: its encoding, its byte order mark and its line ends.
//!
//! Start at [`TextForm::of`].

use std::{
    borrow::Cow,
    io::{self, Cursor, Read},
};

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};
use encoding_rs_io::DecodeReaderBytesBuilder;

use crate::call::is_binary;

/// The number of bytes in which a text declares its encoding, as in the HTML standard.
const DECLARED_WITHIN: usize = 1 << 10;

/// The number of bytes that decide whether a declared encoding is wrong because the text is UTF-8.
const TRIED: u64 = 1 << 20;

/// The number of bytes in which a zero byte shows that a file is not text, as in git.
const BINARY_WITHIN: u64 = 8 << 10;

/// The encoding of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextForm {
    pub(crate) encoding: &'static Encoding,
    has_bom: bool,
}

impl TextForm {
    /// Returns the form of a file that begins with these bytes: that of its byte order mark, or the one that it declares, unless it
    /// is UTF-8.
    pub(crate) fn of(start: &[u8]) -> Self {
        let declared = || declared(start).filter(|_| std::str::from_utf8(start).is_err());
        Self::marked(start).unwrap_or_else(|| Self::plain(declared().unwrap_or(UTF_8)))
    }

    /// Returns the form of a page: that of its byte order mark, of the header with this charset, or the one that it declares.
    pub(crate) fn of_page(body: &[u8], charset: Option<&'static Encoding>) -> Self {
        let plain = || charset.map_or_else(|| Self::of(body), Self::plain);
        Self::marked(body).unwrap_or_else(plain)
    }

    fn marked(start: &[u8]) -> Option<Self> {
        let (encoding, _) = Encoding::for_bom(start)?;
        Some(Self { encoding, has_bom: true })
    }

    fn plain(encoding: &'static Encoding) -> Self {
        Self { encoding, has_bom: false }
    }

    /// Returns the text without the byte order mark, and whether it has bytes that do not belong to the encoding.
    pub(crate) fn decode(self, bytes: &[u8]) -> (Cow<'_, str>, bool) {
        self.encoding.decode_without_bom_handling(&bytes[self.mark().len().min(bytes.len())..])
    }

    /// Returns the bytes of a text, with the byte order mark; `None` if it has characters that the encoding lacks.
    pub(crate) fn encode(self, text: &str) -> Option<Vec<u8>> {
        let mut bytes = self.mark().to_owned();
        match self.encoding {
            it if it == UTF_16LE => bytes.extend(text.encode_utf16().flat_map(u16::to_le_bytes)),
            it if it == UTF_16BE => bytes.extend(text.encode_utf16().flat_map(u16::to_be_bytes)),
            other => {
                let (encoded, _, has_others) = other.encode(text);
                if has_others {
                    return None;
                }
                bytes.extend_from_slice(&encoded);
            }
        }
        Some(bytes)
    }

    /// Returns the name of the encoding, unless it is UTF-8.
    pub(crate) fn name(self) -> Option<&'static str> {
        (self.encoding != UTF_8).then(|| self.encoding.name())
    }

    fn mark(self) -> &'static [u8] {
        match self.encoding {
            _ if !self.has_bom => b"",
            it if it == UTF_16LE => b"\xff\xfe",
            it if it == UTF_16BE => b"\xfe\xff",
            _ => b"\xef\xbb\xbf",
        }
    }
}

/// A file that is read as text.
pub(crate) struct OpenedText<R> {
    pub(crate) form: TextForm,
    /// `true` if it is not text, by the rule of git and grep: it has a zero byte near its beginning.
    pub(crate) is_binary: bool,
    /// The text as UTF-8, without the byte order mark. Bytes that do not belong to another encoding are replaced; those that are
    /// not UTF-8 stay.
    pub(crate) text: R,
}

/// Begins to read a file as text.
pub(crate) fn open<R: Read>(mut file: R) -> io::Result<OpenedText<impl Read>> {
    let mut start = Vec::new();
    file.by_ref().take(DECLARED_WITHIN as u64).read_to_end(&mut start)?;
    if declared(&start).is_some() {
        file.by_ref().take(TRIED).read_to_end(&mut start)?;
    }
    let has_more = start.len() as u64 == DECLARED_WITHIN as u64 + TRIED;
    let form = TextForm::of(if has_more { whole_characters(&start) } else { &start });
    let mut builder = DecodeReaderBytesBuilder::new();
    builder.encoding(Some(form.encoding)).utf8_passthru(true).strip_bom(true).bom_sniffing(false);
    let mut bytes = Cursor::new(start);
    bytes.set_position(form.mark().len() as u64);
    let mut rest = builder.build(bytes.chain(file));
    let mut begin = Vec::new();
    rest.by_ref().take(BINARY_WITHIN).read_to_end(&mut begin)?;
    Ok(OpenedText { form, is_binary: is_binary(&begin), text: Cursor::new(begin).chain(rest) })
}

/// Returns a part of a text without the character that is cut off at its end.
fn whole_characters(start: &[u8]) -> &[u8] {
    match std::str::from_utf8(start) {
        Err(error) if error.error_len().is_none() => &start[..error.valid_up_to()],
        _ => start,
    }
}

/// Returns the encoding with this name, in the spelling of the web or of a programming language.
pub(crate) fn named(label: &str) -> Option<&'static Encoding> {
    let find = |label: &str| Encoding::for_label_no_replacement(label.as_bytes());
    find(label).or_else(|| find(&label.replace(['-', '_'], "")))
}

/// Returns the encoding that a text declares: XML, HTML, a style sheet, or a source with `coding:` in one of its first two lines.
fn declared(start: &[u8]) -> Option<&'static Encoding> {
    let start = &start[..start.len().min(DECLARED_WITHIN)];
    let text = String::from_utf8_lossy(start).to_ascii_lowercase();
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let label = |text: &str| {
        let text = text.trim_start().trim_start_matches(['"', '\'']);
        let end =
            text.find(|c: char| !c.is_ascii_alphanumeric() && !"-_.:".contains(c)).unwrap_or(text.len());
        named(&text[..end])
    };
    let after = |text: &str, name: &str| {
        let (_, rest) = text.split_once(name)?;
        label(rest.trim_start().strip_prefix('=')?)
    };
    let found = if let Some(xml) = text.strip_prefix("<?xml") {
        after(xml.split("?>").next()?, "encoding")
    } else if let Some(style) = text.strip_prefix("@charset") {
        label(style)
    } else if text.starts_with('<') {
        text.split("<meta").skip(1).find_map(|tag| after(tag.split('>').next()?, "charset"))
    } else {
        let comments = text.lines().take(2).filter(|line| line.starts_with(['#', '%', ';', '/', '"']));
        comments
            .filter_map(|line| line.split_once("coding"))
            .find_map(|(_, rest)| label(rest.strip_prefix([':', '='])?))
    };
    // A text in which this can be read is not UTF-16.
    found.filter(|encoding| encoding.is_ascii_compatible())
}

/// The line ends of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineEnds {
    pub(crate) crlf: usize,
    pub(crate) lf: usize,
    /// Carriage returns that stand alone.
    pub(crate) cr: usize,
}

impl LineEnds {
    pub(crate) fn of(text: &str) -> Self {
        let crlf = text.matches("\r\n").count();
        Self { crlf, lf: text.matches('\n').count() - crlf, cr: text.matches('\r').count() - crlf }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { crlf: self.crlf + other.crlf, lf: self.lf + other.lf, cr: self.cr + other.cr }
    }

    /// Returns whether all lines end in `\r\n`.
    pub(crate) fn are_crlf(self) -> bool {
        self.crlf > 0 && self.lf == 0 && self.cr == 0
    }

    /// Returns a text in which all lines end like those of this one, if all of these end in `\r\n`.
    pub(crate) fn kept_in(self, text: &str) -> Cow<'_, str> {
        if self.are_crlf() && text.contains('\n') {
            text.replace("\r\n", "\n").replace('\n', "\r\n").into()
        } else {
            text.into()
        }
    }

    /// Describes line ends other than `\n` alone.
    pub(crate) fn note(self) -> Option<&'static str> {
        match (self.crlf, self.lf, self.cr) {
            (0, _, 0) => None,
            (_, 0, 0) => Some("lines end in \\r\\n"),
            (0, _, _) => Some("\\r stands alone in some lines, where it ends none"),
            (_, _, 0) => Some("line ends are mixed: some lines end in \\r\\n, others in \\n"),
            _ => Some("line ends are mixed: some lines end in \\r\\n, and \\r stands alone in others"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> (String, &'static str) {
        let OpenedText { form, text: mut reader, .. } = open(bytes).unwrap();
        let mut text = Vec::new();
        reader.read_to_end(&mut text).unwrap();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert_eq!(form.decode(bytes).0, text);
        (text, form.encoding.name())
    }

    fn utf16(text: &str) -> Vec<u8> {
        TextForm { encoding: UTF_16LE, has_bom: true }.encode(text).unwrap()
    }

    #[test]
    fn a_text_is_read_as_its_mark_or_its_declaration_says() {
        for (bytes, text, name) in [
            (b"\xef\xbb\xbfusing".to_vec(), "using", "UTF-8"),
            (utf16("hé"), "hé", "UTF-16LE"),
            (b"\xfe\xff\0h\0\xe9".to_vec(), "hé", "UTF-16BE"),
            (b"caf\xe9".to_vec(), "caf\u{fffd}", "UTF-8"),
            (
                b"# -*- coding: latin-1 -*-\ncaf\xe9".to_vec(),
                "# -*- coding: latin-1 -*-\ncafé",
                "windows-1252",
            ),
            ("# coding=latin1\ncafé".into(), "# coding=latin1\ncafé", "UTF-8"),
            (
                b"<?xml version='1.0' encoding='koi8-r'?>\xc1".to_vec(),
                "<?xml version='1.0' encoding='koi8-r'?>а",
                "KOI8-R",
            ),
            (b"<html><META Charset=cp1251>\xef".to_vec(), "<html><META Charset=cp1251>п", "windows-1251"),
            (b"@charset \"utf-16\";\xe9".to_vec(), "@charset \"utf-16\";\u{fffd}", "UTF-8"),
            (b"".to_vec(), "", "UTF-8"),
        ] {
            assert_eq!(read(&bytes), (text.to_owned(), name));
        }
    }

    #[test]
    fn a_text_is_written_in_the_form_in_which_it_was_read() {
        for bytes in [
            utf16("a\r\n😀"),
            b"\xef\xbb\xbfa".to_vec(),
            b"\xfe\xff\0a".to_vec(),
            b"# coding: latin1\n\xe9".to_vec(),
            b"plain".to_vec(),
        ] {
            let form = TextForm::of(&bytes);
            assert_eq!(form.encode(&form.decode(&bytes).0), Some(bytes));
        }
        assert_eq!(TextForm::of(b"# coding: latin1\n\xe9").encode("😀"), None);
    }

    #[test]
    fn line_ends_are_described_and_kept() {
        let note = |text| LineEnds::of(text).note().unwrap_or_default();
        assert_eq!([note("a\nb"), note("a\r\nb")], ["", "lines end in \\r\\n"]);
        assert!(note("a\r\nb\n").starts_with("line ends are mixed: some lines end in \\r\\n, others in \\n"));
        assert!(note("a\rb").starts_with("\\r stands alone"));
        assert_eq!(LineEnds::of("a\r\n").kept_in("b\nc\r\n"), "b\r\nc\r\n");
        assert_eq!(LineEnds::of("a\r\nb\n").kept_in("b\nc"), "b\nc");
    }
}
