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
const PARTS: [&str; 9] = ["KEY", "TOKEN", "SECRET", "PASS", "PWD", "CREDENTIAL", "AUTH", "HEADERS", "BEARER"];

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
/// password.
///
/// Such names contain `KEY`, `TOKEN`, `SECRET`, `PASS`, `PWD`, `CREDENTIAL`, `AUTH`, `HEADERS` or `BEARER` in any letter
/// case, or the word `PAT`. `PWD`, `OLDPWD`, `SSH_AUTH_SOCK`, `XAUTHORITY` and `GIT_AUTHOR_..` are not secret.
///
/// ```
/// use superstep_llm::variables::is_secret;
///
/// assert!(is_secret("OPENAI_API_KEY", "sk-1") && is_secret("SUPERSTEP_DB", "postgres://me:word@db/threads"));
/// assert!(!is_secret("PATH", "/bin") && !is_secret("SUPERSTEP_DB", "threads.db"));
/// ```
pub fn is_secret(name: &str, value: &str) -> bool {
    let is_withheld = || WITHHELD.lock().unwrap_or_else(PoisonError::into_inner).contains(name);
    is_secret_name(name) || has_password(value) || is_withheld()
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    !OPEN.contains(&&*name)
        && (PARTS.iter().any(|part| name.contains(part)) || words.any(|word| word == "PAT"))
}

/// Returns whether a value names a place with its password, as those of databases do: `scheme://user:password@host`, or
/// `password=` among parameters.
fn has_password(value: &str) -> bool {
    // A password may have any character, also `/`, so this may also be true of a path with `@` behind a port.
    let credentials = value.split_once("://").and_then(|(_, rest)| rest.split_once('@'));
    credentials.is_some_and(|(user, _)| user.contains(':'))
        || value.to_ascii_lowercase().contains("password=")
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
    fn passwords_are_detected_in_the_places_of_databases() {
        for place in [
            "postgres://app:word@db.example/threads",
            "postgresql://app:a/b?c@db.example",
            "postgres:///threads?user=app&password=word",
            "host=db user=app Password=word",
        ] {
            assert!(has_password(place), "{place}");
        }
        for place in ["https://example.org:8443/a", "postgres://app@db.example/threads", "/home/a@b", "a:b@c"]
        {
            assert!(!has_password(place), "{place}");
        }
    }
}
