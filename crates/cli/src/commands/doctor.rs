//! `superstep doctor`: what a turn needs, and what is missing.

use std::path::Path;

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use superstep::tools::FoundKind;
use superstep_session::{
    config::{
        configuration::Configuration,
        defaults::Defaults,
        instructions::{self, TrustedFiles},
        location::Location,
        model::{Environment, ModelInputs},
        settings::{Given, Settings, StoredSettings},
        state_folder,
        wire::Wire,
    },
    error::SessionError,
    text::count,
    turn::mcp,
};

use crate::{
    args::{
        command_line::DoctorArgs,
        shared::{AGENT, Locate},
    },
    commands::learn::Server,
    output::{
        exit::Exit,
        table::{lines, print, print_styled},
    },
    session::signals,
};

/// The features of this build.
const FEATURES: [(&str, bool); 8] = [
    ("encryption", cfg!(feature = "encryption")),
    ("json-schema", cfg!(feature = "json-schema")),
    ("model2vec", cfg!(feature = "model2vec")),
    ("png", cfg!(feature = "png")),
    ("postgres", cfg!(feature = "postgres")),
    ("restate", cfg!(feature = "restate")),
    ("telemetry", cfg!(feature = "telemetry")),
    ("tiktoken", cfg!(feature = "tiktoken")),
];

/// Something that a turn needs.
#[derive(Serialize)]
struct Finding {
    subject: &'static str,
    ok: bool,
    text: String,
}

impl Finding {
    fn new(subject: &'static str, found: Result<String, String>) -> Self {
        let ok = found.is_ok();
        Self { subject, ok, text: found.unwrap_or_else(|problem| problem) }
    }
}

/// Checks what a turn in a folder needs.
pub(crate) async fn doctor(args: DoctorArgs) -> Result<Exit, SessionError> {
    let DoctorArgs { model, base_url, config: named, location, json } = args;
    let location = location.locate(AGENT)?;
    let defaults = Defaults::load(location.cwd())?;
    let settings = Settings { model, base_url, ..Settings::default() };
    let given = Given { settings, file: named, ..Given::default() };
    let config = given.configuration(&StoredSettings::default(), &defaults, "the folder has")?;
    let mut found = vec![
        Finding::new("folder", Ok(location.cwd().display().to_string())),
        Finding::new("database", database(&location).await.map_err(|error| error.message)),
        Finding::new("state folder", state()),
        Finding::new("model", self::model(&given, &config, &defaults).await),
    ];
    found.extend(servers(&config, location.cwd()).await);
    if instructions::is_on(&config) {
        found.push(Finding::new("instructions", read_files(location.cwd()).map_err(|error| error.message)));
    }
    let (with, without): (Vec<_>, Vec<_>) = FEATURES.into_iter().partition(|(_, is_there)| *is_there);
    let names = |kind: &str, features: Vec<(&str, bool)>| {
        let names: Vec<_> = features.into_iter().map(|(name, _)| name).collect();
        (!names.is_empty()).then(|| format!("{kind} {}", names.join(", ")))
    };
    let features: Vec<_> = [names("with", with), names("without", without)].into_iter().flatten().collect();
    let features = features.join("; ");
    found.push(Finding::new("features", Ok(features)));
    let exit = if found.iter().all(|finding| finding.ok) { Exit::Ok } else { Exit::Failed };
    if json {
        print(&lines(found))?;
        return Ok(exit);
    }
    let shown = found.iter().map(|Finding { subject, ok, text }| match ok {
        true => (Style::new(), format!("ok       {subject}: {text}")),
        false => (AnsiColor::Red.on_default(), format!("missing  {subject}: {text}")),
    });
    print_styled(&shown.collect::<Vec<_>>())?;
    Ok(exit)
}

async fn database(location: &Location) -> Result<String, SessionError> {
    let db = location.db();
    Ok(match location.find()? {
        None => format!("{db}, which the first turn creates"),
        Some(store) => format!("{db}, with {}", count(store.names().await?.len(), "thread")),
    })
}

/// Counts the instructions and skills that a turn reads.
fn read_files(folder: &Path) -> Result<String, SessionError> {
    let found = instructions::reader(folder, &TrustedFiles::default())?.found();
    let used = || found.files.iter().filter(|file| file.is_confirmed);
    let skills = used().filter(|file| matches!(file.kind, FoundKind::Skill(_))).count();
    let files = used().count() - skills;
    let unconfirmed = instructions::unconfirmed(&found).count();
    let rest = if unconfirmed > 0 { format!("; {unconfirmed} not confirmed") } else { String::new() };
    Ok(format!("{}, {}{rest}", count(files, "file"), count(skills, "skill")))
}

fn state() -> Result<String, String> {
    let folder = state_folder::folder().ok_or(
        "no folder for your decisions is known, so that approvals of other programs count for one run only; name one with SUPERSTEP_STATE_DIR",
    )?;
    let folder = folder.display();
    Ok(format!("{folder}"))
}

/// Chooses the model of a turn without flags, and asks its server for a list of models.
async fn model(given: &Given, config: &Configuration, defaults: &Defaults) -> Result<String, String> {
    let message = |error: SessionError| error.message;
    let (thread, environment) = (&StoredSettings::default(), &Environment::read().map_err(message)?);
    let choice =
        ModelInputs { given, thread, environment, config, defaults }.choose().await.map_err(message)?;
    if let Some(note) = choice.note.filter(|_| choice.base_url.is_none()) {
        return Err(format!(
            "{note}; set OPENAI_API_KEY, ANTHROPIC_API_KEY or GEMINI_API_KEY, or start a local server"
        ));
    }
    let Some(base_url) = choice.base_url else { return Ok(choice.name) };
    let at = format!("{} at {base_url}", choice.name);
    if Wire::of(&choice.name) == Wire::Vertex {
        return Ok(format!("{at}, which is not queried"));
    }
    let server = Server::of(&choice.name, &base_url, choice.key).map_err(message)?;
    match server.lists_models().await {
        Ok(()) => Ok(at),
        Err(problem) => Err(format!("{at}: {problem}")),
    }
}

/// Starts the MCP servers of a configuration.
async fn servers(config: &Configuration, folder: &Path) -> Vec<Finding> {
    let (stop, _watch) = signals::watching();
    let mut found = Vec::new();
    for (name, server) in &config.mcp {
        let started = mcp::connect([(name.clone(), server.clone())].into(), folder, &stop).await;
        let shown = match &started {
            Ok(servers) => {
                let tools = servers.iter().map(|server| server.tools().len()).sum::<usize>();
                Ok(format!("{name}, with {}", count(tools, "tool")))
            }
            Err(error) => Err(format!("{name}: {}", error.message)),
        };
        mcp::close(started.iter().flatten()).await;
        found.push(Finding::new("MCP server", shown));
    }
    found
}
