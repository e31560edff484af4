//! `superstep models`: the known facts about models.

use std::sync::Arc;

use superstep::llm::models::{ModelInfo, ModelTable, Price};
use superstep_session::{
    config::{configuration::Configuration, file, model::Environment, profile::Profiles},
    error::SessionError,
    offline::planner::OFFLINE,
};

use crate::{
    args::command_line::{ModelsArgs, ModelsCommand},
    commands::learn::learn,
    output::{
        exit::Exit,
        table::{formatted, lines, new_table, print},
    },
};

pub(crate) async fn models(args: ModelsArgs) -> Result<Exit, SessionError> {
    if let Some(ModelsCommand::Learn(args)) = args.command {
        return learn(args).await;
    }
    let environment = Environment::read()?;
    let config = args.config.as_deref().map(file::read).transpose()?.unwrap_or_default();
    let table = &*environment.models;
    let found = match &args.name {
        Some(name) => named(table, name),
        None => {
            let configured = configured(&config, &environment);
            if configured.is_empty() { named(table, "") } else { configured }
        }
    };
    if found.is_empty() {
        let name = args.name.unwrap_or_default();
        return Err(SessionError::usage(format!(
            "no known model has `{name}` in its name; `superstep models learn --model {name}` queries its server"
        )));
    }
    if args.json {
        return print(&lines(found));
    }
    let mut shown = new_table(&["MODEL", "WINDOW", "OUTPUT", "$ IN", "$ CACHED", "$ OUT", "CAN", "AS OF"]);
    for model in &found {
        let price = model.price.as_ref();
        let tokens = |tokens: Option<u64>| tokens.map_or_else(|| "?".to_owned(), |tokens| tokens.to_string());
        let dollars = |price: Option<Price>| price.map_or_else(|| "?".to_owned(), |price| price.to_string());
        shown.add_row([
            model.id.clone(),
            tokens(model.window),
            tokens(model.max_output),
            dollars(price.map(|price| price.input)),
            dollars(price.and_then(|price| price.cached)),
            dollars(price.map(|price| price.output)),
            model.can.iter().cloned().collect::<Vec<_>>().join(" "),
            model.as_of.clone(),
        ]);
    }
    print(&formatted(shown))
}

/// Returns the models of the table that have this text in one of their names.
fn named(table: &ModelTable, text: &str) -> Vec<Arc<ModelInfo>> {
    let has = |model: &&ModelInfo| model.alias.iter().chain([&model.id]).any(|name| name.contains(text));
    table.models().filter(has).cloned().map(Arc::new).collect()
}

/// Returns the models of a configuration, or that of the environment, with as much as is known about each.
fn configured(config: &Configuration, environment: &Environment) -> Vec<Arc<ModelInfo>> {
    let Profiles { main, fallback, compaction } = &config.models;
    let main = main.clone().unwrap_or_default();
    let name = main.model.clone().or_else(|| environment.model.clone());
    let others = fallback.iter().chain(compaction);
    let others = others.filter_map(|profile| Some((profile.model.clone()?, profile)));
    let all = name.map(|name| (name, &main)).into_iter().chain(others);
    let all = all.filter(|(name, _)| name != OFFLINE);
    all.map(|(name, profile)| {
        let unknown = ModelInfo { id: name.clone(), ..ModelInfo::default() };
        profile.info(&name, &environment.models).unwrap_or_else(|| Arc::new(unknown))
    })
    .collect()
}
