//! Many tasks of one worker, each with a graph inside.

use serde::{Deserialize, Serialize};
use superstep::{CompiledGraph, Cx, END, Log, NodeError, Route, START, State, StateGraph};

use super::{Run, streamed};
use crate::saver::Saver;

#[derive(State, Clone, Debug, Default)]
struct Overall {
    subjects: Vec<Vec<char>>,
    #[channel(append)]
    jokes: Log<String>,
}

/// The subject of a joke: letters at first, text after an edit.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Subject {
    Letters(Vec<char>),
    Text(String),
}

impl Default for Subject {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

#[derive(State, Clone, Debug, Default)]
struct Joke {
    subject: Subject,
    jokes: Vec<String>,
}

#[derive(Route, Clone, Copy)]
enum Next {
    Again,
    Enough,
}

async fn edit(state: Joke, _: Cx) -> JokeUpdate {
    let subject = match state.subject {
        Subject::Letters(letters) => format!("{letters:?} - hohoho"),
        Subject::Text(text) => format!("{text} - hohoho"),
    };
    Joke::update().subject(Subject::Text(subject))
}

async fn generate(state: Joke, _: Cx) -> JokeUpdate {
    let Subject::Text(subject) = state.subject else { panic!("a subject is edited first") };
    Joke::update().jokes([format!("Joke about {subject}")])
}

async fn bump(state: Joke, _: Cx) -> JokeUpdate {
    Joke::update().jokes([format!("{} a", state.jokes[0])])
}

fn again(state: &Joke) -> Next {
    if state.jokes[0].ends_with(&" a".repeat(10)) { Next::Enough } else { Next::Again }
}

/// Builds a graph of twelve supersteps.
fn joke() -> CompiledGraph<Joke> {
    let mut graph = StateGraph::new("joke");
    let edit = graph.add_node("edit", edit);
    let generate = graph.add_node("generate", generate);
    let bump = graph.add_node("bump", bump);
    graph.add_edge(START, edit);
    graph.add_edge(edit, generate);
    graph.add_edge(generate, bump);
    graph.add_edge(generate, END);
    graph.add_conditional_edges(bump, again, |route| match route {
        Next::Again => bump,
        Next::Enough => END,
    });
    graph.compile().expect("the graph is whole")
}

/// Builds `subjects` sends, each of 1,000 letters that are 5,000 characters as text.
pub(crate) fn run(subjects: usize, saver: Saver) -> Run {
    let joke = joke();
    let mut graph = StateGraph::new("jokes");
    let generate = graph.add_worker("generate_joke", move |letters: Vec<char>, _: Overall, cx: Cx| {
        let joke = joke.clone();
        async move {
            let told = cx.call(&joke, Joke::update().subject(Subject::Letters(letters))).await?;
            Ok::<_, NodeError>(Overall::update().jokes(told.jokes))
        }
    });
    graph.add_fan_out(START, |state: &Overall| state.subjects.clone(), generate);
    graph.add_edge(generate, END);
    let graph = graph.compile().expect("the graph is whole");
    let letters = |subject: usize| ('a'..='z').cycle().skip(subject).take(1_000).collect::<Vec<_>>();
    let input = Overall::update().subjects((0..subjects).map(letters).collect::<Vec<_>>());
    streamed(graph, saver, input, |state| {
        state.jokes.len() == state.subjects.len() && state.jokes.iter().all(|joke| joke.len() > 5_000)
    })
}
