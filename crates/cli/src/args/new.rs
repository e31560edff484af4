//! The arguments of `superstep new`.

use std::path::PathBuf;

use clap::Args;

/// Names that cargo, the project's dependencies or Windows use.
const TAKEN: [&str; 20] = [
    "alloc",
    "aux",
    "build",
    "con",
    "core",
    "deps",
    "examples",
    "incremental",
    "insta",
    "nul",
    "prn",
    "proc-macro",
    "proc_macro",
    "std",
    "superstep",
    "superstep-cli",
    "superstep-testing",
    "target",
    "test",
    "tokio",
];

/// The keywords of Rust, which cargo rejects as names.
const KEYWORDS: [&str; 52] = [
    "Self", "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do",
    "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop",
    "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static",
    "struct", "super", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual",
    "where", "while", "yield",
];

#[derive(Args, Debug)]
pub(crate) struct NewArgs {
    /// The name of the project, and of its folder under the current one.
    #[arg(value_parser = project_name)]
    pub(crate) name: String,
    /// Depend on the crates in this checkout of superstep instead of those in the registry.
    #[arg(long, value_name = "DIR")]
    pub(crate) path: Option<PathBuf>,
}

/// Checks the name of a package, by the rules of `cargo new` for a package with a program.
fn project_name(name: &str) -> Result<String, String> {
    if name.is_empty() {
        return Err("a project needs a name".to_owned());
    }
    if name.len() > 64 {
        return Err("a package's name has at most 64 characters".to_owned());
    }
    if let Some(sign) = name.chars().find(|sign| !sign.is_ascii_alphanumeric() && !matches!(sign, '-' | '_'))
    {
        let sign = sign.escape_debug();
        return Err(format!("a package's name has letters, digits, `-` and `_`, and no `{sign}`"));
    }
    if !name.starts_with(|sign: char| sign.is_ascii_alphabetic() || sign == '_') {
        return Err("a package's name begins with a letter or `_`".to_owned());
    }
    let is_device = name.len() == 4
        && ["com", "lpt"].iter().any(|device| name[..3].eq_ignore_ascii_case(device))
        && name.as_bytes()[3].is_ascii_digit();
    if KEYWORDS.contains(&name) {
        return Err(format!("`{name}` is a keyword of Rust"));
    }
    if is_device
        || name.chars().all(|sign| sign == '_')
        || TAKEN.iter().any(|taken| name.eq_ignore_ascii_case(taken))
    {
        return Err(format!("`{name}` is reserved or the name of a dependency; choose another one"));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_of_cargo() {
        for good in ["shop", "my-shop", "my_shop2", "_shop", "Shop", "com", "com10", "a"] {
            assert_eq!(project_name(good), Ok(good.to_owned()));
        }
        let begins = "a package's name begins with a letter or `_`";
        for (wrong, reason) in [
            ("", "a project needs a name"),
            ("2shop", begins),
            ("-shop", begins),
            ("my shop", "a package's name has letters, digits, `-` and `_`, and no ` `"),
            ("../shop", "a package's name has letters, digits, `-` and `_`, and no `.`"),
            ("läden", "a package's name has letters, digits, `-` and `_`, and no `ä`"),
            ("a\u{202e}", "a package's name has letters, digits, `-` and `_`, and no `\\u{202e}`"),
            ("async", "`async` is a keyword of Rust"),
            ("test", "`test` is reserved or the name of a dependency; choose another one"),
            ("NUL", "`NUL` is reserved or the name of a dependency; choose another one"),
            ("com1", "`com1` is reserved or the name of a dependency; choose another one"),
            ("superstep", "`superstep` is reserved or the name of a dependency; choose another one"),
        ] {
            assert_eq!(project_name(wrong), Err(reason.to_owned()));
        }
        assert!(project_name(&"a".repeat(65)).is_err());
    }
}
