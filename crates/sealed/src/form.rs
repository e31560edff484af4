//! The stored form of a sealed value. Stable format: see the fixtures.
//!
//! ```text
//! {"$sealed":1,"key":"9f86d081884c7d65","at":7,"of":6,"slot":0,"zstd":5120,"data":"Base64"}
//! ```
//!
//! `data` is the nonce, the ciphertext and the tag of XChaCha20-Poly1305, in one; without `key` it is not encrypted. `at`, `of`
//! and `slot` are there where the reader cannot know them, and are bound like the rest of the place. `zstd` is the length before
//! the compression.

use std::borrow::Cow;

use base64::{Engine as _, prelude::BASE64_STANDARD_NO_PAD};
use chacha20poly1305::{
    Key, KeyInit as _, XChaCha20Poly1305, XNonce,
    aead::{Aead as _, Payload},
};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{master::KeyError, options::SealOptions, random::Random};

/// The name of the entry that begins a sealed value, and of the entries that contain one.
pub(crate) use superstep_checkpoint::internal::own::SEALED;

/// The version of the form.
const VERSION: u32 = 1;

const NONCE: usize = 24;

/// Returns whether a text looks like a sealed value.
pub(crate) fn is_sealed(text: &str) -> bool {
    let name = text.strip_prefix("{\"").and_then(|rest| rest.strip_prefix(SEALED));
    name.is_some_and(|rest| rest.starts_with("\":"))
}

/// The kind of a sealed value, so that none can stand for one of another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The metadata of a checkpoint and the tasks that it applied.
    Checkpoint,
    /// An update.
    Update,
    /// A snapshot.
    Snapshot,
    /// The item of a worker.
    WorkerItem,
    /// A part of a task's record.
    Record,
    /// The result of an effect.
    Effect,
    /// An item of a store.
    StoreItem,
}

impl Part {
    /// Returns the name that is bound to the value.
    fn bound_name(self) -> &'static str {
        match self {
            Self::Checkpoint => "checkpoint",
            Self::Update => "update",
            Self::Snapshot => "snapshot",
            Self::WorkerItem => "worker item",
            Self::Record => "record",
            Self::Effect => "effect",
            Self::StoreItem => "store item",
        }
    }
}

/// The part of a place that is stored with a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// The checkpoint that has it.
    pub(crate) at: Option<u64>,
    /// The checkpoint whose task made it; 0 for the one before the first.
    pub(crate) of: Option<u64>,
    pub(crate) slot: Option<u32>,
}

/// The place of a value, below that of its data key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) part: Part,
    /// The path to the thread below its root, or the namespace of an item.
    pub(crate) path: &'a str,
    /// Further parts of the place: the name of an effect, the key of an item, the readable columns of a checkpoint.
    pub(crate) name: &'a str,
    pub(crate) position: Position,
}

impl Place<'_> {
    /// Returns the associated data.
    fn bound(&self, key: &str, length: Option<u64>) -> Vec<u8> {
        let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let Position { at, of, slot } = self.position;
        let numbers = [number(at), number(of), number(slot.map(u64::from)), number(length)];
        let mut bound = b"superstep sealed value 1".to_vec();
        let texts = [key, self.part.bound_name(), self.path, self.name];
        // The length before each text makes the parts distinct.
        for text in texts.into_iter().chain(numbers.iter().map(String::as_str)) {
            bound.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bound.extend_from_slice(text.as_bytes());
        }
        bound
    }
}

/// The reason for which a value cannot be sealed or opened.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The value is not encrypted, and has to be.
    Plain,
    /// The value was encrypted with a data key that the thread or store does not have.
    UnknownKey(String),
    /// The ciphertext does not belong to this key and place.
    Changed,
    /// The value is at another place than the one that it names.
    Moved(String),
    /// The text is not a sealed value.
    Malformed(String),
    /// There are no random bytes.
    Random(KeyError),
    /// A value to seal is not JSON.
    NotJson(serde_json::Error),
}

impl Fault {
    /// Creates the fault of a value without valid form.
    pub(crate) fn malformed(why: impl ToString) -> Self {
        Self::Malformed(why.to_string())
    }
}

/// A key that encrypts the values of one thread or store.
pub(crate) struct DataKey {
    id: String,
    cipher: XChaCha20Poly1305,
}

impl DataKey {
    /// Creates the key. Its id is computed from it, so that a value names exactly one key.
    pub(crate) fn new(bytes: &Zeroizing<[u8; 32]>) -> Self {
        let id = blake3::derive_key("superstep 2026-11-26 id of a data key", &**bytes);
        let id = id[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Self { id, cipher: cipher(bytes) }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }
}

// Nonces of 192 bits, so that random ones never repeat for a key, however many processes write. Those of AES-GCM have
// 96 bits, which limits a key to 2^32 values. The cipher takes constant time without instructions of the processor.
pub(crate) fn cipher(key: &[u8; 32]) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(&Key::from(*key))
}

/// Encrypts some bytes. The result begins with the nonce.
pub(crate) fn encrypt(
    cipher: &XChaCha20Poly1305,
    random: &dyn Random,
    plain: &[u8],
    bound: &[u8],
) -> Result<Vec<u8>, KeyError> {
    let mut nonce = [0; NONCE];
    random.fill(&mut nonce)?;
    let sealed = cipher
        .encrypt(&XNonce::from(nonce), Payload { msg: plain, aad: bound })
        .expect("no value is as long as 256 GiB");
    Ok([nonce.as_slice(), &sealed].concat())
}

/// Decrypts the output of [`encrypt`]; `None` if it was changed.
pub(crate) fn decrypt(cipher: &XChaCha20Poly1305, sealed: &[u8], bound: &[u8]) -> Option<Vec<u8>> {
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE>()?;
    cipher.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: bound }).ok()
}

/// The JSON of a sealed value.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form<'a> {
    /// Named [`SEALED`], of which an attribute needs the text.
    #[serde(rename = "$sealed")]
    version: u32,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    of: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slot: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zstd: Option<u64>,
    #[serde(borrow)]
    data: Cow<'a, str>,
}

/// Seals a JSON text, with `key` if there is one. A small text without a key remains as it is.
pub(crate) fn seal(
    options: &SealOptions,
    key: Option<&DataKey>,
    place: &Place<'_>,
    text: &str,
) -> Result<String, Fault> {
    // What `open` would refuse is not compressed.
    let is_fit = |from: usize| (from..=options.max_bytes).contains(&text.len());
    let compression = options.compression.filter(|compression| is_fit(compression.from_bytes));
    let compressed = compression.and_then(|compression| {
        let compressed = zstd::bulk::compress(text.as_bytes(), compression.level).ok();
        // The names around it and Base64 take space.
        compressed.filter(|compressed| compressed.len() + compressed.len() / 2 + 64 < text.len())
    });
    if key.is_none() && compressed.is_none() && !is_sealed(text) {
        return Ok(text.to_owned());
    }
    let length = compressed.is_some().then_some(text.len() as u64);
    let bytes = compressed.as_deref().unwrap_or(text.as_bytes());
    let data = match key {
        Some(key) => {
            let bound = place.bound(&key.id, length);
            let sealed = encrypt(&key.cipher, &*options.random, bytes, &bound).map_err(Fault::Random)?;
            BASE64_STANDARD_NO_PAD.encode(sealed)
        }
        None => BASE64_STANDARD_NO_PAD.encode(bytes),
    };
    let Position { at, of, slot } = place.position;
    let key = key.map(|key| Cow::Borrowed(key.id()));
    let form = Form { version: VERSION, key, at, of, slot, zstd: length, data: data.into() };
    serde_json::to_string(&form).map_err(Fault::NotJson)
}

/// An opened value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) text: String,
    /// The position that is stored with it; `None` if it is not sealed.
    pub(crate) position: Option<Position>,
    pub(crate) is_encrypted: bool,
}

/// Opens the output of [`seal`]. `place` has the position if the reader knows it, and otherwise the stored one counts.
pub(crate) fn open(
    options: &SealOptions,
    keys: &[DataKey],
    place: &Place<'_>,
    text: &str,
) -> Result<Opened, Fault> {
    if !is_sealed(text) {
        if options.required {
            return Err(Fault::Plain);
        }
        return Ok(Opened { text: text.to_owned(), position: None, is_encrypted: false });
    }
    let form: Form<'_> = serde_json::from_str(text).map_err(Fault::malformed)?;
    if form.version != VERSION {
        let version = form.version;
        return Err(Fault::Malformed(format!("its form {version} is of a newer version of superstep")));
    }
    let position = Position { at: form.at, of: form.of, slot: form.slot };
    let place = match place.position == Position::default() {
        true => Place { position, ..*place },
        false if place.position == position => *place,
        false => return Err(Fault::Moved("it names another checkpoint or task".to_owned())),
    };
    let data = BASE64_STANDARD_NO_PAD.decode(form.data.as_bytes()).map_err(Fault::malformed)?;
    let bytes = match &form.key {
        Some(id) => {
            let key = keys.iter().find(|key| key.id == **id);
            let key = key.ok_or_else(|| Fault::UnknownKey(printable(id)))?;
            decrypt(&key.cipher, &data, &place.bound(id, form.zstd)).ok_or(Fault::Changed)?
        }
        None if options.required => return Err(Fault::Plain),
        None => data,
    };
    let bytes = match form.zstd {
        Some(length) => decompress(&bytes, length, options.max_bytes)?,
        None => bytes,
    };
    let text = String::from_utf8(bytes).map_err(Fault::malformed)?;
    Ok(Opened { text, position: Some(position), is_encrypted: form.key.is_some() })
}

/// Decompresses a value of a known length.
fn decompress(bytes: &[u8], length: u64, max: usize) -> Result<Vec<u8>, Fault> {
    let expected = usize::try_from(length).ok().filter(|length| *length <= max);
    let expected = expected.ok_or_else(|| {
        Fault::Malformed(format!(
            "it has {length} bytes decompressed, and at most {max} are allowed; raise `SealOptions::max_bytes`"
        ))
    })?;
    let found = zstd::bulk::decompress(bytes, expected).map_err(Fault::malformed)?;
    if found.len() == expected { Ok(found) } else { Err(Fault::malformed("its length is another one")) }
}

/// Returns the beginning of a foreign text.
fn printable(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).take(32).collect()
}
