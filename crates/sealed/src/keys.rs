//! Data keys, and their stored form: encrypted with a master key. Stable format: see the fixtures.
//!
//! ```text
//! {"format":2,"keys":[{"id":"9f86…","of":"thread name","from":1,"master":"4e07…","data":"Base64"},…]}
//! ```
//!
//! The newest key of a thread is the last one. A key is bound to the name of its thread, so that a record of another thread is
//! an error; to the number of the first encrypted checkpoint, so that later ones cannot be replaced by readable ones; and to the
//! ids of all keys of its thread in order, so that no older one becomes the newest. Format 1 is without the last.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
};

use base64::{Engine as _, prelude::BASE64_STANDARD_NO_PAD};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{
    error::KeyFault,
    form::{DataKey, cipher, decrypt, encrypt},
    master::{KeyProvider, MasterKey},
    path::Heads,
    random::Random,
};

/// The version of new records.
const FORMAT: u32 = 2;

/// The maximum number of keys of a thread: each change of the master key adds one.
const MAX_KEYS: usize = 1_000;

/// The maximum number of unfinished copies whose keys a record has as well.
const MAX_PENDING: usize = 8;

/// The maximum number of keys in a record: those of a thread, of its unfinished copies, and of the copy that begins.
const MAX_RECORD_KEYS: usize = MAX_KEYS * (MAX_PENDING + 2);

// Each encrypted data key of a thread is bound to the ids of all of them in order, so a record with exchanged or missing keys is
// an error. Those of a store are items of their own, because processes add them at the same time; a rekey encrypts the replaced
// ones as keys that only decrypt. If only such ones are left, the next write adds a new one.

/// The record of the data keys of a thread or store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyRecord {
    format: u32,
    keys: Vec<WrappedKey>,
}

/// A data key, encrypted with a master key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrappedKey {
    id: String,
    /// The thread or store that it belongs to.
    of: String,
    /// The first checkpoint that must be encrypted; in a store 1 for a key that only decrypts.
    from: u64,
    /// The id of the master key.
    master: String,
    data: String,
}

/// The decrypted data keys of a thread or store, the current one last.
#[derive(Default)]
pub(crate) struct DataKeys {
    pub(crate) all: Vec<DataKey>,
    /// The first checkpoint that must be encrypted.
    pub(crate) from: u64,
    /// `true` if none of them is for new values.
    pub(crate) only_decrypts: bool,
    /// The paths to the newest checkpoints of the thread and its subgraphs.
    pub(crate) heads: Heads,
}

impl DataKeys {
    /// Returns the key of new values.
    pub(crate) fn current(&self) -> Option<&DataKey> {
        self.all.last().filter(|_| !self.only_decrypts)
    }
}

impl fmt::Debug for DataKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all.iter().map(DataKey::id)).finish()
    }
}

/// The secret bytes of a data key.
type Secret = Zeroizing<[u8; 32]>;

/// The thread or store that a key belongs to, and the first checkpoint that must be encrypted.
#[derive(Clone, Copy)]
pub(crate) struct Owner<'a> {
    pub(crate) name: &'a str,
    pub(crate) from: u64,
}

impl KeyRecord {
    /// Parses the stored form.
    pub(crate) fn parse(text: &str) -> Result<Self, KeyFault> {
        let record: Self =
            serde_json::from_str(text).map_err(|cause| KeyFault::Changed(cause.to_string()))?;
        match record.format {
            1..=FORMAT if record.keys.len() <= MAX_RECORD_KEYS => Ok(record),
            1..=FORMAT => Err(KeyFault::Changed(format!("there are more than {MAX_RECORD_KEYS}"))),
            newer => Err(KeyFault::Changed(format!("their form {newer} is of a newer version of superstep"))),
        }
    }

    /// Returns the stored form.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).expect("texts become JSON")
    }

    /// Creates a record with a new key.
    pub(crate) async fn create(
        of: Owner<'_>,
        keys: &dyn KeyProvider,
        random: &dyn Random,
    ) -> Result<Self, KeyFault> {
        let master = keys.current().await.map_err(KeyFault::Provider)?;
        Ok(Self { format: FORMAT, keys: wrapped(FORMAT, of, &[drawn(random)?], &master, random)? })
    }

    /// Decrypts the keys of a thread.
    pub(crate) async fn open(&self, of: &str, keys: &dyn KeyProvider) -> Result<DataKeys, KeyFault> {
        let secrets = self.secrets(of, keys).await?;
        Ok(DataKeys {
            all: secrets.iter().map(DataKey::new).collect(),
            from: self.from(of),
            ..DataKeys::default()
        })
    }

    async fn secrets(&self, of: &str, keys: &dyn KeyProvider) -> Result<Vec<Secret>, KeyFault> {
        let mut secrets = Vec::new();
        // The provider may be a service.
        let mut masters = BTreeMap::new();
        let own = self.keys.iter().filter(|key| key.of == of);
        let order = order(self.format, own.clone().map(|key| &*key.id));
        for key in own {
            let master = match masters.entry(&key.master) {
                Entry::Occupied(found) => found.into_mut(),
                Entry::Vacant(missing) => missing.insert(key.master(keys).await?),
            };
            secrets.push(key.open(master, &order)?);
        }
        if secrets.is_empty() {
            Err(KeyFault::Changed("none of them is its own".to_owned()))
        } else {
            Ok(secrets)
        }
    }

    /// Returns the first checkpoint of a thread that must be encrypted.
    fn from(&self, of: &str) -> u64 {
        let own = self.keys.iter().filter(|key| key.of == of);
        own.map(|key| key.from).min().unwrap_or(1)
    }

    /// Returns whether all keys are encrypted with the current master key, also those for copies: they are the same data keys. A
    /// record of an older format is not current.
    pub(crate) fn is_current(&self, master: &MasterKey) -> bool {
        self.format == FORMAT && self.keys.iter().all(|key| key.master == master.id())
    }

    /// Returns the owners of its keys: the thread itself, then its unfinished copies, the oldest first.
    fn owners(&self, of: &str) -> Vec<String> {
        let mut owners = vec![of.to_owned()];
        for key in &self.keys {
            if !owners.contains(&key.of) {
                owners.push(key.of.clone());
            }
        }
        owners
    }

    /// Returns the record with the keys of one owner, encrypted with the current master key.
    pub(crate) async fn rewrapped(
        &self,
        of: Owner<'_>,
        keys: &dyn KeyProvider,
        random: &dyn Random,
    ) -> Result<Self, KeyFault> {
        let master = keys.current().await.map_err(KeyFault::Provider)?;
        let secrets = self.secrets(of.name, keys).await?;
        Ok(Self { format: FORMAT, keys: wrapped(FORMAT, of, &secrets, &master, random)? })
    }

    /// Returns the record with a new key for new values, and all keys encrypted with the current master key.
    pub(crate) async fn rekeyed(
        &self,
        of: &str,
        keys: &dyn KeyProvider,
        random: &dyn Random,
    ) -> Result<Self, KeyFault> {
        let master = keys.current().await.map_err(KeyFault::Provider)?;
        let has_space = self.keys.iter().filter(|key| key.of == of).count() < MAX_KEYS;
        let added = has_space.then(|| drawn(random)).transpose()?;
        let mut all = Vec::new();
        for name in self.owners(of) {
            let mut secrets = match self.secrets(&name, keys).await {
                Ok(secrets) => secrets,
                Err(fault) if name == of => return Err(fault),
                // The copy begins again if it is still wanted.
                Err(_) => continue,
            };
            // A copy may be made after values were stored with it.
            secrets.extend(added.clone());
            let owner = Owner { name: &name, from: self.from(&name) };
            all.extend(wrapped(FORMAT, owner, &secrets, &master, random)?);
        }
        Ok(Self { format: FORMAT, keys: all })
    }

    /// Returns the record with the keys for a copy as well. Those for other copies remain, because other processes may be making them.
    pub(crate) async fn with_copy(
        &self,
        (from, to): (&str, &str),
        keys: &dyn KeyProvider,
        random: &dyn Random,
    ) -> Result<Self, KeyFault> {
        let master = keys.current().await.map_err(KeyFault::Provider)?;
        let secrets = self.secrets(from, keys).await?;
        let mut others = self.owners(from).split_off(1);
        others.retain(|name| name != to);
        let others = others.split_off(others.len().saturating_sub(MAX_PENDING));
        let stays = |key: &&WrappedKey| key.of == from || others.contains(&key.of);
        let mut all: Vec<_> = self.keys.iter().filter(stays).cloned().collect();
        let owner = Owner { name: to, from: self.from(from) };
        all.extend(wrapped(self.format, owner, &secrets, &master, random)?);
        Ok(Self { format: self.format, keys: all })
    }

    /// Returns the record with the keys of one thread only.
    pub(crate) fn only(&self, of: &str) -> Self {
        Self { format: self.format, keys: self.keys.iter().filter(|key| key.of == of).cloned().collect() }
    }

    /// Returns the record without the keys for a copy.
    pub(crate) fn without(&self, of: &str) -> Self {
        Self { format: self.format, keys: self.keys.iter().filter(|key| key.of != of).cloned().collect() }
    }

    /// Returns the id of the master key of a thread's newest key.
    pub(crate) fn master(&self, of: &str) -> String {
        let own = self.keys.iter().rev().find(|key| key.of == of);
        own.or(self.keys.last()).map_or_else(String::new, |key| printable(&key.master))
    }

    /// Returns whether it has keys of other threads than this one.
    pub(crate) fn has_others(&self, of: &str) -> bool {
        self.keys.iter().any(|key| key.of != of)
    }

    /// Returns whether it has keys of a thread.
    pub(crate) fn has(&self, of: &str) -> bool {
        self.keys.iter().any(|key| key.of == of)
    }
}

fn drawn(random: &dyn Random) -> Result<Secret, KeyFault> {
    let mut secret = Zeroizing::new([0; 32]);
    random.fill(&mut *secret).map_err(KeyFault::Provider)?;
    Ok(secret)
}

/// Encrypts all keys of an owner with a master key.
fn wrapped(
    format: u32,
    of: Owner<'_>,
    secrets: &[Secret],
    master: &MasterKey,
    random: &dyn Random,
) -> Result<Vec<WrappedKey>, KeyFault> {
    let ids: Vec<String> = secrets.iter().map(|secret| DataKey::new(secret).id().to_owned()).collect();
    let bound = bound(&order(format, ids.iter().map(String::as_str)), of, master.id());
    let cipher = cipher(master.bytes());
    let wrapped = secrets.iter().zip(ids).map(|(secret, id)| {
        let data = encrypt(&cipher, random, &**secret, &bound).map_err(KeyFault::Provider)?;
        let (of, from) = (of.name.to_owned(), of.from);
        Ok(WrappedKey {
            id,
            of,
            from,
            master: master.id().to_owned(),
            data: BASE64_STANDARD_NO_PAD.encode(data),
        })
    });
    wrapped.collect()
}

impl WrappedKey {
    /// Returns its master key.
    async fn master(&self, keys: &dyn KeyProvider) -> Result<MasterKey, KeyFault> {
        let master = keys.find(&self.master).await.map_err(KeyFault::Provider)?;
        master.ok_or_else(|| KeyFault::Unknown(printable(&self.master)))
    }

    /// Decrypts the key. `order` is that of the keys of its owner.
    fn open(&self, master: &MasterKey, order: &str) -> Result<Secret, KeyFault> {
        let changed = || KeyFault::Changed("one of them cannot be decrypted".to_owned());
        let data = BASE64_STANDARD_NO_PAD.decode(&self.data).map_err(|_| changed())?;
        let owner = Owner { name: &self.of, from: self.from };
        let secret = decrypt(&cipher(master.bytes()), &data, &bound(order, owner, master.id()));
        let secret = Zeroizing::new(secret.ok_or_else(changed)?);
        let secret = Zeroizing::new(<[u8; 32]>::try_from(secret.as_slice()).map_err(|_| changed())?);
        if DataKey::new(&secret).id() == self.id { Ok(secret) } else { Err(changed()) }
    }
}

/// Returns the beginning of the associated data: the format, and from the second one on a digest of the ids of all keys in order.
fn order<'k>(format: u32, ids: impl Iterator<Item = &'k str>) -> String {
    if format == 1 {
        return "1".to_owned();
    }
    let mut hasher = blake3::Hasher::new_derive_key("superstep 2026-11-26 order of data keys");
    for id in ids {
        hasher.update(&(id.len() as u64).to_le_bytes());
        hasher.update(id.as_bytes());
    }
    format!("{format}\0{}", hasher.finalize().to_hex())
}

/// Returns the associated data of a wrapped key.
fn bound(order: &str, of: Owner<'_>, master: &str) -> Vec<u8> {
    format!("superstep data key {order}\0{master}\0{}\0{}", of.from, of.name).into_bytes()
}

/// Returns the hexadecimal digits of an id, at most 16.
fn printable(id: &str) -> String {
    id.chars().filter(char::is_ascii_hexdigit).take(16).collect()
}
