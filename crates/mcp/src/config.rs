//! The location of a server, and the treatment of its tools.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// Variables that programs always get. None of them is a secret.
pub(crate) const HANDED_ON: [&str; 14] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TERM",
    "TMPDIR",
    "TEMP",
    "SYSTEMROOT",
    "APPDATA",
];

/// The configuration of a server, as in a configuration file: one of `command` and `url`, and all settings
/// that differ from the defaults.
///
/// # Units
/// Times are milliseconds.
/// # Secrets
/// The values of `env` and `headers` may name variables of this program's environment, as `$NAME` or
/// `${NAME}`, with `$$` for a `$`. They are resolved at connection time, so that a stored configuration has
/// the name and not the secret.
/// # Errors
/// [`Deserialize`] fails if it has both locations or none, or unknown fields.
/// # Example
/// ```
/// use superstep_mcp::{Endpoint, McpConfig};
///
/// let json = r#"{"command": "mcp-server-filesystem", "args": ["."], "tools": ["read_text_file"]}"#;
/// let config: McpConfig = serde_json::from_str(json)?;
/// assert!(matches!(config.endpoint, Endpoint::Program { .. }));
/// let neither = serde_json::from_str::<McpConfig>("{}").unwrap_err();
/// assert_eq!(neither.to_string(), "a server needs `command`, or `url`");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub struct McpConfig {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// The tools to use, by the server's names; `None` for all.
    pub tools: Option<Vec<String>>,
    /// The tools that need approval by a person.
    pub ask: Ask,
    /// The time limit for the start and the list of tools.
    pub start_timeout: Duration,
    /// The time limit of one call.
    pub call_timeout: Duration,
}

/// The endpoint of a server: a program or an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A program, which is started, and restarted if it ends.
    Program {
        /// The program, found like in a shell.
        command: String,
        /// The arguments of the program.
        args: Vec<String>,
        /// Additional environment variables, besides the few that every program needs (`PATH`, `HOME`, the
        /// language …).
        env: BTreeMap<String, String>,
        /// The folder of the program; that of this program if `None`.
        cwd: Option<PathBuf>,
    },
    /// An address with the "streamable HTTP" transport.
    Http {
        /// The address.
        url: String,
        /// The headers of each request.
        headers: BTreeMap<String, String>,
    },
}

/// The tools of a server that need approval by a person. A rule of the agent about a tool takes precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// All tools.
    Always,
    /// Tools that the server does not declare as read-only. The default for programs, which have unrestricted
    /// access anyway once they are started.
    Writes,
    /// No tools.
    Never,
}

/// An invalid configuration.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum McpConfigError {
    /// Neither a program nor an address.
    #[error("a server needs `command`, or `url`")]
    Nowhere,
    /// Both of them.
    #[error("a server has either `command` or `url`")]
    TwoPlaces,
    /// A field of the other kind of server.
    #[error("`{field}` is for servers with `{of}`")]
    Field {
        /// The field.
        field: &'static str,
        /// The fields of such servers.
        of: &'static str,
    },
}

superstep_llm::debug_by_chain!(McpConfigError);

impl McpConfig {
    /// Creates the configuration of a program, with defaults.
    pub fn program<S: Into<String>>(command: S, args: impl IntoIterator<Item = S>) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        Self::at(Endpoint::Program { command: command.into(), args, env: BTreeMap::new(), cwd: None })
    }

    /// Creates the configuration of an address, with defaults. Each of its tools needs approval.
    pub fn http(url: impl Into<String>) -> Self {
        Self::at(Endpoint::Http { url: url.into(), headers: BTreeMap::new() })
    }

    /// Returns the names of the environment variables in its `env` or `headers`, without those that every program gets.
    pub fn variables(&self) -> BTreeSet<String> {
        let (Endpoint::Program { env: given, .. } | Endpoint::Http { headers: given, .. }) = &self.endpoint;
        let mut names = BTreeSet::new();
        for value in given.values() {
            let _ = shellexpand::env_with_context(value, |name: &str| {
                names.insert(name.to_owned());
                Ok::<_, Infallible>(Some(""))
            });
        }
        names.retain(|name| !HANDED_ON.contains(&&**name));
        names
    }

    fn at(endpoint: Endpoint) -> Self {
        let ask = Ask::default_of(&endpoint);
        Self {
            endpoint,
            tools: None,
            ask,
            start_timeout: Duration::from_secs(60),
            call_timeout: Duration::from_secs(60),
        }
    }
}

impl Ask {
    fn default_of(endpoint: &Endpoint) -> Self {
        match endpoint {
            Endpoint::Program { .. } => Self::Writes,
            Endpoint::Http { .. } => Self::Always,
        }
    }
}

/// The serialized form of a server.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    args: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cwd: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ask: Option<Ask>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    call_timeout_ms: Option<u64>,
}

impl TryFrom<Fields> for McpConfig {
    type Error = McpConfigError;

    fn try_from(fields: Fields) -> Result<Self, McpConfigError> {
        let Fields { command, args, env, cwd, url, headers, tools, ask, start_timeout_ms, call_timeout_ms } =
            fields;
        let misplaced = |field, of| Err(McpConfigError::Field { field, of });
        let endpoint = match (command, url) {
            (None, None) => return Err(McpConfigError::Nowhere),
            (Some(_), Some(_)) => return Err(McpConfigError::TwoPlaces),
            (Some(_), None) if !headers.is_empty() => return misplaced("headers", "url"),
            (None, Some(_)) if !args.is_empty() => return misplaced("args", "command"),
            (None, Some(_)) if !env.is_empty() => return misplaced("env", "command"),
            (None, Some(_)) if cwd.is_some() => return misplaced("cwd", "command"),
            (Some(command), None) => Endpoint::Program { command, args, env, cwd },
            (None, Some(url)) => Endpoint::Http { url, headers },
        };
        let base = Self::at(endpoint);
        Ok(Self {
            tools,
            ask: ask.unwrap_or(base.ask),
            start_timeout: start_timeout_ms.map_or(base.start_timeout, Duration::from_millis),
            call_timeout: call_timeout_ms.map_or(base.call_timeout, Duration::from_millis),
            ..base
        })
    }
}

impl From<McpConfig> for Fields {
    fn from(config: McpConfig) -> Self {
        let McpConfig { endpoint, tools, ask, start_timeout, call_timeout } = config;
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let base = McpConfig::at(endpoint.clone());
        let differs = |time: Duration, base: Duration| (time != base).then(|| ms(time));
        let (mut command, mut url, mut given_args, mut given_cwd) = (None, None, Vec::new(), None);
        let (mut given_env, mut given_headers) = (BTreeMap::new(), BTreeMap::new());
        match endpoint {
            Endpoint::Program { command: program, args, env, cwd } => {
                (command, given_args, given_env, given_cwd) = (Some(program), args, env, cwd);
            }
            Endpoint::Http { url: address, headers } => (url, given_headers) = (Some(address), headers),
        }
        Self {
            command,
            args: given_args,
            env: given_env,
            cwd: given_cwd,
            url,
            headers: given_headers,
            tools,
            ask: (ask != base.ask).then_some(ask),
            start_timeout_ms: differs(start_timeout, base.start_timeout),
            call_timeout_ms: differs(call_timeout, base.call_timeout),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<McpConfig, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn a_server_survives_being_written_down() {
        let named = read(r#"{"command":"x","env":{"A":"$ONE/${TWO}:$PATH","B":"$$C"}}"#).unwrap();
        assert_eq!(named.variables().into_iter().collect::<Vec<_>>(), ["ONE", "TWO"]);
        for json in [
            r#"{"command":"x"}"#,
            r#"{"command":"x","args":["-y"],"env":{"A":"$A"},"cwd":"sub","tools":["t"],"ask":"never","call_timeout_ms":5}"#,
            r#"{"url":"http://127.0.0.1/mcp","headers":{"Authorization":"Bearer $T"},"ask":"writes"}"#,
        ] {
            assert_eq!(serde_json::to_string(&read(json).unwrap()).unwrap(), json);
        }
        assert_eq!(read(r#"{"command":"x"}"#).unwrap().ask, Ask::Writes);
        assert_eq!(read(r#"{"url":"x"}"#).unwrap().ask, Ask::Always);
    }

    #[test]
    fn a_server_is_in_one_place() {
        for (json, problem) in [
            ("{}", "a server needs `command`, or `url`"),
            (r#"{"command":"x","url":"y"}"#, "a server has either `command` or `url`"),
            (r#"{"command":"x","headers":{"a":"b"}}"#, "`headers` is for servers with `url`"),
            (r#"{"url":"x","args":["b"]}"#, "`args` is for servers with `command`"),
            (r#"{"url":"x","cwd":"b"}"#, "`cwd` is for servers with `command`"),
            (r#"{"url":"x","env":{"a":"b"}}"#, "`env` is for servers with `command`"),
        ] {
            assert_eq!(read(json).unwrap_err(), problem);
        }
        assert!(read(r#"{"command":"x","cmd":"y"}"#).unwrap_err().starts_with("unknown field `cmd`"));
    }
}
