//! `superstep dream`: makes memory of what was said.

use serde_json::json;
use superstep::memory::{DreamResult, Dreams};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{
        command_line::DreamArgs,
        shared::{AgentArgs, DatabaseArgs, TurnArgs},
    },
    config::{file, location::Location},
    offline::planner::OFFLINE,
    output::{
        exit::{Exit, Failure},
        table::{lines, print},
        text::printable_line,
    },
    session::{
        dream_thread::note_earlier,
        dreams::{ended, run, waits},
        setup::{Basis, Purpose},
    },
};

/// Dreams, if due or requested.
pub(crate) async fn dream(args: DreamArgs) -> Result<Exit, Failure> {
    let DreamArgs { user, now, model, base_url, api_key, config, database } = args;
    let DatabaseArgs { location, json } = database;
    let memory = match &config {
        Some(file) => file::read(file)?.memory.on().cloned(),
        None => None,
    };
    let user = user.unwrap_or_else(|| memory.unwrap_or_default().user().to_owned());
    let agent = AgentArgs { model, base_url, api_key, config, ..AgentArgs::default() };
    let turn = TurnArgs { agent, json, ..TurnArgs::default() };
    let location = Location::new(location)?;
    let at_once = at_once(&user, &turn, &location);
    let thread = Dreams::thread(&user);
    // Checked first: without any turn, no database is created.
    if location.find()?.is_none() {
        return show(&user, &DreamResult::NotDue { waiting: 0 }, &at_once, json);
    }
    let store = location.open()?;
    let purpose = Purpose::Turn { user: Some(user.clone()), from: None };
    let basis = Basis::new(&*store, thread, purpose, &location, &turn).await?;
    let store = basis.store(&location, store)?;
    let Some(dreams) = basis.dreams(basis.agent(store.clone())?)? else {
        let what = "no dreams are configured: the configuration has no `[dream]`; name a file that has it \
            with `--config`";
        return Err(Failure::usage(what));
    };
    if basis.choice.name == OFFLINE {
        return Err(Failure::usage(
            "a dream needs a language model, and `offline` is not one; name one with `--model`",
        ));
    }
    if let Some(problem) = basis.foreign_dreams(&*store, &user).await? {
        return Err(Failure::new(Exit::Thread, problem));
    }
    note_earlier(&location.cwd);
    let cancel = CancellationToken::new();
    let dreamt = run(&dreams, &user, now, &basis, &cancel).await?;
    show(&user, &dreamt, &at_once, json)
}

/// Returns the command that dreams immediately. Its flags are stored only after a dream.
fn at_once(user: &str, turn: &TurnArgs, location: &Location) -> String {
    let config = turn.config.as_ref().map(|file| file.to_string_lossy());
    let model = ("--model", turn.model.as_deref());
    let given = [("--config", config.as_deref()), model, ("--base-url", turn.base_url.as_deref())];
    let given = given.into_iter().filter_map(|(flag, value)| Some([flag, value?])).flatten();
    let words: Vec<_> = ["--now", "--user", user].into_iter().chain(given).collect();
    location.command("dream", &words)
}

fn show(user: &str, dreamt: &DreamResult, at_once: &str, json: bool) -> Result<Exit, Failure> {
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
            return Err(Failure::new(Exit::Thread, format!("another process dreams for `{name}`")));
        }
        DreamResult::Ended(dream) => ended(user, dream)?,
    };
    if json { Ok(Exit::Ok) } else { print(&format!("{text}\n")) }
}
