//! Decisions about calls that wait, as flags of `resume`.

use clap::Args;

/// The value of a flag without an ID: all calls that no other flag names. No argument of a program can contain
/// it, so that an empty variable as ID (`--approve "$ID"`) is not read as all calls.
pub(crate) const ALL_OTHERS: &str = "\0";

/// The decisions on waiting calls, given to `resume`.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Decisions about calls that wait")]
pub(crate) struct DecisionArgs {
    /// Let a call run; without an ID, all that no other flag names.
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = ALL_OTHERS)]
    pub(crate) approve: Vec<String>,
    /// Let it run, and do not require approval for its tool again on this thread.
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = ALL_OTHERS)]
    pub(crate) always: Vec<String>,
    /// Do not let it run, and give the model this reason.
    #[arg(long, value_name = "ID[=REASON]")]
    pub(crate) deny: Vec<String>,
    /// Deny all calls that no other flag names, and give the model this reason.
    #[arg(long, value_name = "REASON", num_args = 0..=1, default_missing_value = "")]
    pub(crate) deny_all: Option<String>,
    /// Let it run with other arguments.
    #[arg(long, value_name = "ID=JSON")]
    pub(crate) edit: Vec<String>,
    /// Do not let it run, and give the model this as its result.
    #[arg(long, value_name = "ID=TEXT")]
    pub(crate) respond: Vec<String>,
    /// Answer a tool's question with these values. `--approve` answers without values, `--deny` declines.
    #[arg(long, value_name = "ID=JSON")]
    pub(crate) answer: Vec<String>,
    /// Dismiss a tool's question without an answer.
    #[arg(long, value_name = "ID")]
    pub(crate) cancel: Vec<String>,
}

impl DecisionArgs {
    /// Returns whether nothing is decided.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { approve, always, deny, deny_all, edit, respond, answer, cancel } = self;
        let named = [approve, always, deny, edit, respond, answer, cancel];
        deny_all.is_none() && named.into_iter().all(Vec::is_empty)
    }
}
