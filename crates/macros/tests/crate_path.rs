//! The derives and `#[tool]` use the crate that `crate = path` names, instead of the one in the manifest.

use superstep_graph::{Input, Route, State, View, state::reduce};
use superstep_llm::tool;

/// A crate that re-exports the library, and replaces some of its items, so that the tests detect which ones are used.
mod own {
    pub(crate) use superstep_graph::*;

    /// Replaces a reducer of the library.
    pub(crate) mod state {
        pub(crate) use superstep_graph::state::*;
        use superstep_graph::{ReduceError, Reducer};

        /// Adds twice the written value.
        pub(crate) enum Sum {}

        impl Reducer<i64> for Sum {
            type Write = i64;

            fn reduce(value: &mut i64, write: i64) -> Result<(), ReduceError> {
                *value += 2 * write;
                Ok(())
            }
        }

        pub(crate) mod reducers {
            pub(crate) use superstep_graph::state::reducers::*;

            pub(crate) use super::Sum as sum;
        }
    }

    pub(crate) trait Route: Sized + 'static {
        const ALL: &'static [Self];

        fn index(self) -> usize;
        fn label(self) -> &'static str;
    }

    pub(crate) trait View<S> {
        fn view(state: &S) -> Self;
    }

    pub(crate) mod llm {
        use superstep_llm::__private::schemars::JsonSchema;
        pub(crate) use superstep_llm::*;

        /// Names tools differently.
        pub(crate) struct ToolSpec;

        impl ToolSpec {
            pub(crate) fn of<A: JsonSchema>(name: &str, description: &str) -> superstep_llm::ToolSpec {
                superstep_llm::ToolSpec::of::<A>(format!("own_{name}"), description)
            }
        }
    }
}

#[derive(State, Clone, Debug, Default)]
#[superstep(crate = own)]
struct Chat {
    #[channel(sum)]
    turns: i64,
    question: String,
}

#[derive(Route, Clone, Copy, Debug, PartialEq)]
#[superstep(crate = own)]
enum Next {
    Again,
    Done,
}

#[derive(Input)]
#[input(of = Chat)]
#[superstep(crate = own)]
struct Ask {
    turns: i64,
    question: String,
}

#[derive(View, Debug, PartialEq)]
#[view(of = Chat)]
#[superstep(crate = own)]
struct Turns {
    turns: i64,
}

/// Returns the temperature in a city.
#[tool(crate = own::llm)]
async fn weather(city: String) -> String {
    format!("21 °C in {city}")
}

#[test]
fn a_state_and_its_input_use_the_named_crate() {
    let update = ChatUpdate::from(Ask { turns: 3, question: "Why?".to_owned() });
    let chat = reduce(&Chat::default(), [update]).unwrap();
    assert_eq!((chat.turns, &*chat.question), (6, "Why?"));
}

#[test]
fn routes_and_views_implement_the_traits_of_the_named_crate() {
    assert_eq!(<Next as own::Route>::ALL, [Next::Again, Next::Done]);
    assert_eq!((own::Route::index(Next::Done), own::Route::label(Next::Again)), (1, "Again"));
    let chat = Chat { turns: 2, ..Chat::default() };
    assert_eq!(<Turns as own::View<Chat>>::view(&chat), Turns { turns: 2 });
}

#[tokio::test]
async fn a_tool_uses_the_named_crate() {
    let tool = weather();
    assert_eq!(tool.spec().name, "own_weather");
    let reply = tool.call(serde_json::json!({"city": "Rome"}), superstep_llm::ToolCx::new("c1")).await;
    assert_eq!(reply.unwrap().text, "21 °C in Rome");
}
