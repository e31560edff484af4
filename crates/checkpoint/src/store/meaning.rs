//! Searches by meaning.

use futures::future::BoxFuture;

use super::{EmbedError, StoreError};

/// An embedding: turns texts into vectors whose directions are near if their meanings are.
///
/// Set it with [`StoreOptions::embed`](super::StoreOptions::embed). It is called once for all texts of a
/// batch, before any operation of the batch.
pub trait Embed: Send + Sync + 'static {
    /// Returns the name of the model, which is stored with its vectors: those of another model are never
    /// compared with them.
    fn model(&self) -> &str;

    /// Returns one vector for each text, in order, all equally long, of finite numbers.
    ///
    /// # Errors
    /// Anything; the batch fails with [`StoreError::Embedding`].
    fn embed<'a>(&'a self, texts: &'a [String]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, EmbedError>>;
}

/// Returns a direction as databases store it: floats of 32 bits, little-endian.
pub fn vector_bytes(vector: &Vector) -> Vec<u8> {
    vector.direction.iter().flat_map(|float| float.to_le_bytes()).collect()
}

/// Reads the direction that [`vector_bytes`] wrote; `None` if the bytes are not floats.
pub fn vector_of(model: &str, bytes: &[u8]) -> Option<Vector> {
    let (floats, rest) = bytes.as_chunks::<4>();
    let direction = floats.iter().map(|float| f32::from_le_bytes(*float)).collect();
    rest.is_empty().then(|| Vector { model: model.to_owned(), direction })
}

/// The embedding of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Vector {
    /// The model that computed it.
    pub model: String,
    /// The direction, of length 1; of length 0 if the model returned only zeros.
    pub direction: Vec<f32>,
}

impl Vector {
    /// Returns the cosine of two vectors, from -1 to 1; `None` if they cannot be compared.
    pub fn cosine(&self, other: &Self) -> Option<f64> {
        let comparable = self.model == other.model && self.direction.len() == other.direction.len();
        comparable.then(|| {
            let products = self.direction.iter().zip(&other.direction);
            products.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>().clamp(-1.0, 1.0)
        })
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "directions are stored as they are given, in 32 bits"
    )]
    fn new(model: &str, mut direction: Vec<f32>) -> Self {
        let length = direction.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
        if length > 0.0 {
            direction.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
        }
        Self { model: model.to_owned(), direction }
    }
}

/// Requests the vectors of texts and validates the result.
pub(super) async fn vectors(embed: &dyn Embed, texts: &[String]) -> Result<Vec<Vector>, StoreError> {
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    let model = embed.model();
    let fail = |what: String, source| StoreError::Embedding { model: model.to_owned(), what, source };
    let vectors = embed.embed(texts).await;
    let vectors = vectors.map_err(|cause| fail(cause.to_string(), Some(cause)))?;
    if vectors.len() != texts.len() {
        return Err(fail(
            format!("expected a vector for each text, {} in all, got {}", texts.len(), vectors.len()),
            None,
        ));
    }
    let length = vectors[0].len();
    if length == 0 || vectors.iter().any(|vector| vector.len() != length) {
        return Err(fail("its vectors are empty, or not equally long".into(), None));
    }
    if !vectors.iter().flatten().all(|x| x.is_finite()) {
        return Err(fail("a vector contains a value that is not a finite number".into(), None));
    }
    Ok(vectors.into_iter().map(|vector| Vector::new(model, vector)).collect())
}
