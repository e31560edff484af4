//! The location of a database, for messages: never its user and password.
//!
//! Start at [`Location`].

use std::{fmt, time::Duration};

use superstep_checkpoint::CheckpointError;
use tokio_postgres::{
    Config,
    config::{Host, SslMode},
};

use crate::PostgresOptions;

/// The time after which a connection without any sign of its server is closed, where the platform supports it.
const SILENCE: Duration = Duration::from_secs(30);

/// A schema of a database on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// `None` if it has the name of the user, which is in no message.
    database: Option<String>,
    server: String,
    schema: String,
}

impl PostgresOptions {
    /// Returns the URL of the database without user, password and parameters, for messages.
    ///
    /// # Errors
    /// [`CheckpointError::Storage`] if the URL is not valid.
    pub fn location(&self) -> Result<String, CheckpointError> {
        Ok(Location::parse(self)?.0.to_string())
    }
}

impl Location {
    /// Parses the URL.
    ///
    /// # Errors
    /// It is not a URL of PostgreSQL, or parts of its password could be taken for its server.
    pub(crate) fn parse(options: &PostgresOptions) -> Result<(Self, Config), CheckpointError> {
        let url = options.url_text();
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(wrong_url("it does not begin with `postgres://`"));
        }
        // The cause could quote a part of the password.
        let mut config: Config = url.parse().map_err(|_| {
            wrong_url("it is not valid; write special characters of the user and password as `%` codes")
        })?;
        if !options.has_plain_schema() {
            return Err(wrong_schema(&options.schema));
        }
        let named = |host: &Host| match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(path) => path.display().to_string(),
        };
        let mut hosts: Vec<String> = config.get_hosts().iter().map(named).collect();
        if hosts.iter().any(|host| host.contains('@')) {
            return Err(wrong_url("its password has an `@`; write it as `%40`"));
        }
        if hosts.is_empty() && config.get_hostaddrs().is_empty() {
            return Err(wrong_url("it names no server"));
        }
        if hosts.is_empty() {
            hosts = config.get_hostaddrs().iter().map(ToString::to_string).collect();
        }
        let ports = config.get_ports();
        let port = |nth: usize| ports.get(nth).or(ports.first()).copied().unwrap_or(5432);
        let server = hosts.iter().enumerate().map(|(nth, host)| format!("{host}:{}", port(nth)));
        let server = server.collect::<Vec<_>>().join(",");
        let database = config.get_dbname().map(str::to_owned);
        #[cfg(unix)]
        if config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_))) {
            // A socket of the file system has no name to verify.
            config.ssl_mode(SslMode::Disable);
        }
        config.connect_timeout(options.connect_timeout);
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(SILENCE);
        }
        if config.get_keepalives_interval().is_none() {
            config.keepalives_idle(SILENCE / 3).keepalives_interval(SILENCE / 3).keepalives_retries(2);
        }
        if config.get_application_name().is_none() {
            config.application_name("superstep");
        }
        Ok((Self { database, server, schema: options.schema.clone() }, config))
    }

    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres://{}/{}", self.server, self.database.as_deref().unwrap_or_default())?;
        if self.schema != "superstep" { write!(f, ", schema {}", self.schema) } else { Ok(()) }
    }
}

fn wrong_url(why: &str) -> CheckpointError {
    CheckpointError::Storage { what: format!("invalid URL of a PostgreSQL database: {why}"), source: None }
}

fn wrong_schema(schema: &str) -> CheckpointError {
    let what = format!(
        "invalid schema name `{schema}`: use lower-case letters, digits and `_`, at most 63, and no `pg_` at the beginning"
    );
    CheckpointError::Storage { what, source: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_has_the_password_or_the_user() {
        for url in [
            "postgres://ada:s3cret@db.example:6543/app",
            "postgres://ada:s3cret@db.example",
            "postgres:///?user=ada&password=s3cret&hostaddr=10.0.0.1",
            "postgres://ada:s3cret@x@db.example/app",
            "postgres://ada:s3cret/x@db.example/app",
            "postgres://ada:s3cret@db.example:s3cret/app",
            "postgres://ada:s3cret@db.example/app?s3cret=1",
            "mysql://ada:s3cret@db.example/app",
        ] {
            let options = PostgresOptions::new(url);
            let text = match Location::parse(&options) {
                Ok((location, _)) => location.to_string(),
                Err(error) => format!("{error:?}"),
            };
            assert!(!format!("{text} {options:?}").contains("s3cret"), "{text}");
            assert!(!text.contains("ada"), "{text}");
        }
        let (location, _) = Location::parse(&"postgres://ada:s3cret@db.example:6543/app".into()).unwrap();
        assert_eq!(location.to_string(), "postgres://db.example:6543/app");
        let (location, _) = Location::parse(&"postgres:///app?hostaddr=10.0.0.1".into()).unwrap();
        assert_eq!(location.to_string(), "postgres://10.0.0.1:5432/app");
    }

    #[test]
    fn names_of_schemas_are_plain() {
        for (schema, fits) in [
            ("superstep", true),
            ("_a1", true),
            ("", false),
            ("1a", false),
            ("A", false),
            ("a;b", false),
            ("pg_x", false),
        ] {
            let options = PostgresOptions::new("").schema(schema);
            assert_eq!(options.has_plain_schema(), fits, "{schema}");
        }
    }
}
