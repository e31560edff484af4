//! What an argument of a call stands for.

/// What an argument of a call stands for, as rules about calls compare it with their patterns: see [`Tool::subject`].
///
/// [`Tool::subject`]: crate::Tool::subject
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Subject {
    /// A file or folder, where it really is: links followed, without `.` and `..`.
    Path {
        /// The folder that the tool works in, absolute, with `/` between names.
        root: String,
        /// Below that folder, with `/` between names; empty for the folder itself.
        below: String,
        /// Whether the call reaches everything below it as well.
        whole: bool,
        /// Whether its file system may find it by other letter cases as well.
        any_case: bool,
    },
    /// An address of the web.
    Url(String),
    /// A command line of a shell.
    Command(String),
    /// Text that means what it says.
    Text(String),
    /// Nobody can tell what it stands for: rules that allow are not about it, rules that deny are.
    Unknown,
}
