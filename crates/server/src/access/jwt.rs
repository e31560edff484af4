//! Users by JSON Web Tokens.
//!
//! Start at [`Jwt`].

use std::fmt;

use axum::http::request::Parts;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use futures::{FutureExt, future, future::BoxFuture};
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, DecodingKey, dangerous::insecure_decode};
use ring::{
    hmac,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
        UnparsedPublicKey,
    },
};
use serde::Deserialize;

use crate::access::{Authenticate, Denied, Role, User, given_key};

/// The difference in seconds between the clocks of two machines.
const LEEWAY: f64 = 60.0;

/// Users by JSON Web Tokens, which clients send as `Authorization: Bearer`, or `x-api-key`.
///
/// A token has the claims `sub`, the user, and `exp`; also `role`, one of `read`, `write` and `admin`, if that is not `write`. It is
/// signed by the one algorithm of the key: HS256 for a secret, RS256, ES256, ES384 or EdDSA for a public key.
///
/// ```no_run
/// use superstep_server::{Jwt, Server};
///
/// let users = Jwt::public_key(&std::fs::read_to_string("issuer.pem")?)?;
/// let users = users.issuer("https://login.example.org").audience("superstep");
/// let server = Server::new().authenticate(users);
/// # let _ = server;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Jwt {
    algorithm: Algorithm,
    key: Key,
    issuer: Option<String>,
    audience: Option<String>,
}

/// A key is not the PEM text of a public key of RSA, P-256, P-384 or Ed25519.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the key is not the PEM text of a public key of RSA, P-256, P-384 or Ed25519")]
#[non_exhaustive]
pub struct JwtError;

superstep_graph::__private::debug_by_chain!(JwtError);

enum Key {
    Secret(hmac::Key),
    Public(UnparsedPublicKey<Vec<u8>>),
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    role: Option<String>,
    /// Times in seconds since 1970.
    exp: f64,
    nbf: Option<f64>,
    iss: Option<String>,
    #[serde(default)]
    aud: Audience,
}

#[derive(Default, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
enum Audience {
    #[default]
    None,
    One(String),
    Several(Vec<String>),
}

impl Audience {
    fn contains(&self, audience: &String) -> bool {
        match self {
            Self::None => false,
            Self::One(one) => one == audience,
            Self::Several(several) => several.contains(audience),
        }
    }
}

impl Jwt {
    /// Accepts the tokens that are signed with a secret by HS256. It should be random, and at least 32 bytes long.
    pub fn secret(secret: &[u8]) -> Self {
        Self::new(Algorithm::HS256, Key::Secret(hmac::Key::new(hmac::HMAC_SHA256, secret)))
    }

    /// Accepts the tokens that are signed with the private key of a public key in the form PEM.
    ///
    /// # Errors
    /// The text is not such a key.
    pub fn public_key(pem: &str) -> Result<Self, JwtError> {
        let pem = pem.as_bytes();
        let (algorithm, key) = if let Ok(key) = DecodingKey::from_rsa_pem(pem) {
            (Algorithm::RS256, UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.as_bytes().to_vec()))
        } else if let Ok(key) = DecodingKey::from_ed_pem(pem) {
            (Algorithm::EdDSA, UnparsedPublicKey::new(&ED25519, key.as_bytes().to_vec()))
        } else {
            let key = DecodingKey::from_ec_pem(pem).map_err(|_| JwtError)?;
            let point = key.as_bytes().to_vec();
            match point.len() {
                65 => (Algorithm::ES256, UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)),
                97 => (Algorithm::ES384, UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point)),
                _ => return Err(JwtError),
            }
        };
        Ok(Self::new(algorithm, Key::Public(key)))
    }

    fn new(algorithm: Algorithm, key: Key) -> Self {
        Self { algorithm, key, issuer: None, audience: None }
    }

    /// Requires this issuer, the claim `iss`.
    #[must_use]
    pub fn issuer(self, issuer: impl Into<String>) -> Self {
        Self { issuer: Some(issuer.into()), ..self }
    }

    /// Requires this audience, the claim `aud`. Without it a token with an audience is refused.
    #[must_use]
    pub fn audience(self, audience: impl Into<String>) -> Self {
        Self { audience: Some(audience.into()), ..self }
    }

    /// # Errors
    /// The token is not valid at this time, in seconds since 1970.
    fn user(&self, token: &str, now: f64) -> Result<User, Denied> {
        let unknown = |reason: &str| Err(Denied::Unknown(reason.to_owned()));
        let Some(claims) = self.verified(token) else { return unknown("the token is not valid") };
        let Claims { sub, role, exp, nbf, iss, aud } = claims;
        if exp + LEEWAY < now {
            return unknown("the token has expired");
        }
        if nbf.is_some_and(|begin| begin > now + LEEWAY) {
            return unknown("the token is not valid yet");
        }
        let is_meant = match &self.audience {
            Some(audience) => aud.contains(audience),
            None => aud == Audience::default(),
        };
        if !is_meant || self.issuer.is_some() && self.issuer != iss {
            return unknown("the token is for another server");
        }
        match role.map_or(Some(Role::Write), |role| Role::named(&role)) {
            Some(role) => Ok(User::new(sub).role(role)),
            None => unknown("the role in the token is unknown"),
        }
    }

    /// Returns the claims of a token; `None` if its signature is not one of the key over the other two parts.
    // `jsonwebtoken::decode` uses cryptography that is chosen once for the whole process, perhaps by another library.
    fn verified(&self, token: &str) -> Option<Claims> {
        if jsonwebtoken::decode_header(token).ok()?.alg != self.algorithm {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        match &self.key {
            Key::Secret(key) => hmac::verify(key, signed.as_bytes(), &signature).ok()?,
            Key::Public(key) => key.verify(signed.as_bytes(), &signature).ok()?,
        }
        insecure_decode::<Claims>(token).ok().map(|data| data.claims)
    }
}

impl Authenticate for Jwt {
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<User, Denied>> {
        let none = || Denied::Unknown("send a token as `Authorization: Bearer`".to_owned());
        let user = given_key(&request.headers)
            .ok_or_else(none)
            .and_then(|token| self.user(token, Timestamp::now().as_duration().as_secs_f64()));
        future::ready(user).boxed()
    }
}

impl fmt::Debug for Jwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jwt").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use ring::{
        rand::SystemRandom,
        signature::{Ed25519KeyPair, KeyPair as _},
    };
    use serde_json::{Value, json};

    use super::*;

    fn unsigned(algorithm: &str, claims: &Value) -> String {
        let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
        format!("{}.{}", part(&json!({ "alg": algorithm, "typ": "JWT" })), part(claims))
    }

    fn by_secret(algorithm: &str, claims: &Value) -> String {
        let signed = unsigned(algorithm, claims);
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, b"secret"), signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
    }

    const NOW: f64 = 1_800_000_000.0;

    const LATER: u64 = 1_800_000_100;

    #[test]
    fn a_token_names_its_user_until_it_expires() {
        let users = Jwt::secret(b"secret").issuer("https://login").audience("superstep");
        let good = json!({ "sub": "alice", "exp": LATER, "iss": "https://login", "aud": "superstep" });
        let with = |name: &str, value: Value| {
            let mut claims = good.clone();
            claims[name] = value;
            users.user(&by_secret("HS256", &claims), NOW)
        };
        assert_eq!(users.user(&by_secret("HS256", &good), NOW), Ok(User::new("alice")));
        assert_eq!(with("aud", json!(["other", "superstep"])), Ok(User::new("alice")));
        assert_eq!(with("exp", json!(LATER - 150)), Ok(User::new("alice")), "clocks differ");
        assert_eq!(with("role", json!("admin")), Ok(User::new("alice").role(Role::Admin)));
        for (name, value, reason) in [
            ("exp", json!(1), "the token has expired"),
            ("exp", Value::Null, "the token is not valid"),
            ("exp", json!(LATER - 200), "the token has expired"),
            ("nbf", json!(LATER), "the token is not valid yet"),
            ("sub", json!(7), "the token is not valid"),
            ("iss", json!("https://other"), "the token is for another server"),
            ("iss", Value::Null, "the token is for another server"),
            ("aud", json!(["other"]), "the token is for another server"),
            ("aud", Value::Null, "the token is for another server"),
            ("role", json!("owner"), "the role in the token is unknown"),
        ] {
            assert_eq!(with(name, value.clone()), Err(Denied::Unknown(reason.to_owned())), "{name} {value}");
        }
        let narrow = Jwt::secret(b"secret");
        assert!(narrow.user(&by_secret("HS256", &good), NOW).is_err(), "it is for an audience");
    }

    #[test]
    fn a_token_with_another_signature_or_algorithm_is_refused() {
        let claims = json!({ "sub": "alice", "exp": LATER });
        let users = Jwt::secret(b"secret");
        assert_eq!(users.user(&by_secret("HS256", &claims), NOW), Ok(User::new("alice")));
        let other = Jwt::secret(b"other");
        let token = by_secret("HS256", &claims);
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let changed = unsigned("HS256", &json!({ "sub": "root", "exp": LATER }));
        for (users, token) in [
            (&other, token.clone()),
            (&users, format!("{changed}.{signature}")),
            (&users, format!("{signed}.")),
            (&users, format!("{}.", unsigned("none", &claims))),
            (&users, by_secret("HS384", &claims)),
            (&users, by_secret("RS256", &claims)),
            (&users, "token".to_owned()),
            (&users, String::new()),
        ] {
            assert_eq!(
                users.user(&token, NOW),
                Err(Denied::Unknown("the token is not valid".to_owned())),
                "{token}"
            );
        }
        assert!(!format!("{users:?}").contains("secret"));
    }

    #[test]
    fn a_public_key_accepts_the_tokens_of_its_private_key() {
        let pair = Ed25519KeyPair::from_pkcs8(
            Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap().as_ref(),
        );
        let pair = pair.unwrap();
        // The header of the form SPKI for Ed25519.
        let mut der = vec![0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
        der.extend(pair.public_key().as_ref());
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der));
        let users = Jwt::public_key(&pem).unwrap();
        let signed = unsigned("EdDSA", &json!({ "sub": "alice", "exp": LATER }));
        let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(pair.sign(signed.as_bytes())));
        assert_eq!(users.user(&token, NOW), Ok(User::new("alice")));
        // The public key is no secret: a token that is signed with it as one is refused.
        let signed = unsigned("HS256", &json!({ "sub": "alice", "exp": LATER }));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, pem.as_bytes()), signed.as_bytes());
        users.user(&format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag)), NOW).unwrap_err();
        assert_eq!(Jwt::public_key("no key").unwrap_err(), JwtError);
    }
}
