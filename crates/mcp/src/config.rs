//! Where a server is, and how its tools are treated.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

/// A server, as a configuration file has it: one of `command` and `url`, and what else differs from the defaults.
///
/// # Units
/// Times are milliseconds.
/// # Secrets
/// The values of `env` and `headers` may name variables of this program's environment, as `$NAME` or `${NAME}`, and have `$$` for
/// a `$`; they are looked up when the server is connected, so that what is stored of a configuration has the name and not the
/// secret.
/// # Errors
/// Read by [`Deserialize`], it is refused if it has both places or none, or fields that are not its own.
/// # Example
/// ```
/// use superstep_mcp::{McpConfig, Place};
///
/// let json = r#"{"command": "mcp-server-filesystem", "args": ["."], "tools": ["read_text_file"]}"#;
/// let config: McpConfig = serde_json::from_str(json)?;
/// assert!(matches!(config.place, Place::Program { .. }));
/// let neither = serde_json::from_str::<McpConfig>("{}").unwrap_err();
/// assert_eq!(neither.to_string(), "a server needs `command`, or `url`");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub struct McpConfig {
    /// Where it is.
    pub place: Place,
    /// Which of its tools are taken, by its own names for them; `None` for all.
    pub tools: Option<Vec<String>>,
    /// Before which of its tools somebody is asked.
    pub ask: Ask,
    /// How long it may take to start and say which tools it has.
    pub start_timeout: Duration,
    /// How long one call may take.
    pub call_timeout: Duration,
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is a program, which is started, and started again if it ends.
    Program {
        /// The program, looked for like a shell would.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// What is in its environment beside the few variables that every program needs (`PATH`, `HOME`, the language …).
        env: BTreeMap<String, String>,
        /// The folder that it works in; `None` for that of this program.
        cwd: Option<PathBuf>,
    },
    /// It is at an address, which is spoken to by "streamable HTTP".
    Http {
        /// The address.
        url: String,
        /// What each request has in its head.
        headers: BTreeMap<String, String>,
    },
}

/// Before which tools of a server somebody is asked. A rule of the agent's about a tool comes before this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Before each.
    Always,
    /// Before those of which the server does not say that they only read. The default for programs, which can do what they like
    /// anyway once they are started.
    Writes,
    /// Before none.
    Never,
}

/// A configuration that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
        /// What such servers have.
        of: &'static str,
    },
}

impl McpConfig {
    /// A program, with the default for everything else.
    pub fn program<S: Into<String>>(command: S, args: impl IntoIterator<Item = S>) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        Self::at(Place::Program { command: command.into(), args, env: BTreeMap::new(), cwd: None })
    }

    /// An address, with the default for everything else. Somebody is asked before each of its tools.
    pub fn http(url: impl Into<String>) -> Self {
        Self::at(Place::Http { url: url.into(), headers: BTreeMap::new() })
    }

    fn at(place: Place) -> Self {
        let ask = Ask::default_of(&place);
        Self {
            place,
            tools: None,
            ask,
            start_timeout: Duration::from_secs(60),
            call_timeout: Duration::from_secs(60),
        }
    }
}

impl Ask {
    fn default_of(place: &Place) -> Self {
        match place {
            Place::Program { .. } => Self::Writes,
            Place::Http { .. } => Self::Always,
        }
    }
}

/// A server as it is written down.
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
        let place = match (command, url) {
            (None, None) => return Err(McpConfigError::Nowhere),
            (Some(_), Some(_)) => return Err(McpConfigError::TwoPlaces),
            (Some(_), None) if !headers.is_empty() => return misplaced("headers", "url"),
            (None, Some(_)) if !args.is_empty() => return misplaced("args", "command"),
            (None, Some(_)) if !env.is_empty() => return misplaced("env", "command"),
            (None, Some(_)) if cwd.is_some() => return misplaced("cwd", "command"),
            (Some(command), None) => Place::Program { command, args, env, cwd },
            (None, Some(url)) => Place::Http { url, headers },
        };
        let base = Self::at(place);
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
        let McpConfig { place, tools, ask, start_timeout, call_timeout } = config;
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let base = McpConfig::at(place.clone());
        let differs = |time: Duration, base: Duration| (time != base).then(|| ms(time));
        let (mut command, mut url, mut given_args, mut given_cwd) = (None, None, Vec::new(), None);
        let (mut given_env, mut given_headers) = (BTreeMap::new(), BTreeMap::new());
        match place {
            Place::Program { command: program, args, env, cwd } => {
                (command, given_args, given_env, given_cwd) = (Some(program), args, env, cwd);
            }
            Place::Http { url: address, headers } => (url, given_headers) = (Some(address), headers),
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
