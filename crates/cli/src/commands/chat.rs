//! `superstep chat`: turns of a thread, one after the other, in the terminal.

use std::{
    env,
    io::{self, IsTerminal as _},
};

use superstep_session::{
    config::{names::DbName, settings::Given},
    error::SessionError,
    live::{Mode, Sessions},
};

use crate::{
    args::{
        command_line::{ChatArgs, ConversationArgs},
        own::OwnChatArgs,
        shared::{AGENT, LocationArgs},
    },
    chat::{Conversation, Which, app, plain},
    commands::own::agent::OwnProgram,
    output::exit::Exit,
};

/// Chats in the terminal, or by lines.
pub(crate) async fn chat(args: ChatArgs) -> Result<Exit, SessionError> {
    let ChatArgs { conversation, agent, no_memory } = args;
    // The mode can be changed, and the flag is its first value.
    let mode = if agent.yes { Mode::Auto } else { Mode::Ask };
    let given = Given { approves_all: false, ..agent.given(conversation.location.cwd.as_deref())? };
    let given = if no_memory { given.without_memory() } else { given };
    converse(conversation, mode, |db| Sessions::new(AGENT, db, given)).await
}

/// Chats with the agent of a program of one's own.
pub(crate) async fn own(args: OwnChatArgs, agent: OwnProgram) -> Result<Exit, SessionError> {
    let mode = if args.yes { Mode::Auto } else { Mode::Ask };
    converse(args.conversation, mode, |db| agent.sessions(db)).await
}

async fn converse(
    args: ConversationArgs,
    mode: Mode,
    sessions: impl FnOnce(Option<DbName>) -> Sessions,
) -> Result<Exit, SessionError> {
    let ConversationArgs { prompt, thread, last, plain: is_plain, location } = args;
    let LocationArgs { db, cwd } = location;
    let folder = match cwd {
        Some(cwd) => cwd,
        None => env::current_dir().map_err(|cause| {
            SessionError::usage(format!("the current folder cannot be used: {cause}; name one with `--cwd`"))
        })?,
    };
    let which = match thread {
        Some(name) => Which::Named(name.into()),
        None if last => Which::Last,
        None => Which::New,
    };
    let conversation = Conversation::open(sessions(db), folder, which, mode).await?;
    if is_plain || !has_screen() {
        plain(conversation, prompt).await
    } else {
        app(conversation, prompt).await
    }
}

/// Returns whether a command line without a command is that of a chat: on a terminal, with the name of a model.
pub(crate) fn is_default() -> bool {
    has_screen() && env::var_os("OPENAI_MODEL").is_some_and(|model| !model.is_empty())
}

/// Returns whether the program is on a terminal that can move its cursor.
fn has_screen() -> bool {
    let is_dumb = env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    io::stdin().is_terminal() && io::stdout().is_terminal() && !is_dumb
}
