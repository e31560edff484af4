//! The derives of superstep, [`macro@State`], [`macro@Route`], [`macro@View`] and [`macro@Input`], and [`macro@tool`].
//!
//! Use them through `superstep`, or through `superstep-graph`, whose traits they implement.

mod channel;
mod error_pages;
mod flatten;
mod guide;
mod home;
mod options;
mod route;
mod state;
mod tool;
mod view;

use proc_macro::TokenStream;
use syn::{DeriveInput, Error, ItemFn, LitStr, parse_macro_input};

/// Implements `State` for a struct with named fields, and generates its update type.
///
/// Every field becomes a channel. `#[channel(..)]` chooses its reducer. Its type needs `Default`, `Serialize`
/// and `Deserialize`, and the struct needs `Clone` and `Default`.
///
/// | attribute | how writes fold |
/// |---|---|
/// | none, or `last_value` | the write replaces the value; one write per superstep |
/// | a built-in reducer in lower case, such as `append` or `merge_by_id` | by the type of that name in `superstep_graph::state`: `Append`, `MergeById` |
/// | `barrier` | arrivals are recorded in a `Barrier` |
/// | `fold_with = path` | the first write to an `Option<T>` is its value, then `fn(T, T) -> T` of the old value and the write |
/// | `with = path::Type` | a custom `Reducer` |
///
/// `flatten` marks a field that is not a channel, but a state: its channels become channels of this state,
/// under their own names, in storage and output. The derive implements `Flattens` for the two states.
///
/// `untracked`, alone or with a reducer, excludes the channel from storage: only nodes of the run that writes
/// it see it. Its type needs neither `Serialize` nor `Debug`, so it may be a handle.
///
/// These attributes, alone or with a reducer, control how data of older versions of the state is read:
///
/// | attribute | accepted data |
/// |---|---|
/// | `was = "old"` | the channel under a former name; may be repeated |
/// | `version = 2, migrate = path` | older versions, migrated by `fn(Value, u32, Stored) -> Result<Value, E>` |
/// | `required` | only threads on which the channel was written |
///
/// # The crate
/// The derives find `superstep` or `superstep-graph` in the manifest, also under another name. `#[superstep(crate = path)]`
/// on the struct names the crate where that does not suffice, for example where another crate re-exports it.
///
/// # The update
/// `ChatUpdate` for a state `Chat`, as visible as the state. It has a field and a builder method for each
/// channel, and `clear_..` for each channel that more than one task may write: such a channel is reset to the
/// default of its type before the write of the same update is folded. `set_..` does both: it overwrites. The
/// JSON form has one entry per written channel, and `clear` with the names of the cleared ones.
/// `Update::then` combines two updates; if both write a channel, the JSON form has the second under `$then`.
///
/// # Errors
/// At compile time: an enum, a tuple struct or a generic struct; an unknown reducer or two of them; a field called
/// `clear`; an old name that another channel has or had; a version without migration; more than 128
/// channels; two channels with one name, those of flattened states among them.
///
/// # Example
/// ```
/// use superstep_graph::{Log, State, state::reduce};
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Chat {
///     #[channel(append)]
///     messages: Log<String>,
///     #[channel(sum)]
///     turns: i64,
///     answer: Option<String>,
/// }
///
/// let update = Chat::update().messages(["hello"]).turns(1);
/// let chat = reduce(&Chat::default(), [update])?;
/// assert_eq!(chat.messages, ["hello"]);
/// assert_eq!((chat.turns, chat.answer), (1, None));
/// # Ok::<(), superstep_graph::state::FoldError>(())
/// ```
#[proc_macro_derive(State, attributes(channel, superstep))]
pub fn derive_state(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    state::expand(input).unwrap_or_else(Error::into_compile_error).into()
}

/// Implements `Route` for an enum without fields.
///
/// The enum must be `Copy`. The label of a route is the name of its variant.
///
/// # Errors
/// At compile time: anything but an enum, an enum without variants, and a variant with fields.
///
/// # Example
/// ```
/// use superstep_graph::Route;
///
/// #[derive(Route, Clone, Copy, Debug, PartialEq)]
/// enum Next {
///     Tools,
///     Finalize,
/// }
///
/// assert_eq!(Next::ALL, [Next::Tools, Next::Finalize]);
/// assert_eq!(Next::Finalize.label(), "Finalize");
/// ```
#[proc_macro_derive(Route, attributes(superstep))]
pub fn derive_route(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    route::expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Implements `View` for a struct with named fields; `#[view(of = State)]` names the state.
///
/// Each field is a channel of the state under the same name and of the same type; the view has a clone of its
/// value. A field with `#[view(flatten)]` is a view of the flattened state under its name.
///
/// # Errors
/// At compile time: anything but such a struct; a field that the state does not have, or has with another type.
#[proc_macro_derive(View, attributes(view, superstep))]
pub fn derive_view(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    view::expand_view(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Makes a struct with named fields an input of a state, named by `#[input(of = State)]`: it converts into an
/// update that writes every field to the channel of that name. A field with `#[input(flatten)]` is an update
/// of the flattened state under its name, or converts into one, like an input of that state.
///
/// # Errors
/// At compile time: anything but such a struct; a field that the state does not have, or whose type does not convert into
/// what is written to the channel.
#[proc_macro_derive(Input, attributes(input, superstep))]
pub fn derive_input(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    view::expand_input(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Turns an async function into a tool: it is replaced by a function of the same name that returns an
/// `Arc<dyn Tool>`.
///
/// The function's name and doc comment become the tool's name and description. The model passes a JSON object
/// with a field for each parameter, whose types need `Deserialize` and `JsonSchema`. Doc comments,
/// `#[serde(..)]` and `#[schemars(..)]` on parameters have the same meaning as on the fields of a struct.
///
/// | parameter | is |
/// |---|---|
/// | of type `ToolCx` | the context of the call: its id, its cancellation, its output, and the agent's state and store; not in the schema |
/// | with `#[args]` | all arguments, in one struct |
/// | with `#[dep]` | a dependency: a parameter of the function that creates the tool; each call gets a clone |
///
/// | option | means |
/// |---|---|
/// | `name = ".."` | another name |
/// | `ask = ".."` | the question to a person before it runs, with arguments in braces as in `format!` |
/// | `ask = path` | a `fn(&serde_json::Value) -> Option<String>` that returns the question, or `None` |
/// | `subject = "path(file in folder), url(link)"` | the subjects of text arguments for permission rules: `path`, `url`, `command` or `text`; the folder of a path is a parameter with `#[dep]` that is `AsRef<Path>`, by default the folder of the process |
/// | `subject = path` | a `fn(&str, &serde_json::Value) -> Option<Subject>` that returns the subject of each argument, like `Tool::subject` |
/// | `exclusive`, `poll`, `answers`, `idempotent` | the same field of `Behaviour` |
/// | `crate = path` | the module with the types of tools, if it is not found in the manifest |
///
/// It returns text, a `Serialize` type that the model reads as JSON, a `ToolReply`, or a `Result` of these
/// with any error that can be displayed. A type whose name ends with `Result` is treated as a result.
///
/// # Errors
/// At compile time: a function that is not async, or generic, or a method; parameters without a name, or that
/// are references; a missing doc comment; a name that providers refuse.
///
/// # Example
/// ```
/// use superstep_llm::{Tool, ToolCx, ToolError, tool};
///
/// /// Divides two numbers.
/// #[tool(idempotent)]
/// async fn divide(
///     /// What is divided.
///     dividend: f64,
///     /// By how much; not 0.
///     divisor: f64,
/// ) -> Result<f64, ToolError> {
///     if divisor == 0.0 {
///         return Err(ToolError::failed("nothing can be divided by 0"));
///     }
///     Ok(dividend / divisor)
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let divide = divide();
/// assert_eq!(divide.spec().description, "Divides two numbers.");
/// let args = serde_json::json!({ "dividend": 1.0, "divisor": 4.0 });
/// assert_eq!(divide.call(args, ToolCx::new("call_1")).await?.text, "0.25");
/// # Ok::<(), ToolError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as tool::Options);
    let item = parse_macro_input!(item as ItemFn);
    tool::expand(&options, item).unwrap_or_else(Error::into_compile_error).into()
}

fn combine(mut all: Error, next: Error) -> Error {
    all.combine(next);
    all
}

/// Returns the text of a page of `docs/` as a string literal, with links that work in rustdoc.
#[doc(hidden)]
#[proc_macro]
pub fn guide(input: TokenStream) -> TokenStream {
    let file = parse_macro_input!(input as LitStr);
    guide::text(&file).map_or_else(Error::into_compile_error, |text| quote::quote!(#text)).into()
}

/// Expands to a test for each page of `docs/errors` in a table, and the constant `CODES` with their names.
///
/// A page ends with a comment, which readers do not see: the body of its test, in which `{{1}}` is its first block of code.
#[doc(hidden)]
#[proc_macro]
pub fn error_pages(input: TokenStream) -> TokenStream {
    let table = parse_macro_input!(input as error_pages::Table);
    error_pages::expand(&table).unwrap_or_else(Error::into_compile_error).into()
}
