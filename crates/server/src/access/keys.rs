//! Keys of users.
//!
//! Start at [`Keys`].

use std::fmt;

use axum::http::request::Parts;
use futures::{FutureExt as _, future, future::BoxFuture};
use uuid::Uuid;

use crate::access::{Authenticate, Denied, Role, User, given_key};

/// The keys of users, which clients send as `x-api-key`, or `Authorization: Bearer`. Only hashes of them are in memory.
///
/// A user may have several keys, for example while one replaces the other. As text there is one on each line, as
/// [`line`](Self::line) writes it: the user, a role if it is not `write`, and the hash.
///
/// ```
/// use superstep_server::{Keys, User};
///
/// let key = Keys::generate();
/// let file = format!("# The keys of this server.\n{}\n", Keys::line(&User::new("alice"), &key)?);
/// assert!(!file.contains(&key));
/// let keys = Keys::parse(&file)?;
/// # let _ = superstep_server::Server::new().authenticate(keys);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Keys(Vec<(blake3::Hash, User)>);

/// An error in the text of keys. The line itself is left out.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {line} of the keys: {reason}; expected `USER = HASH`, or with a role `USER read = HASH` or `USER admin = HASH`"
)]
pub struct KeysError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The problem.
    pub reason: &'static str,
}

superstep_graph::__private::debug_by_chain!(KeysError);

impl Keys {
    /// Creates an empty set of keys, which refuses every request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a key of a user. It should be random, and at least 32 characters long: [`generate`](Self::generate) makes one.
    #[must_use]
    pub fn user(mut self, user: User, key: &str) -> Self {
        self.0.push((blake3::hash(key.as_bytes()), user));
        self
    }

    /// Reads keys, one on each line. Empty lines, and those that begin with `#`, are ignored.
    ///
    /// # Errors
    /// The first invalid line.
    pub fn parse(text: &str) -> Result<Self, KeysError> {
        let mut keys = Self::new();
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            keys.0.push(read(line).map_err(|reason| KeysError { line: number, reason })?);
        }
        Ok(keys)
    }

    /// Returns a new random key of 64 digits.
    pub fn generate() -> String {
        format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
    }

    /// Returns the line with the hash of a key, for [`parse`](Self::parse).
    ///
    /// # Errors
    /// The name of the user is empty, has spaces, or begins with `#`.
    pub fn line(user: &User, key: &str) -> Result<String, KeysError> {
        let role = match user.role {
            Role::Read => " read",
            Role::Write => "",
            Role::Admin => " admin",
        };
        let hash = blake3::hash(key.as_bytes());
        let line = format!("{}{role} = {hash}", user.id);
        match read(&line) {
            Ok((_, read)) if read == *user && !line.starts_with('#') => Ok(line),
            _ => Err(KeysError { line: 1, reason: "a user has no spaces, and does not begin with `#`" }),
        }
    }
}

fn read(line: &str) -> Result<(blake3::Hash, User), &'static str> {
    let (user, hash) = line.rsplit_once('=').ok_or("the `=` is missing")?;
    let hash = blake3::Hash::from_hex(hash.trim()).map_err(|_| "the hash is not 64 hexadecimal digits")?;
    let mut words = user.split_whitespace();
    let id = words.next().ok_or("the user is missing")?;
    let role = words.next().map_or(Some(Role::Write), Role::named).ok_or("the role is unknown")?;
    if words.next().is_some() { Err("a user has no spaces") } else { Ok((hash, User::new(id).role(role))) }
}

impl Authenticate for Keys {
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<User, Denied>> {
        let user = match given_key(&request.headers) {
            None => Err(Denied::Unknown("send your key as `x-api-key`".to_owned())),
            Some(given) => {
                // Hashes are compared in constant time.
                let given = blake3::hash(given.as_bytes());
                let known = self.0.iter().find(|(hash, _)| *hash == given);
                known
                    .map(|(_, user)| user.clone())
                    .ok_or_else(|| Denied::Forbidden("the key is wrong".to_owned()))
            }
        };
        future::ready(user).boxed()
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(_, user)| user)).finish()
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    async fn user(keys: &Keys, header: Option<(&str, &str)>) -> Result<User, Denied> {
        let request =
            header.into_iter().fold(Request::builder(), |request, (name, value)| request.header(name, value));
        let (parts, ()) = request.body(()).unwrap().into_parts();
        keys.authenticate(&parts).await
    }

    #[tokio::test]
    async fn a_key_names_its_user() {
        let (alice, root) = (User::new("alice"), User::new("root").role(Role::Admin));
        let (first, second) = (Keys::generate(), Keys::generate());
        assert!(first.len() == 64 && first != second);
        let text = format!(
            "# keys\n\n{}\n{}\n",
            Keys::line(&alice, &first).unwrap(),
            Keys::line(&root, &second).unwrap()
        );
        let keys = Keys::parse(&text).unwrap().user(alice.clone(), "another");
        assert_eq!(user(&keys, Some(("x-api-key", &first))).await, Ok(alice.clone()));
        assert_eq!(user(&keys, Some(("authorization", &format!("Bearer {second}")))).await, Ok(root));
        assert_eq!(user(&keys, Some(("x-api-key", "another"))).await, Ok(alice));
        assert!(matches!(user(&keys, Some(("x-api-key", "third"))).await, Err(Denied::Forbidden(_))));
        for none in [None, Some(("x-api-key", "")), Some(("authorization", &*format!("Basic {first}")))] {
            assert!(matches!(user(&keys, none).await, Err(Denied::Unknown(_))), "{none:?}");
        }
        let shown = format!("{keys:?}");
        assert!(shown.contains("alice") && !shown.contains(&first) && !text.contains(&first), "{shown}");
        assert!(!shown.contains(&*blake3::hash(first.as_bytes()).to_hex()), "{shown}");
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        for id in ["alice", "alice@example.org", "a=b", "read"] {
            let user = User::new(id).role(Role::Read);
            let keys = Keys::parse(&Keys::line(&user, "key").unwrap()).unwrap();
            assert_eq!(keys.0, [(blake3::hash(b"key"), user)]);
        }
        for id in ["", "two words", "alice admin", "#alice", "a\nb"] {
            Keys::line(&User::new(id), "key").unwrap_err();
        }
    }

    #[test]
    fn an_error_names_the_line_and_not_its_text() {
        let hash = blake3::hash(b"key").to_hex();
        for (line, reason) in [
            ("alice".to_owned(), "the `=` is missing"),
            ("alice = secret".to_owned(), "the hash is not 64 hexadecimal digits"),
            (format!("= {hash}"), "the user is missing"),
            (format!("alice owner = {hash}"), "the role is unknown"),
            (format!("alice read too = {hash}"), "a user has no spaces"),
        ] {
            let error = Keys::parse(&format!("\n{line}\n")).unwrap_err();
            assert_eq!(error, KeysError { line: 2, reason });
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
