//! The chat in the terminal.
//!
//! Finished lines are printed above a small live part, which is the draft, the status and the newest lines: the terminal's own
//! history has the conversation. The states of the keys and of the view know no terminal.
//!
//! Start at [`app`] for terminals, and at [`plain`] for lines.

mod app;
mod command;
mod composer;
mod conversation;
mod keys;
mod layout;
mod markdown;
mod menu;
mod pager;
mod plain;
mod question;
mod screen;
mod stream;
mod studio;
mod view;
mod wrap;

pub(crate) use self::{
    app::app,
    conversation::{Conversation, Which},
    plain::plain,
};
