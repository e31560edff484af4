//! Memory consolidation: `[dream]` in a configuration, after a turn, and `superstep dream`.

use std::{fs, path::Path};

use serde::Deserialize;
use serde_json::{Value, json};
use superstep::{
    ThreadId,
    agent::AgentOutcome,
    memory::{Dream, DreamConfig, DreamError, Dreams, Dreamt, HistoryFiles},
};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{DreamArgs, TurnArgs},
    exit::{Exit, Failure},
    memory::{self, Memory},
    model::OFFLINE,
    output::{Output, printable_line, tell},
    place::Place,
    run::{Basis, Purpose, exit_of},
    settings::{self, Chosen},
    show::{lines, print},
    signals,
};

/// Its key in a configuration.
pub(crate) const KEY: &str = "dream";

/// The folder of earlier versions' histories, under the tools' folder. It may have come with that folder from
/// an untrusted source.
const EARLIER_HISTORY: &str = ".superstep/history";

/// Parses the entry of a configuration, if present; `true` means the defaults.
///
/// # Errors    The problem with it, or with the memory that it updates.
pub(crate) fn of(chosen: &Chosen) -> Result<Option<DreamConfig>, String> {
    let config = match chosen.get(KEY) {
        None | Some(Value::Bool(false)) => return Ok(None),
        Some(Value::Bool(true)) => DreamConfig::default(),
        Some(config) => DreamConfig::deserialize(config).map_err(|error| format!("`dream`: {error}"))?,
    };
    match Memory::of(chosen)? {
        Some(memory) if memory.is_files() => Ok(Some(config)),
        // It will have the defaults.
        None if !chosen.contains_key(memory::KEY) => Ok(Some(config)),
        _ => {
            Err("`dream`: it edits `MEMORY.md`, which takes a memory in files; set `memory.store = \"file\"`"
                .to_owned())
        }
    }
}

/// Returns a history for graphs that are only inspected.
pub(crate) fn history_to_look_at(cwd: &Path) -> Result<HistoryFiles, Failure> {
    HistoryFiles::new(cwd, EARLIER_HISTORY)
        .map_err(|cause| Failure::usage(format!("cannot work in `{}`: {cause}", cwd.display())))
}

/// Notes that turns stored by an earlier version in this folder are not consolidated.
pub(crate) fn tell_earlier(cwd: &Path) {
    if fs::symlink_metadata(cwd.join(EARLIER_HISTORY)).is_ok() {
        tell(&format!(
            "`{EARLIER_HISTORY}` of this folder is not read, since it may be anybody's; turns are written down in your state \
             folder now: move the folders of its users there if you wrote them, or remove it"
        ));
    }
}

/// Rejects threads of dreams for the agent, which has more tools than a dream may use.
pub(crate) fn refuse(place: &Place, thread: &ThreadId) -> Result<(), Failure> {
    if !Dreams::is_thread(thread) {
        return Ok(());
    }
    let user = Dreams::user_of(thread);
    let dream = place.command("dream", &["--user", user.as_deref().unwrap_or("NAME")]);
    Err(Failure::new(Exit::Thread, format!("thread `{thread}` is one of dreams; `{dream}` goes on with it")))
}

/// Dreams after a turn, if due. The result is reported and does not affect the turn.
pub(crate) async fn after_turn(
    dreams: &Dreams,
    basis: &Basis,
    cancel: &CancellationToken,
    output: &mut dyn Output,
) {
    let (Some(user), true) = (&basis.user, basis.choice.name != OFFLINE) else { return };
    let dreamt = match run(dreams, user, false, basis, cancel).await {
        Ok(Dreamt::NotDue { .. } | Dreamt::Busy) => return,
        Ok(Dreamt::Ended(dream)) => ended(user, &dream),
        Err(failure) => Err(failure),
    };
    match dreamt {
        Ok(text) => output.note(&text),
        Err(Failure { message, .. }) => output.note(&format!("no dream: {message}")),
    }
}

/// Dreams, if due or requested.
pub(crate) async fn dream(args: DreamArgs) -> Result<Exit, Failure> {
    let DreamArgs { user, now, model, base_url, api_key, config, place, json } = args;
    let memory = match &config {
        Some(file) => Memory::of(&settings::read(file)?).map_err(Failure::usage)?,
        None => None,
    };
    let user = user.unwrap_or_else(|| memory.unwrap_or_default().user().to_owned());
    let turn = TurnArgs { model, base_url, api_key, config, json, ..TurnArgs::default() };
    let place = Place::new(place)?;
    let at_once = at_once(&user, &turn, &place);
    let thread = Dreams::thread(&user);
    // Checked first: without any turn, no database is created.
    if place.look()?.is_none() {
        return show(&user, &Dreamt::NotDue { waiting: 0 }, &at_once, json);
    }
    let store = place.open()?;
    let purpose = Purpose::Turn { user: Some(user.clone()), from: None };
    let basis = Basis::new(&*store, thread, purpose, &place, &turn).await?;
    if basis.choice.name == OFFLINE {
        return Err(Failure::usage(
            "a dream takes a language model, which `offline` is not; name one with `--model`",
        ));
    }
    let store = basis.store(&place, store)?;
    let Some(dreams) = basis.dreams(basis.agent(store.clone())?)? else {
        let what = "no dreams are configured: there is no `[dream]`; name a file that has it with `--config`";
        return Err(Failure::usage(what));
    };
    if let Some(problem) = basis.foreign_dreams(&*store, &user).await? {
        return Err(Failure::new(Exit::Thread, problem));
    }
    tell_earlier(&place.cwd);
    let cancel = CancellationToken::new();
    let dreamt = run(&dreams, &user, now, &basis, &cancel).await?;
    show(&user, &dreamt, &at_once, json)
}

/// Returns the command that dreams immediately. Its flags are stored only after a dream.
fn at_once(user: &str, turn: &TurnArgs, place: &Place) -> String {
    let config = turn.config.as_ref().map(|file| file.to_string_lossy());
    let model = ("--model", turn.model.as_deref());
    let given = [("--config", config.as_deref()), model, ("--base-url", turn.base_url.as_deref())];
    let given = given.into_iter().filter_map(|(flag, value)| Some([flag, value?])).flatten();
    let words: Vec<_> = ["--now", "--user", user].into_iter().chain(given).collect();
    place.command("dream", &words)
}

/// Dreams until it ends, or Ctrl-C ends it.
async fn run(
    dreams: &Dreams,
    user: &str,
    now: bool,
    basis: &Basis,
    cancel: &CancellationToken,
) -> Result<Dreamt, Failure> {
    let config = basis.run_on(&Dreams::thread(user), cancel)?;
    let watch = tokio::spawn(signals::watch(cancel.clone()));
    let dreamt = match now {
        true => dreams.dream_now(user, config).await,
        false => dreams.dream_if_due(user, config).await,
    };
    watch.abort();
    dreamt.map_err(failed)
}

fn show(user: &str, dreamt: &Dreamt, at_once: &str, json: bool) -> Result<Exit, Failure> {
    if json {
        let mut line = json!(dreamt);
        line["user"] = user.into();
        print(&lines([line]))?;
    }
    let name = printable_line(user);
    let text = match dreamt {
        Dreamt::NotDue { waiting: 0 } => format!("nothing new was said by `{name}`"),
        Dreamt::NotDue { waiting } => {
            format!("{}; it is not time yet, `{at_once}` does not wait for that", waits(user, *waiting))
        }
        Dreamt::Busy => {
            return Err(Failure::new(Exit::Thread, format!("another process dreams for `{name}`")));
        }
        Dreamt::Ended(dream) => ended(user, dream)?,
    };
    if json { Ok(Exit::Ok) } else { print(&format!("{text}\n")) }
}

/// Returns the report of a dream, or its failure.
fn ended(user: &str, dream: &Dream) -> Result<String, Failure> {
    let (name, turns) = (printable_line(user), turns(dream.turns));
    let wait = format!("{} for another dream", waits(user, dream.turns));
    match dream.outcome {
        Some(AgentOutcome::Completed) if !dream.settled => {
            let reply = dream.reply.trim();
            Err(Failure::new(
                Exit::Failed,
                format!("the dream gave up after a call that failed: {reply}\n{wait}"),
            ))
        }
        Some(AgentOutcome::Completed) => {
            let reply = dream.reply.trim();
            Ok(format!("dreamt of {turns} of `{name}`: {reply}").trim_end_matches([':', ' ']).to_owned())
        }
        Some(AgentOutcome::LlmError) => {
            let error = dream.error.as_deref().unwrap_or("no reason was stored");
            Err(Failure::new(
                Exit::Model,
                format!("the model could not be asked for a dream: {error}\n{wait}"),
            ))
        }
        Some(AgentOutcome::Cancelled) | None => {
            Err(Failure::new(Exit::Interrupted, format!("the dream was interrupted; {wait}")))
        }
        Some(outcome) => {
            let end = outcome.as_str();
            Err(Failure::new(Exit::Failed, format!("the dream ended before it was done ({end}); {wait}")))
        }
    }
}

fn turns(number: usize) -> String {
    format!("{number} turn{}", if number == 1 { "" } else { "s" })
}

fn waits(user: &str, number: usize) -> String {
    let wait = if number == 1 { "waits" } else { "wait" };
    format!("{} of `{}` {wait}", turns(number), printable_line(user))
}

pub(crate) fn failed(error: DreamError) -> Failure {
    let exit = match &error {
        DreamError::Agent(error) => exit_of(error),
        DreamError::Files { .. } => Exit::Database,
        DreamError::OneFolder => Exit::Usage,
        _ => Exit::Failed,
    };
    match error {
        DreamError::Run(error) => error.into(),
        error => Failure::caused(exit, &error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dreams_are_configured_for_a_memory_in_files() {
        let read = |toml: &str| of(&toml::from_str(toml).unwrap());
        let files = "memory = { store = \"file\" }\n";
        assert_eq!((read("").unwrap(), read("dream = false").unwrap()), (None, None));
        for usual in ["dream = true", "[dream]"] {
            assert_eq!(read(&format!("{files}{usual}")).unwrap(), Some(DreamConfig::default()));
            assert_eq!(read(usual).unwrap(), Some(DreamConfig::default()));
        }
        let given = read(&format!("{files}[dream]\nturns = 10\nafter_ms = 5")).unwrap().unwrap();
        assert_eq!((given.turns, given.after.as_millis()), (10, 5));
        for (given, wanted) in [
            ("dream = true\nmemory = false", "`dream`: it edits `MEMORY.md`"),
            ("memory = { store = \"sqlite\" }\n[dream]", "`dream`: it edits `MEMORY.md`"),
            ("[dream]\nturn = 1", "`dream`: unknown field `turn`"),
            ("dream = 3", "`dream`: invalid type: integer `3`"),
        ] {
            let error = read(given).unwrap_err();
            assert!(error.starts_with(wanted), "{given}: {error}");
        }
    }
}
