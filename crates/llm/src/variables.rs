//! Environment variables with secrets, which other programs do not get.
//!
//! Start at [`is_secret`].

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

/// The variables that a configuration names as secret, in this process.
static WITHHELD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Parts of the names of secrets.
const PARTS: [&str; 10] =
    ["KEY", "TOKEN", "SECRET", "PASS", "PWD", "CREDENTIAL", "AUTH", "HEADERS", "BEARER", "COOKIE"];

/// Words in the names of secrets.
const WORDS: [&str; 3] = ["PAT", "JWT", "DSN"];

/// The ends of the names of parameters whose values are secrets.
const PARAMETERS: [&str; 12] = [
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "secret",
    "token",
    "accountkey",
    "accesskey",
    "apikey",
    "api_key",
    "api-key",
    "sig",
];

/// Variables whose names contain such a part, and whose values are a path or a name.
const OPEN: [&str; 7] = [
    "PWD",
    "OLDPWD",
    "SSH_AUTH_SOCK",
    "XAUTHORITY",
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_DATE",
];

/// Makes a variable a secret under any name: one with a key of this program, for example.
///
/// It applies to the whole process.
pub fn withhold(name: impl Into<String>) {
    WITHHELD.lock().unwrap_or_else(PoisonError::into_inner).insert(name.into());
}

/// Returns whether a variable may hold a secret: by its name, by [`withhold`], or because its value is an address with a
/// password, contains parameters such as `AccountKey=..` or `"password": ..`, or is a private key.
///
/// Such names contain `KEY`, `TOKEN`, `SECRET`, `PASS`, `PWD`, `CREDENTIAL`, `AUTH`, `HEADERS`, `BEARER` or `COOKIE` in any
/// letter case, or the word `PAT`, `JWT` or `DSN`. `PWD`, `OLDPWD`, `SSH_AUTH_SOCK`, `XAUTHORITY` and `GIT_AUTHOR_..` are not
/// secret.
///
/// ```
/// use superstep_llm::variables::is_secret;
///
/// assert!(is_secret("OPENAI_API_KEY", "sk-1") && is_secret("SUPERSTEP_DB", "postgres://me:word@db/threads"));
/// assert!(!is_secret("PATH", "/bin") && !is_secret("SUPERSTEP_DB", "threads.db"));
/// ```
pub fn is_secret(name: &str, value: &str) -> bool {
    let is_withheld = || WITHHELD.lock().unwrap_or_else(PoisonError::into_inner).contains(name);
    is_secret_name(name) || has_secret(value) || is_withheld()
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    !OPEN.contains(&&*name)
        && (PARTS.iter().any(|part| name.contains(part)) || words.any(|word| WORDS.contains(&word)))
}

/// Returns whether a value names a place with its password, as those of databases do: `scheme://user:password@host`,
/// `https://token@host`, or with `password=` and others among parameters; or whether it is a private key.
fn has_secret(value: &str) -> bool {
    // A password may have any character, also `/`, so this may also be true of a path with `@` behind a port.
    let credentials =
        value.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.split_once('@')?.0)));
    let is_web = |scheme: &str, user: &str| {
        (scheme.ends_with("http") || scheme.ends_with("https")) && !user.contains('/')
    };
    let value = value.to_ascii_lowercase();
    credentials.is_some_and(|(scheme, user)| user.contains(':') || is_web(scheme, user))
        || value.contains("private key-----")
        || PARAMETERS
            .iter()
            .any(|name| value.match_indices(name).any(|(at, _)| is_set(&value[at + name.len()..])))
}

/// Returns whether a value follows a name: behind `=`, or `:` as in JSON and YAML.
fn is_set(behind: &str) -> bool {
    let unquoted = behind.trim_start_matches(['"', '\'', ' ']);
    let is_list = behind.starts_with(':') && !behind.starts_with(": ");
    unquoted.len() > 1 && unquoted.starts_with(['=', ':']) && !is_list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_detected_by_their_names() {
        for name in [
            "OPENAI_API_KEY",
            "OPENAI_API_KEY2",
            "github_token",
            "AWS_SECRET_ACCESS_KEY",
            "DB_PASSWORD",
            "DB_PASS",
            "TOKEN",
            "OTEL_EXPORTER_OTLP_HEADERS",
            "PGPASSWORD",
            "MYSQL_PWD",
            "SSHPASS",
            "GITHUB_PAT",
            "NPM_AUTHTOKEN",
            "MODEL_AUTH",
            "MCP_BEARER",
            "SUPERSTEP_KEY",
            "SUPERSTEP_OLD_KEY",
            "npm_config__auth",
            "SESSION_COOKIE",
            "CI_JOB_JWT",
            "SENTRY_DSN",
            "TOKEN_FILE",
        ] {
            assert!(is_secret(name, "x"), "{name}");
        }
        for name in [
            "PATH",
            "HOME",
            "PWD",
            "OLDPWD",
            "LANG",
            "SSH_AUTH_SOCK",
            "GIT_AUTHOR_NAME",
            "PATTERN",
            "RUST_LOG",
            "WINDSNAP",
        ] {
            assert!(!is_secret(name, "x"), "{name}");
        }
    }

    #[test]
    fn a_configured_variable_is_secret_whatever_its_name() {
        assert!(!is_secret("VARIABLES_TEST_MAIN", "x"));
        withhold("VARIABLES_TEST_MAIN");
        assert!(is_secret("VARIABLES_TEST_MAIN", "x") && !is_secret("VARIABLES_TEST", "x"));
    }

    #[test]
    fn secrets_are_detected_in_values() {
        for place in [
            "postgres://app:word@db.example/threads",
            "postgresql://app:a/b?c@db.example",
            "postgres:///threads?user=app&password=word",
            "host=db user=app Password=word",
            "Server=db;User Id=app;Pwd=word;",
            "https://word@git.example/a.git",
            "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=word==",
            "Endpoint=sb://x/;SharedAccessKeyName=r;SharedAccessKey=word",
            "https://x.blob.example/a?sv=1&sig=word",
            r#"{"user": "x", "password":"word"}"#,
            "api_key: word",
            "-----BEGIN OPENSSH PRIVATE KEY-----\nword",
        ] {
            assert!(has_secret(place), "{place}");
        }
        for place in [
            "https://example.org:8443/a",
            "https://example.org/@scope/a",
            "postgres://app@db.example/threads",
            "/home/a@b",
            "a:b@c",
            "/opt/token:/usr/bin",
            "config=1",
            "no password",
            "password=",
        ] {
            assert!(!has_secret(place), "{place}");
        }
    }
}
