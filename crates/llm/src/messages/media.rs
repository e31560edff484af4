//! Images, audio and PDF files beside the text of a message.
//!
//! Start at [`Media`].

use std::{fmt, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

/// An image, an audio clip or a PDF file: base64 text of bytes with the signature of its type. Clones share the text.
///
/// ```
/// # use superstep_llm::media::Media;
/// let gif = Media::new("image/gif", "R0lGODlhAQABAAAAACw=")?;
/// assert_eq!(gif.to_string(), "[image: image/gif, 14 bytes]");
/// # Ok::<(), superstep_llm::media::MediaError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    /// The type of its data.
    pub mime: MediaType,
    data: Arc<str>,
    /// The address of the resource, if the server named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
}

/// The types of images, audio and files that models accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MediaType {
    /// An image.
    #[serde(rename = "image/png")]
    Png,
    /// An image.
    #[serde(rename = "image/jpeg")]
    Jpeg,
    /// An image.
    #[serde(rename = "image/gif")]
    Gif,
    /// An image.
    #[serde(rename = "image/webp")]
    Webp,
    /// Audio.
    #[serde(rename = "audio/wav")]
    Wav,
    /// Audio.
    #[serde(rename = "audio/mpeg")]
    Mp3,
    /// A file.
    #[serde(rename = "application/pdf")]
    Pdf,
}

/// Data that is not of an accepted type.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MediaError {
    /// The type of the media is not supported.
    #[error("not of a type that models take")]
    Type,
    /// The data is not base64.
    #[error("its data is not valid base64")]
    Base64,
    /// The data has another type than declared.
    #[error("its data is not {}", .0.as_str())]
    Data(MediaType),
}

crate::debug_by_chain!(MediaError);

/// The media types that a model accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepts {
    /// `true` if it accepts images.
    pub images: bool,
    /// `true` if it accepts audio.
    pub audio: bool,
    /// `true` if it accepts PDF files.
    pub pdf: bool,
}

/// The number of bytes that identify a type.
const HEAD: usize = 12;

impl MediaType {
    /// Returns the type with this MIME type, whose parameters do not count.
    pub fn of(mime: &str) -> Option<Self> {
        let essence = mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        Some(match essence.as_str() {
            "image/png" => Self::Png,
            "image/jpeg" | "image/jpg" => Self::Jpeg,
            "image/gif" => Self::Gif,
            "image/webp" => Self::Webp,
            "audio/wav" | "audio/x-wav" | "audio/wave" | "audio/vnd.wave" => Self::Wav,
            "audio/mpeg" | "audio/mp3" => Self::Mp3,
            "application/pdf" => Self::Pdf,
            _ => return None,
        })
    }

    /// Returns the MIME type as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
            Self::Wav => "audio/wav",
            Self::Mp3 => "audio/mpeg",
            Self::Pdf => "application/pdf",
        }
    }

    /// Returns whether it is an image.
    pub fn is_image(self) -> bool {
        matches!(self, Self::Png | Self::Jpeg | Self::Gif | Self::Webp)
    }

    /// Returns whether it is audio.
    pub fn is_audio(self) -> bool {
        matches!(self, Self::Wav | Self::Mp3)
    }

    /// Returns whether data has the signature of this type.
    fn begins(self, head: &[u8]) -> bool {
        let riff = |kind: &[u8]| head.starts_with(b"RIFF") && head.get(8..12) == Some(kind);
        match self {
            Self::Png => head.starts_with(b"\x89PNG\r\n\x1a\n"),
            Self::Jpeg => head.starts_with(b"\xff\xd8\xff"),
            Self::Gif => head.starts_with(b"GIF87a") || head.starts_with(b"GIF89a"),
            Self::Webp => riff(b"WEBP"),
            Self::Wav => riff(b"WAVE"),
            Self::Pdf => head.starts_with(b"%PDF-"),
            // A tag, or the first frame.
            Self::Mp3 => {
                head.starts_with(b"ID3") || matches!(head, [0xff, second, ..] if second & 0xe0 == 0xe0)
            }
        }
    }
}

impl Media {
    /// Encodes the content of a file, whose type is that of its first bytes.
    ///
    /// # Errors
    /// [`MediaError::Type`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MediaError> {
        use MediaType::{Gif, Jpeg, Mp3, Pdf, Png, Wav, Webp};
        let head = &bytes[..bytes.len().min(HEAD)];
        // The signature of the last one is the shortest.
        let mime = [Png, Jpeg, Gif, Webp, Wav, Pdf, Mp3].into_iter().find(|mime| mime.begins(head));
        let mime = mime.ok_or(MediaError::Type)?;
        Ok(Self { mime, data: STANDARD.encode(bytes).into(), uri: None })
    }

    /// Validates base64 text of this MIME type.
    ///
    /// # Errors
    /// [`MediaError`] if no model could accept it: a provider would reject every request with it.
    pub fn new(mime: &str, base64: impl Into<Arc<str>>) -> Result<Self, MediaError> {
        let mime = MediaType::of(mime).ok_or(MediaError::Type)?;
        let data: Arc<str> = base64.into();
        let bytes = STANDARD.decode(data.as_bytes()).map_err(|_| MediaError::Base64)?;
        if mime.begins(&bytes[..bytes.len().min(HEAD)]) {
            Ok(Self { mime, data, uri: None })
        } else {
            Err(MediaError::Data(mime))
        }
    }

    /// Sets the address of the resource.
    #[must_use]
    pub fn at(self, uri: impl Into<String>) -> Self {
        Self { uri: Some(uri.into()), ..self }
    }

    /// Returns the base64 text.
    pub fn base64(&self) -> &str {
        &self.data
    }

    /// Returns the number of decoded bytes.
    pub fn bytes(&self) -> usize {
        self.data.trim_end_matches('=').len() * 3 / 4
    }
}

impl fmt::Display for Media {
    /// Formats the description that is used in texts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mime, bytes) = (self.mime.as_str(), grouped(self.bytes()));
        let kind = match self.mime {
            MediaType::Pdf => "file",
            mime if mime.is_audio() => "audio",
            _ => "image",
        };
        match &self.uri {
            Some(uri) => write!(f, "[resource {uri}: {mime}, {bytes} bytes]"),
            None => write!(f, "[{kind}: {mime}, {bytes} bytes]"),
        }
    }
}

impl fmt::Debug for Media {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Formats a number with a comma before each three digits.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl Accepts {
    /// Neither images nor audio nor files.
    pub const NOTHING: Self = Self { images: false, audio: false, pdf: false };

    /// Returns whether media of this type are accepted.
    pub fn takes(self, mime: MediaType) -> bool {
        match mime {
            MediaType::Pdf => self.pdf,
            mime if mime.is_audio() => self.audio,
            _ => self.images,
        }
    }

    /// Returns the media types that either of two accepts.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            images: self.images || other.images,
            audio: self.audio || other.audio,
            pdf: self.pdf || other.pdf,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(bytes: &[u8]) -> String {
        STANDARD.encode(bytes)
    }

    #[test]
    fn data_is_checked_against_its_type() {
        let heads: [(&str, &[u8]); 9] = [
            ("image/png", b"\x89PNG\r\n\x1a\n...."),
            ("image/jpeg", b"\xff\xd8\xff\xe0"),
            ("IMAGE/JPG; q=1", b"\xff\xd8\xff\xe0"),
            ("image/gif", b"GIF89a"),
            ("image/webp", b"RIFF....WEBPVP8 "),
            ("audio/x-wav", b"RIFF....WAVEfmt "),
            ("audio/mpeg", b"ID3\x04"),
            ("audio/mp3", b"\xff\xfb\x90\x00"),
            ("application/pdf", b"%PDF-1.7"),
        ];
        for (mime, bytes) in heads {
            let media = Media::new(mime, encoded(bytes)).unwrap();
            assert_eq!((media.bytes(), Some(media.mime)), (bytes.len(), MediaType::of(mime)), "{mime}");
            assert_eq!(Media::from_bytes(bytes), Ok(media.clone()));
            assert_eq!(Media::new(mime, encoded(b"<svg>")), Err(MediaError::Data(media.mime)), "{mime}");
            assert_eq!(Media::new(mime, ""), Err(MediaError::Data(media.mime)), "{mime}");
        }
        let gif = encoded(b"GIF89a");
        for mime in ["image/svg+xml", "image/bmp", "text/html", "", "image"] {
            assert_eq!(Media::new(mime, gif.as_str()), Err(MediaError::Type), "{mime}");
        }
        for broken in ["R0lG ODlh", "R0lGODlh\n", "R0lGODl", "R0lGODlh\"}", "data:image/gif;base64,R0lGODlh"]
        {
            assert_eq!(Media::new("image/gif", broken), Err(MediaError::Base64), "{broken}");
        }
    }

    #[test]
    fn media_are_described_and_never_shown() {
        let large = Media::new("image/gif", encoded(&[b"GIF89a".as_slice(), &[0; 12_339]].concat())).unwrap();
        assert_eq!(format!("{large} {large:?}"), ["[image: image/gif, 12,345 bytes]"; 2].join(" "));
        let sound = Media::new("audio/mpeg", encoded(b"ID3")).unwrap().at("file:///a.mp3");
        assert_eq!(sound.to_string(), "[resource file:///a.mp3: audio/mpeg, 3 bytes]");
        let file = Media::new("application/pdf", encoded(b"%PDF-1.7")).unwrap();
        assert_eq!(file.to_string(), "[file: application/pdf, 8 bytes]");
        let json = r#"{"mime":"audio/mpeg","data":"SUQz","uri":"file:///a.mp3"}"#;
        assert_eq!(serde_json::to_string(&sound).unwrap(), json);
        assert_eq!(serde_json::from_str::<Media>(json).unwrap(), sound);
    }
}
