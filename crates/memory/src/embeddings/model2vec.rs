//! Static embeddings in this process: a vector for each token, and their mean for a text.
//!
//! Start at [`Model2Vec`].

use std::{
    error::Error,
    fmt,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::BoxFuture;
use half::f16;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::Deserialize;
use superstep_graph::store::{Embed, EmbedError};
use tokenizers::Tokenizer;
use xxhash_rust::xxh3::Xxh3;

const TOKENIZER: &str = "tokenizer.json";
const MODEL: &str = "model.safetensors";

/// The maximum number of bytes of the files, and of the vectors in memory.
const MAX_TOKENIZER_BYTES: u64 = 64 << 20;
const MAX_MODEL_BYTES: u64 = 2 << 30;

/// The tokens of a text that count: the first ones, as many as Model2Vec reads.
const MAX_TOKENS: usize = 512;
/// The bytes of a text that are split into tokens.
const MAX_TEXT_BYTES: usize = MAX_TOKENS * 32;

/// A static model of [Model2Vec](https://github.com/MinishLab/model2vec), such as `potion-base-8M`, from files of the user.
///
/// A text has the mean of the vectors of its tokens, which takes microseconds and no network. Only the first 512 tokens
/// count. The name for stored vectors is that of the folder and a hash of the files, so that vectors of another model are
/// never compared with these. Needs a tokio runtime. Clones share the model.
///
/// ```
/// use superstep_memory::Model2Vec;
///
/// let error = Model2Vec::load("no/folder").unwrap_err();
/// assert!(error.to_string().starts_with("the embedding model has no `no/folder/tokenizer.json`"));
/// ```
#[derive(Clone)]
pub struct Model2Vec {
    name: String,
    weights: Arc<Weights>,
}

struct Weights {
    tokenizer: Tokenizer,
    /// The token for what is in no other token; it has no meaning.
    unknown: Option<u32>,
    /// The vectors, one after another.
    table: Vec<f32>,
    /// The length of a vector.
    length: usize,
    /// The factor of each token; 1 if absent.
    factors: Option<Vec<f32>>,
    /// The row of each token; its own number if absent.
    rows: Option<Vec<usize>>,
}

/// The part of a `tokenizer.json` to which the tokenizer has no access for every kind of model.
#[derive(Deserialize)]
struct Unknown {
    model: UnknownToken,
}

#[derive(Deserialize)]
struct UnknownToken {
    unk_token: Option<String>,
    unk_id: Option<u32>,
}

/// The error of a [`Model2Vec`] that cannot be loaded.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Model2VecError {
    /// A file is missing.
    #[error(
        "the embedding model has no `{}`; its folder needs `tokenizer.json` and `model.safetensors`, as models of Model2Vec \
         are published",
        file.display()
    )]
    Missing {
        /// The file.
        file: PathBuf,
    },
    /// A file cannot be read, or is not part of a model.
    #[error("the file `{}` of the embedding model is not usable: {problem}", file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// A description of the problem.
        problem: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
}

superstep_llm::debug_by_chain!(Model2VecError);

impl Model2Vec {
    /// Loads `tokenizer.json` and `model.safetensors` of a folder. Blocks while it reads them.
    ///
    /// # Errors
    /// [`Model2VecError`], which names the file that is missing or invalid.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self, Model2VecError> {
        let [tokenizer, model] = [TOKENIZER, MODEL].map(|name| folder.as_ref().join(name));
        let tokens = read(&tokenizer, MAX_TOKENIZER_BYTES)?;
        let tensors = read(&model, MAX_MODEL_BYTES)?;
        let mut hash = Xxh3::new();
        hash.update(&tokens);
        hash.update(&tensors);
        let name = folder.as_ref().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = format!("{name}@{:016x}", hash.digest());
        let (tokenizer, unknown) = tokenizer_of(&tokens).map_err(|problem| problem.of(&tokenizer))?;
        let weights = Weights::of(tokenizer, unknown, &tensors).map_err(|problem| problem.of(&model))?;
        Ok(Self { name, weights: Arc::new(weights) })
    }

    /// Returns the length of its vectors.
    pub fn dimensions(&self) -> usize {
        self.weights.length
    }
}

impl Embed for Model2Vec {
    fn model(&self) -> &str {
        &self.name
    }

    fn embed<'a>(&'a self, texts: &'a [String]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, EmbedError>> {
        Box::pin(async move {
            let (weights, texts) = (self.weights.clone(), texts.to_vec());
            let all = move || texts.iter().map(|text| weights.vector(text)).collect();
            tokio::task::spawn_blocking(all).await?
        })
    }
}

impl fmt::Debug for Model2Vec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model2Vec")
            .field("name", &self.name)
            .field("dimensions", &self.dimensions())
            .finish_non_exhaustive()
    }
}

impl Weights {
    fn of(tokenizer: Tokenizer, unknown: Option<u32>, file: &[u8]) -> Result<Self, Problem> {
        let tensors =
            SafeTensors::deserialize(file).map_err(|cause| Problem::caused("it is not valid", cause))?;
        let table =
            ["embeddings", "0", "embedding.weight"].into_iter().find_map(|name| tensors.tensor(name).ok());
        let table = table.ok_or_else(|| Problem::new("it has no tensor `embeddings`"))?;
        let &[count, length] = table.shape() else {
            return Err(Problem::new(format!(
                "its embeddings have {} dimensions, not 2",
                table.shape().len()
            )));
        };
        let bytes = (count as u64).saturating_mul(length as u64).saturating_mul(4);
        if length == 0 || bytes > MAX_MODEL_BYTES {
            let problem = format!(
                "its {count} vectors of {length} numbers need {bytes} bytes; at most {MAX_MODEL_BYTES}, and not 0, are read"
            );
            return Err(Problem::new(problem));
        }
        let factors = tensors.tensor("weights").ok().map(|tensor| floats(&tensor)).transpose()?;
        let rows = tensors.tensor("mapping").ok().map(|tensor| numbers(&tensor)).transpose()?;
        let weights = Self { tokenizer, unknown, table: floats(&table)?, length, factors, rows };
        let vocabulary = weights.tokenizer.get_vocab(false);
        match vocabulary.values().filter(|token| weights.row(**token).is_none()).min() {
            Some(token) => {
                let problem = format!(
                    "it has no vector for the token {token} of `{TOKENIZER}`; both files have to be of one model"
                );
                Err(Problem::new(problem))
            }
            None => Ok(weights),
        }
    }

    /// Returns the vector of a token, and its factor.
    fn row(&self, token: u32) -> Option<(&[f32], f32)> {
        let token = usize::try_from(token).ok()?;
        let row = self.rows.as_ref().map_or(Some(token), |rows| rows.get(token).copied())?;
        let start = row.checked_mul(self.length)?;
        let vector = self.table.get(start..start.checked_add(self.length)?)?;
        let factor = self.factors.as_ref().map_or(Some(1.0), |factors| factors.get(token).copied())?;
        Some((vector, factor))
    }

    /// Returns the sum of the vectors of a text's tokens, which has the direction of their mean.
    fn vector(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        let tokens = self.tokenizer.encode_fast(&text[..text.floor_char_boundary(MAX_TEXT_BYTES)], false)?;
        let mut sum = vec![0.0; self.length];
        let known = tokens.get_ids().iter().take(MAX_TOKENS).filter(|token| Some(**token) != self.unknown);
        // Tokens that were added for a training, such as `[MASK]`, may have no vector.
        for (vector, factor) in known.filter_map(|token| self.row(*token)) {
            sum.iter_mut().zip(vector).for_each(|(sum, x)| *sum += x * factor);
        }
        Ok(sum)
    }
}

/// A problem with a file.
struct Problem {
    problem: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Problem {
    fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), source: None }
    }

    fn caused(problem: &str, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { problem: problem.to_owned(), source: Some(cause.into()) }
    }

    fn of(self, file: &Path) -> Model2VecError {
        Model2VecError::Invalid { file: file.to_owned(), problem: self.problem, source: self.source }
    }
}

/// Reads a regular file of at most `most` bytes.
fn read(path: &Path, most: u64) -> Result<Vec<u8>, Model2VecError> {
    let unreadable = |cause: std::io::Error| match cause.kind() {
        std::io::ErrorKind::NotFound => Model2VecError::Missing { file: path.to_owned() },
        _ => Problem::caused("it cannot be read", cause).of(path),
    };
    let metadata = path.metadata().map_err(unreadable)?;
    if !metadata.is_file() || metadata.len() > most {
        return Err(Problem::new(format!("it is not a regular file of at most {most} bytes")).of(path));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)).map_err(unreadable)?;
    Ok(bytes)
}

/// Returns the tokenizer without truncation and padding, and its token for unknown parts.
fn tokenizer_of(file: &[u8]) -> Result<(Tokenizer, Option<u32>), Problem> {
    let invalid = "it is not a tokenizer";
    let mut tokenizer = Tokenizer::from_bytes(file).map_err(|cause| Problem::caused(invalid, cause))?;
    tokenizer.with_truncation(None).map_err(|cause| Problem::caused(invalid, cause))?;
    tokenizer.with_padding(None);
    let Unknown { model } = serde_json::from_slice(file).map_err(|cause| Problem::caused(invalid, cause))?;
    let unknown = model.unk_token.and_then(|token| tokenizer.token_to_id(&token)).or(model.unk_id);
    Ok((tokenizer, unknown))
}

/// Reads a tensor of finite numbers.
#[expect(clippy::cast_possible_truncation, reason = "a factor needs no more than 32 bits")]
fn floats(tensor: &TensorView<'_>) -> Result<Vec<f32>, Problem> {
    let data = tensor.data();
    let floats: Vec<f32> = match tensor.dtype() {
        Dtype::F64 => data.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes) as f32).collect(),
        Dtype::F32 => data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        Dtype::F16 => data.as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32()).collect(),
        Dtype::I8 => data.iter().map(|byte| f32::from(i8::from_le_bytes([*byte]))).collect(),
        other => return Err(Problem::new(format!("it has numbers of the unsupported type {other:?}"))),
    };
    match floats.iter().all(|float| float.is_finite()) {
        true => Ok(floats),
        false => Err(Problem::new("it contains values that are not finite numbers")),
    }
}

/// Reads a tensor of the numbers of rows.
fn numbers(tensor: &TensorView<'_>) -> Result<Vec<usize>, Problem> {
    let data = tensor.data();
    let numbers: Option<Vec<usize>> = match tensor.dtype() {
        Dtype::I64 => {
            data.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes).try_into().ok()).collect()
        }
        Dtype::I32 => {
            data.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes).try_into().ok()).collect()
        }
        other => {
            return Err(Problem::new(format!("its mapping has numbers of the unsupported type {other:?}")));
        }
    };
    numbers.ok_or_else(|| Problem::new("its mapping has negative numbers"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use safetensors::serialize_to_file;
    use serde_json::json;
    use superstep_graph::{
        MemoryStore, Store as _,
        store::{Namespace, Search, StoreOptions},
    };
    use tempfile::TempDir;

    use super::*;

    const TOKENS: usize = 64;
    const LENGTH: usize = 8;

    /// A tensor: its name, type, shape and bytes.
    type Tensor<'a> = (&'a str, Dtype, Vec<usize>, Vec<u8>);

    /// Returns the numbers of row `row`, which look random.
    fn row(row: usize) -> Vec<f32> {
        let number = |at: usize| ((row * LENGTH + at) * 7919 % 101) as f32 / 50.0 - 1.0;
        (0..LENGTH).map(number).collect()
    }

    fn table(rows: usize) -> Tensor<'static> {
        let bytes = (0..rows).flat_map(row).flat_map(f32::to_le_bytes).collect();
        ("embeddings", Dtype::F32, vec![rows, LENGTH], bytes)
    }

    /// Makes the files of a model with the words `[UNK]`, `w1`, `w2` ..
    fn model(tensors: &[Tensor<'_>]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let name = |token| if token == 0 { "[UNK]".to_owned() } else { format!("w{token}") };
        let vocabulary: serde_json::Map<_, _> =
            (0..TOKENS).map(|token| (name(token), json!(token))).collect();
        let tokenizer = json!({
            "version": "1.0",
            "truncation": { "direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0 },
            "normalizer": { "type": "Lowercase" },
            "pre_tokenizer": { "type": "Whitespace" },
            "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]" },
        });
        fs::write(folder.path().join(TOKENIZER), tokenizer.to_string()).unwrap();
        let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
            (*name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        serialize_to_file(views, None, &folder.path().join(MODEL)).unwrap();
        folder
    }

    async fn vectors(folder: &TempDir, texts: &[&str]) -> Vec<Vec<f32>> {
        let texts: Vec<_> = texts.iter().map(|text| (*text).to_owned()).collect();
        Model2Vec::load(folder.path()).unwrap().embed(&texts).await.unwrap()
    }

    #[tokio::test]
    async fn a_text_has_the_direction_of_the_mean_of_its_known_tokens() {
        let folder = model(&[table(TOKENS)]);
        let sum: Vec<_> = row(3).iter().zip(row(9)).map(|(a, b)| a + b).collect();
        let texts = ["w3", "W3 w9", "w3 unheard w9", "unheard", ""];
        assert_eq!(vectors(&folder, &texts).await, [row(3), sum.clone(), sum, vec![0.0; 8], vec![0.0; 8]]);
        let long = vectors(&folder, &[&"w3 ".repeat(MAX_TOKENS), &"w3 ".repeat(MAX_TOKENS * 40)]).await;
        assert_eq!(long[0], long[1]);
    }

    #[tokio::test]
    async fn factors_mappings_and_small_numbers_are_applied() {
        let halves: Vec<u8> = [1.5, -2.0, 0.25, 4.0].map(f16::from_f32).map(f16::to_le_bytes).concat();
        let factors = (0..TOKENS).flat_map(|token| (token as f64).to_le_bytes()).collect();
        let mapping = (0..TOKENS).flat_map(|token| ((token % 2) as i64).to_le_bytes()).collect();
        let folder = model(&[
            ("embeddings", Dtype::F16, vec![2, 2], halves),
            ("weights", Dtype::F64, vec![TOKENS], factors),
            ("mapping", Dtype::I64, vec![TOKENS], mapping),
        ]);
        assert_eq!(vectors(&folder, &["w2", "w3", "w2 w3"]).await, [[3.0, -4.0], [0.75, 12.0], [3.75, 8.0]]);
        let bytes = (0..TOKENS).flat_map(|token| [token as u8, 255]).collect();
        let folder = model(&[("0", Dtype::I8, vec![TOKENS, 2], bytes)]);
        assert_eq!(vectors(&folder, &["w5"]).await, [[5.0, -1.0]]);
    }

    #[tokio::test]
    async fn a_store_searches_by_the_meaning_of_a_local_model() {
        let folder = model(&[table(TOKENS)]);
        let model = Model2Vec::load(folder.path()).unwrap();
        let store = MemoryStore::with(StoreOptions::new().embed(model.clone()));
        let notes = Namespace::new(["notes"]).unwrap();
        for (key, text) in [("near", "w3 w9"), ("far", "w40 w41"), ("same", "w3")] {
            store.put(&notes, key, text.into()).await.unwrap();
        }
        let found = store.search(Search::within(&notes).meaning("w3")).await.unwrap();
        assert_eq!(found.iter().map(|found| &*found.item.key).collect::<Vec<_>>(), ["same", "near", "far"]);
        let name = folder.path().file_name().unwrap().to_str().unwrap();
        assert!(model.model().starts_with(&format!("{name}@")) && model.model().len() == name.len() + 17);
        assert_eq!(model.dimensions(), LENGTH);
    }

    #[test]
    fn files_that_are_missing_or_invalid_are_named() {
        let problem = |folder: &TempDir| {
            let error = Model2Vec::load(folder.path()).unwrap_err();
            format!("{error:?}").replace(folder.path().to_str().unwrap(), "F")
        };
        let begins = |folder: &TempDir, wanted: &str| {
            let problem = problem(folder);
            assert!(problem.starts_with(wanted), "{problem}");
        };
        let folder = model(&[table(TOKENS)]);
        fs::remove_file(folder.path().join(MODEL)).unwrap();
        begins(
            &folder,
            "the embedding model has no `F/model.safetensors`; its folder needs `tokenizer.json` and",
        );
        fs::create_dir(folder.path().join(MODEL)).unwrap();
        begins(
            &folder,
            "the file `F/model.safetensors` of the embedding model is not usable: it is not a regular file",
        );
        fs::write(folder.path().join(TOKENIZER), "{}").unwrap();
        fs::remove_dir(folder.path().join(MODEL)).unwrap();
        fs::write(folder.path().join(MODEL), "x").unwrap();
        begins(
            &folder,
            "the file `F/tokenizer.json` of the embedding model is not usable: it is not a tokenizer: ",
        );
        fs::remove_file(folder.path().join(TOKENIZER)).unwrap();
        begins(&folder, "the embedding model has no `F/tokenizer.json`; its folder needs");

        let model_is = "the file `F/model.safetensors` of the embedding model is not usable:";
        let broken = model(&[table(TOKENS)]);
        fs::write(broken.path().join(MODEL), [0xff; 64]).unwrap();
        begins(&broken, &format!("{model_is} it is not valid: "));
        let short = model(&[table(TOKENS - 1)]);
        begins(
            &short,
            &format!("{model_is} it has no vector for the token 63 of `tokenizer.json`; both files"),
        );
        let other = model(&[("other", Dtype::F32, vec![1, 1], vec![0; 4])]);
        begins(&other, &format!("{model_is} it has no tensor `embeddings`"));
        let flat = model(&[("embeddings", Dtype::F32, vec![1], vec![0; 4])]);
        begins(&flat, &format!("{model_is} its embeddings have 1 dimensions, not 2"));
        let empty = model(&[("embeddings", Dtype::F32, vec![64, 0], vec![])]);
        begins(&empty, &format!("{model_is} its 64 vectors of 0 numbers need 0 bytes"));
        let infinite = model(&[("embeddings", Dtype::F32, vec![1, 1], f32::INFINITY.to_le_bytes().into())]);
        begins(&infinite, &format!("{model_is} it contains values that are not finite numbers"));
        let negative = [table(TOKENS), ("mapping", Dtype::I32, vec![1], (-1_i32).to_le_bytes().into())];
        begins(&model(&negative), &format!("{model_is} its mapping has negative numbers"));
        let bits = model(&[("embeddings", Dtype::U8, vec![1, 1], vec![0])]);
        begins(&bits, &format!("{model_is} it has numbers of the unsupported type U8"));
    }
}
