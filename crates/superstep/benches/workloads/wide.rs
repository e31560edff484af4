//! Fifteen channels with several reducers; six nodes in a cycle, two of them in parallel.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};
use serde_json::{Map, Value, json};
use superstep::{Cx, END, Log, ReduceError, Reducer, Route, START, State, StateGraph};

use super::{Run, streamed};
use crate::saver::Saver;

/// An object of values of any shape, which are shared, like Python's.
type Dict = BTreeMap<String, Arc<Value>>;
type Any = Arc<Dict>;
type Text = Arc<String>;

/// The write replaces the value unless it is empty; the last of several counts.
enum KeepSome {}

impl<T> Reducer<Option<T>> for KeepSome {
    type Write = Option<T>;

    fn reduce(value: &mut Option<T>, write: Option<T>) -> Result<(), ReduceError> {
        *value = write.or(value.take());
        Ok(())
    }
}

/// The write replaces the value; the last of several counts.
enum KeepNew {}

impl<T> Reducer<T> for KeepNew {
    type Write = T;

    fn reduce(value: &mut T, write: T) -> Result<(), ReduceError> {
        *value = write;
        Ok(())
    }
}

#[derive(State, Clone, Debug, Default)]
struct Wide {
    #[channel(append)]
    messages: Log<Any>,
    #[channel(append)]
    trigger_events: Log<Any>,
    #[channel(with = KeepSome)]
    primary_issue_medium: Option<Text>,
    #[channel(with = KeepNew)]
    autoresponse: Option<Any>,
    #[channel(with = KeepSome)]
    issue: Option<Any>,
    relevant_rules: Option<Arc<Vec<Any>>>,
    memory_docs: Option<Arc<Vec<Any>>>,
    #[channel(append)]
    categorizations: Log<Any>,
    #[channel(append)]
    responses: Log<Any>,
    #[channel(with = KeepSome)]
    user_info: Option<Any>,
    #[channel(with = KeepSome)]
    crm_info: Option<Any>,
    #[channel(with = KeepSome)]
    email_thread_id: Option<Text>,
    #[channel(union)]
    slack_participants: Dict,
    bot_id: Option<Text>,
    #[channel(union)]
    notified_assignees: Dict,
}

#[derive(Route, Clone, Copy)]
enum Next {
    Again,
    Enough,
}

/// A generator of texts of random letters.
#[derive(Clone)]
struct Letters {
    length: usize,
    random: Arc<Mutex<SmallRng>>,
}

impl Letters {
    fn text(&self) -> Text {
        let mut random = self.random.lock().expect("nobody panics while it is locked");
        let letters = (0..self.length).map(|_| char::from(random.random_range(b'a'..=b'z')));
        Text::new(letters.collect())
    }
}

fn all(list: &Log<Any>) -> Vec<Any> {
    list.iter().cloned().collect()
}

fn newest(list: &Log<Any>) -> Any {
    list.last().cloned().unwrap_or_default()
}

async fn one(letters: Letters, state: Wide, _: Cx) -> WideUpdate {
    Wide::update().trigger_events(all(&state.messages)).primary_issue_medium(letters.text())
}

async fn two(state: Wide, _: Cx) -> WideUpdate {
    let last = newest(&state.trigger_events);
    Wide::update().autoresponse(last.clone()).issue(last)
}

async fn three(state: Wide, _: Cx) -> WideUpdate {
    Wide::update().relevant_rules(Arc::new(vec![state.autoresponse.unwrap_or_default()]))
}

async fn four(state: Wide, _: Cx) -> WideUpdate {
    let events = all(&state.trigger_events);
    Wide::update().categorizations(events.clone()).responses(events.clone()).memory_docs(Arc::new(events))
}

async fn five(letters: Letters, state: Wide, _: Cx) -> WideUpdate {
    let last = newest(&state.categorizations);
    Wide::update()
        .user_info(last.clone())
        .crm_info(last.clone())
        .email_thread_id(letters.text())
        .slack_participants((*last).clone())
        .bot_id(letters.text())
        .notified_assignees((*last).clone())
}

async fn six(state: Wide, _: Cx) -> WideUpdate {
    Wide::update().messages(all(&state.responses))
}

/// Creates one message: `outer` objects of `inner` lists of 25 values.
fn seed(outer: usize, inner: usize) -> Any {
    let values = [json!("hi?".repeat(10)), json!(true), json!(1), json!(6_327_816_386_138_i64), Value::Null];
    let list = Value::Array(values.iter().cycle().take(25).cloned().collect());
    let name = |number: usize| number.to_string().repeat(10);
    let object: Map<_, _> = (0..inner).map(|number| (name(number), list.clone())).collect();
    let object = Arc::new(Value::Object(object));
    Arc::new((0..outer).map(|number| (name(number), object.clone())).collect())
}

/// Builds a cycle that runs until there are more than `most` messages; texts are of the same length.
pub(crate) fn run(most: usize, outer: usize, inner: usize, saver: Saver) -> Run {
    let letters = Letters { length: most, random: Arc::new(Mutex::new(SmallRng::seed_from_u64(7))) };
    let mut graph = StateGraph::new("wide");
    let one = graph.add_node_with("one", letters.clone(), one);
    let two = graph.add_node("two", two);
    let three = graph.add_node("three", three);
    let four = graph.add_node("four", four);
    let five = graph.add_node_with("five", letters, five);
    let six = graph.add_node("six", six);
    graph.add_edge(START, one);
    graph.add_edge(one, two);
    graph.add_edge(two, three);
    graph.add_edge(two, four);
    graph.add_join([three, four], five);
    graph.add_edge(five, six);
    let route = move |state: &Wide| if state.messages.len() > most { Next::Enough } else { Next::Again };
    graph.add_conditional_edges(six, route, |route| match route {
        Next::Again => one,
        Next::Enough => END,
    });
    let graph = graph.compile().expect("the graph is whole");
    let input = Wide::update().messages([seed(outer, inner)]);
    streamed(graph, saver, input, |state| state.messages.len() > 300 && state.bot_id.is_some())
}
