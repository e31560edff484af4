//! A build without encryption has no keys to make or to change.

use crate::{
    config::{location::Location, memory::Memory},
    output::exit::{Exit, Failure},
};

pub(crate) fn key() -> Result<Exit, Failure> {
    Err(absent("db key"))
}

pub(crate) async fn rekey(_: &Location, _: bool) -> Result<Exit, Failure> {
    Err(absent("db rekey"))
}

pub(crate) async fn rekey_memory(_: &Memory, _: &Location, _: bool) -> Result<Exit, Failure> {
    Err(absent("memory rekey"))
}

fn absent(command: &str) -> Failure {
    Failure::missing_feature(&format!("`{command}`"), "encryption")
}
