//! `superstep dream`: makes memory of what was said.

use std::sync::Arc;

use serde_json::json;
use superstep::memory::{DreamResult, Dreams};
use superstep_session::{
    config::{
        file,
        location::Location,
        settings::{Given, Settings},
    },
    error::{ErrorKind, SessionError},
    offline::planner::OFFLINE,
    text::printable_line,
    turn::{
        dream_thread::note_earlier,
        dreams::{ended, run, waits},
        setup::{Purpose, Setup},
    },
};

use crate::{
    args::{
        command_line::DreamArgs,
        shared::{AGENT, DatabaseArgs, Locate},
    },
    output::{
        exit::Exit,
        note::print_new,
        table::{lines, print},
    },
    session::signals,
};

/// Dreams, if due or requested.
pub(crate) async fn dream(args: DreamArgs) -> Result<Exit, SessionError> {
    let DreamArgs { user, now, model, base_url, api_key, config, database } = args;
    let DatabaseArgs { location, json } = database;
    let memory = match &config {
        Some(file) => file::read(file)?.memory.on().cloned(),
        None => None,
    };
    let user = user.unwrap_or_else(|| memory.unwrap_or_default().user().to_owned());
    let settings = Settings { model, base_url, user: Some(user.clone()), ..Settings::default() };
    let given = Given { settings, file: config, key: api_key, ..Given::default() };
    let location = Arc::new(location.locate(AGENT)?);
    let at_once = at_once(&user, &given, &location);
    let thread = Dreams::thread(&user);
    // Checked first: without any turn, no database is created.
    if location.find()?.is_none() {
        return show(&user, &DreamResult::NotDue { waiting: 0 }, &at_once, json);
    }
    let store = location.open()?;
    let mut notes = Vec::new();
    let (cancel, _watch) = signals::watching();
    let setup = Setup::new(location.clone(), store, thread, Purpose::Dream, &given, &mut notes, cancel).await;
    print_new(notes, false);
    let setup = setup?;
    let Some(dreams) = &setup.dreams else {
        let what = "no dreams are configured: the configuration has no `[dream]`; name a file that has it \
            with `--config`";
        return Err(SessionError::usage(what));
    };
    if setup.model == OFFLINE {
        return Err(SessionError::usage(
            "a dream needs a language model, and `offline` is not one; name one with `--model`",
        ));
    }
    if let Some(problem) = setup.foreign_dreams(&user).await? {
        return Err(SessionError::new(ErrorKind::Thread, problem));
    }
    print_new(note_earlier(&location.cwd), false);
    let dreamt = run(&setup, dreams, &user, now).await?;
    show(&user, &dreamt, &at_once, json)
}

/// Returns the command that dreams immediately. Its flags are stored only after a dream.
fn at_once(user: &str, given: &Given, location: &Location) -> String {
    let config = given.file.as_ref().map(|file| file.to_string_lossy());
    let model = ("--model", given.settings.model.as_deref());
    let given = [("--config", config.as_deref()), model, ("--base-url", given.settings.base_url.as_deref())];
    let given = given.into_iter().filter_map(|(flag, value)| Some([flag, value?])).flatten();
    let words: Vec<_> = ["--now", "--user", user].into_iter().chain(given).collect();
    location.command("dream", &words)
}

fn show(user: &str, dreamt: &DreamResult, at_once: &str, json: bool) -> Result<Exit, SessionError> {
    if json {
        let mut line = json!(dreamt);
        line["user"] = user.into();
        print(&lines([line]))?;
    }
    let name = printable_line(user);
    let text = match dreamt {
        DreamResult::NotDue { waiting: 0 } => format!("no new turns of `{name}`"),
        DreamResult::NotDue { waiting } => {
            format!("{}; the dream is not due yet, `{at_once}` does not wait", waits(user, *waiting))
        }
        DreamResult::Busy => {
            return Err(SessionError::new(ErrorKind::Thread, format!("another process dreams for `{name}`")));
        }
        DreamResult::Ended(dream) => ended(user, dream)?,
    };
    if json { Ok(Exit::Ok) } else { print(&format!("{text}\n")) }
}
