//! The commands of the chat.
//!
//! Start at [`Command`].

use superstep::{
    CheckpointId,
    agent::config::{Pin, PinKind},
};
use superstep_session::live::{Mode, TurnId};

/// The commands with their arguments and descriptions, as `/help` and the menu list them.
pub(super) const COMMANDS: [(&str, &str, &str); 24] = [
    ("/help", "", "the commands and keys"),
    ("/new", "", "a new thread"),
    ("/threads", "[THREAD]", "the threads of the folder, or open one"),
    ("/history", "", "the turns of the thread, each with its checkpoint"),
    ("/state", "[CHANNEL]", "the state of the thread, or the value of a channel"),
    ("/diff", "[N]", "the changes of the state since the last turn, or since a checkpoint"),
    ("/fork", "[N]", "a copy of the thread, at a checkpoint; this one stays"),
    ("/continue", "", "continue the unfinished turn"),
    ("/undo", "", "restore the files that the last turn changed"),
    ("/compact", "", "summarize the conversation before the next message"),
    ("/pin", "[[KIND:] TEXT]", "pin a rule, goal, preference or fact, or list the pins"),
    ("/unpin", "NAME", "remove a pin"),
    ("/mode", "[NAME]", "ask, accept-edits, read-only or auto"),
    ("/model", "[NAME]", "the model of the next turn"),
    ("/queue", "[N]", "the queued messages, or remove one"),
    ("/tools", "", "the tools of the agent"),
    ("/memory", "[TEXT]", "the entries of the long-term memory, or those about a text"),
    ("/graph", "", "the graph, with the path of the thread"),
    ("/studio", "", "the thread in a browser"),
    ("/replay", "", "replay the thread from its recorded inputs"),
    ("/usage", "", "the tokens, messages and settings of the thread"),
    ("/copy", "", "copy the last reply to the clipboard"),
    ("/export", "[FILE]", "write the thread to a file"),
    ("/quit", "", "end the chat"),
];

/// A command of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Help,
    New,
    Threads(Option<String>),
    History,
    Fork(Option<CheckpointId>),
    Continue,
    Undo,
    Compact,
    Pin(Option<Pin>),
    Unpin(String),
    Mode(Option<Mode>),
    Model(Option<String>),
    Queue(Option<TurnId>),
    Usage,
    State(Option<String>),
    Diff(Option<CheckpointId>),
    Tools,
    Memory(Option<String>),
    Graph,
    Studio,
    Replay,
    Copy,
    Export(Option<String>),
    Quit,
}

impl Command {
    /// Parses a message that is a command; `None` if it is a message. A path, such as `/etc/hosts`, is not a command.
    pub(super) fn parse(text: &str) -> Option<Result<Self, String>> {
        let text = text.trim();
        let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        if !name.starts_with('/') || name[1..].contains('/') || text.contains('\n') {
            return None;
        }
        let rest = Some(rest.trim()).filter(|rest| !rest.is_empty());
        let number = || {
            let parse = |rest: &str| {
                let number = rest.trim_start_matches('#').parse::<u64>();
                number.map_err(|_| format!("`{rest}` is not a number"))
            };
            rest.map(parse).transpose()
        };
        let alone = |command| match rest {
            None => Ok(command),
            Some(_) => Err(format!("{name} has no argument")),
        };
        Some(match name {
            "/help" => alone(Self::Help),
            "/new" => alone(Self::New),
            "/threads" => Ok(Self::Threads(rest.map(str::to_owned))),
            "/history" => alone(Self::History),
            "/fork" => number().map(|at| Self::Fork(at.map(CheckpointId))),
            "/continue" => alone(Self::Continue),
            "/undo" => alone(Self::Undo),
            "/compact" => alone(Self::Compact),
            "/pin" => Ok(Self::Pin(rest.map(pin))),
            "/unpin" => match rest {
                Some(name) => Ok(Self::Unpin(name.trim_matches('`').to_owned())),
                None => Err("/unpin needs the name of a pin; `/pin` lists them".to_owned()),
            },
            "/mode" => rest.map(str::parse).transpose().map(Self::Mode),
            "/model" => Ok(Self::Model(rest.map(str::to_owned))),
            "/queue" => number().map(Self::Queue),
            "/usage" => alone(Self::Usage),
            "/state" => Ok(Self::State(rest.map(str::to_owned))),
            "/diff" => number().map(|at| Self::Diff(at.map(CheckpointId))),
            "/tools" => alone(Self::Tools),
            "/memory" => Ok(Self::Memory(rest.map(str::to_owned))),
            "/graph" => alone(Self::Graph),
            "/studio" => alone(Self::Studio),
            "/replay" => alone(Self::Replay),
            "/copy" => alone(Self::Copy),
            "/export" => Ok(Self::Export(rest.map(str::to_owned))),
            "/quit" | "/exit" => alone(Self::Quit),
            _ => Err(format!("there is no command {name}; `/help` lists them")),
        })
    }
}

/// Reads a pin, which is a rule unless it begins with another kind and a colon.
fn pin(text: &str) -> Pin {
    let of_kind = text.split_once(':').and_then(|(kind, text)| {
        let kind = PinKind::ALL.into_iter().find(|known| known.as_str() == kind.trim().to_lowercase())?;
        Some(Pin::new(kind, text.trim())).filter(|pin| !pin.text.is_empty())
    });
    of_kind.unwrap_or_else(|| Pin::new(PinKind::Rule, text))
}

/// Returns the text of `/help`.
pub(super) fn help() -> String {
    let mut text = String::new();
    for (name, args, about) in COMMANDS {
        text.push_str(&format!("{:<20}{about}\n", format!("{name} {args}")));
    }
    text.push_str(
        "
Enter               send; while a turn runs: send into it
Tab                 while a turn runs: queue the message
Alt-Enter, Ctrl-J   new line
Esc                 cancel the turn
Ctrl-C              clear the draft, then cancel the turn, then end
Up, Down            earlier messages; Ctrl-R searches them
Alt-Up              take the last queued message back
Ctrl-T              the whole conversation with all results of tools
Ctrl-G              edit the draft in $EDITOR
@                   complete the path of a file",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_a_word_with_its_argument() {
        let parsed = |text: &str| Command::parse(text).unwrap();
        assert_eq!(parsed("/fork #4 "), Ok(Command::Fork(Some(CheckpointId(4)))));
        assert_eq!(parsed("/mode read-only"), Ok(Command::Mode(Some(Mode::ReadOnly))));
        assert_eq!(parsed("/threads"), Ok(Command::Threads(None)));
        assert_eq!(parsed("/pin"), Ok(Command::Pin(None)));
        let pin = |kind, text: &str| Ok(Command::Pin(Some(Pin::new(kind, text))));
        assert_eq!(parsed("/pin Never push: never."), pin(PinKind::Rule, "Never push: never."));
        assert_eq!(parsed("/pin Goal: Ship it"), pin(PinKind::Goal, "Ship it"));
        assert_eq!(parsed("/unpin `a b`"), Ok(Command::Unpin("a b".to_owned())));
        assert!(parsed("/unpin").is_err());
        assert_eq!(parsed("/fork x"), Err("`x` is not a number".to_owned()));
        assert_eq!(parsed("/undo all"), Err("/undo has no argument".to_owned()));
        assert!(parsed("/mode fast").is_err() && parsed("/nothing").is_err());
        assert_eq!(Command::parse("/etc/hosts is what?"), None);
        assert_eq!(Command::parse("hello /help"), None);
    }

    #[test]
    fn each_listed_command_is_one() {
        for (name, args, _) in COMMANDS {
            let text =
                if args.is_empty() || args.starts_with('[') { name.to_owned() } else { format!("{name} x") };
            assert!(Command::parse(&text).is_some_and(|parsed| parsed.is_ok()), "{name}");
            assert!(help().contains(name), "{name}");
        }
    }
}
