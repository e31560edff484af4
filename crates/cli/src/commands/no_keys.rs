//! A build without encryption has no keys to make or to change.

use superstep_session::{
    config::{location::Location, memory::Memory},
    error::SessionError,
};

use crate::output::exit::Exit;

pub(crate) fn key() -> Result<Exit, SessionError> {
    Err(absent("db key"))
}

pub(crate) async fn rekey(_: &Location, _: bool) -> Result<Exit, SessionError> {
    Err(absent("db rekey"))
}

pub(crate) async fn rekey_memory(_: &Memory, _: &Location, _: bool) -> Result<Exit, SessionError> {
    Err(absent("memory rekey"))
}

fn absent(command: &str) -> SessionError {
    SessionError::missing_feature(&format!("`{command}`"), "encryption")
}
