//! Live sessions: threads whose turns shells begin, watch, answer and cancel.
//!
//! Start at [`Sessions`], which opens a [`Session`]; its [`SessionEvent`]s are the same for every shell, live and from the stored
//! conversation.

mod calls;
mod elsewhere;
mod event;
mod log;
mod mode;
mod notices;
mod projection;
mod session;
mod sessions;
mod transcript;
mod turn;

pub use self::{
    calls::{CallStatus, CallView, PlanItem, PlanStatus},
    event::{AnsweredBy, Ended, Level, MessageView, Queued, Said, SessionEvent, TurnEnd, TurnId, UsageView},
    log::{Events, Since},
    mode::Mode,
    notices::{Notice, notice},
    session::{Change, Head, OnBusy, Prompt, Question, Session, SettingsView},
    sessions::{NewSession, SessionInfo, Sessions, title},
};
