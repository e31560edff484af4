//! The answers of a server to requests for embeddings.
//!
//! Start at [`Entries`].

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::Deserialize;
use superstep_llm::{ModelError, ModelErrorKind, wire::excerpt};

/// The vectors of an answer, as they were sent.
pub(super) struct Entries(Vec<Entry>);

#[derive(Deserialize)]
struct Body {
    data: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    /// The position of its text in the request; some servers leave it out.
    index: Option<usize>,
    embedding: Coded,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Coded {
    /// Some servers write numbers that JSON does not have as `null`.
    Numbers(Vec<Option<f32>>),
    /// Floats of 32 bits, little-endian.
    Base64(String),
}

impl Entries {
    /// Reads the body of an answer with a status of 2xx.
    ///
    /// # Errors
    /// The error in the body, or one of the kind `Malformed`.
    pub(super) fn read(body: &[u8]) -> Result<Self, ModelError> {
        match serde_json::from_slice::<Body>(body) {
            Ok(body) => Ok(Self(body.data)),
            Err(cause) => {
                let value = serde_json::from_slice::<serde_json::Value>(body);
                if let Some(error) = value.as_ref().ok().and_then(|value| value.get("error")) {
                    return Err(ModelError::from_stream(error));
                }
                let text = excerpt(&String::from_utf8_lossy(&body[..body.len().min(4096)]));
                Err(malformed(format!("the answer has no list of embeddings ({cause}): {text}")))
            }
        }
    }

    /// Returns a vector for each of the texts of the request, in their order.
    ///
    /// # Errors
    /// One of the kind `Malformed`, if there is not exactly one vector of finite numbers for each text.
    pub(super) fn vectors(self, texts: usize) -> Result<Vec<Vec<f32>>, ModelError> {
        let received = self.0.len();
        if received != texts {
            return Err(malformed(format!(
                "expected a vector for each text, {texts} in all, got {received}"
            )));
        }
        let mut vectors = vec![Vec::new(); texts];
        for (nth, entry) in self.0.into_iter().enumerate() {
            let index = entry.index.unwrap_or(nth);
            let Some(place) = vectors.get_mut(index).filter(|vector| vector.is_empty()) else {
                let problem = format!("two vectors have the index {index}, or it is not below {texts}");
                return Err(malformed(problem));
            };
            *place = entry.embedding.floats()?;
        }
        Ok(vectors)
    }
}

impl Coded {
    fn floats(self) -> Result<Vec<f32>, ModelError> {
        let floats: Vec<f32> = match self {
            Self::Numbers(numbers) => numbers.into_iter().map(|number| number.unwrap_or(f32::NAN)).collect(),
            Self::Base64(text) => {
                let bytes = BASE64_STANDARD.decode(text);
                let bytes = bytes.map_err(|cause| malformed(format!("a vector is not Base64: {cause}")))?;
                let (floats, rest) = bytes.as_chunks::<4>();
                if !rest.is_empty() {
                    return Err(malformed("a vector is not made of floats of 32 bits"));
                }
                floats.iter().map(|float| f32::from_le_bytes(*float)).collect()
            }
        };
        match floats.iter().all(|float| float.is_finite()) {
            true if floats.is_empty() => Err(malformed("a vector is empty")),
            true => Ok(floats),
            false => Err(malformed("a vector contains a value that is not a finite number")),
        }
    }
}

pub(super) fn malformed(problem: impl Into<String>) -> ModelError {
    ModelError::new(ModelErrorKind::Malformed, problem)
}
