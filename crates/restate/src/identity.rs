//! The verification of signed requests with ring, which the workspace has already: the SDK can bring other cryptography, with thirty
//! packages, or a library in C.
//!
//! Start at [`install`].

use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey,
    crypto::{CryptoProvider, JwkUtils, JwtVerifier},
    errors::{Error, ErrorKind},
    signature::{self, Verifier},
};
use ring::signature::{ED25519, UnparsedPublicKey};

/// Lets the SDK verify signatures, unless the program has chosen other cryptography for that.
pub(crate) fn install() {
    static PROVIDER: CryptoProvider = CryptoProvider {
        signer_factory: |_, _| Err(unsupported()),
        verifier_factory: |algorithm, key| Ok(Box::new(PublicKey::new(*algorithm, key)?)),
        jwk_utils: JwkUtils::new_unimplemented(),
    };
    // There is one in a program that has called this before.
    let _ = PROVIDER.install_default();
}

/// A public key of Restate.
struct PublicKey(UnparsedPublicKey<Vec<u8>>);

impl PublicKey {
    fn new(algorithm: Algorithm, key: &DecodingKey) -> Result<Self, Error> {
        if algorithm != Algorithm::EdDSA || key.family() != AlgorithmFamily::Ed {
            return Err(unsupported());
        }
        Ok(Self(UnparsedPublicKey::new(&ED25519, key.as_bytes().to_vec())))
    }
}

fn unsupported() -> Error {
    ErrorKind::InvalidAlgorithm.into()
}

impl Verifier<Vec<u8>> for PublicKey {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        self.0.verify(message, signature).map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for PublicKey {
    fn algorithm(&self) -> Algorithm {
        Algorithm::EdDSA
    }
}

#[cfg(test)]
mod tests {
    use ring::{
        rand::SystemRandom,
        signature::{Ed25519KeyPair, KeyPair as _},
    };

    use super::*;

    #[test]
    fn a_signature_is_that_of_its_message_and_key() {
        let pair = || {
            let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
            Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap()
        };
        let (own, other) = (pair(), pair());
        let key = DecodingKey::from_ed_der(own.public_key().as_ref());
        let key = PublicKey::new(Algorithm::EdDSA, &key).unwrap();
        let signed = own.sign(b"message").as_ref().to_vec();
        key.verify(b"message", &signed).unwrap();
        key.verify(b"other message", &signed).unwrap_err();
        key.verify(b"message", &other.sign(b"message").as_ref().to_vec()).unwrap_err();
        key.verify(b"message", &Vec::new()).unwrap_err();
        assert!(PublicKey::new(Algorithm::HS256, &DecodingKey::from_secret(b"secret")).is_err());
    }
}
