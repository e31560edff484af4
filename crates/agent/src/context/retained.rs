//! The message with the texts that stay of messages that are left out, word for word.
//!
//! Start at [`Keeper`].

use std::collections::BTreeSet;

use superstep_llm::{Message, Role, ToolCall};

use super::{instructions::LOADED, meter::Meter, shown::is_of_user};
use crate::{
    config::{
        KeptResults, Pin,
        pins::{closed, lists},
        prompts,
    },
    state::{AddedKind, Messages},
};

/// Selects the texts that stay of a conversation.
pub(super) struct Keeper<'a> {
    meter: Meter<'a>,
    messages: &'a Messages,
    pins: Vec<&'a Pin>,
}

impl<'a> Keeper<'a> {
    pub(super) fn new(meter: Meter<'a>, messages: &'a Messages) -> Self {
        let mut pins: Vec<&Pin> = meter.pins().iter().collect();
        pins.sort_by_key(|pin| pin.kind);
        Self { meter, messages, pins }
    }

    /// Returns the text that stays if the messages before `start` are left out, except the one at `stays`; `None` for none.
    pub(super) fn text(&self, start: usize, stays: Option<usize>) -> Option<String> {
        let keep = &self.meter.config.keep;
        let mut text = lists(self.within(keep.pins_share, self.pins.iter().copied(), |pin| &pin.text));
        let (replacing, other): (Vec<_>, Vec<_>) = self.guidance(start).partition(|(replaces, _)| *replaces);
        let other = self.within(keep.results_share, other.into_iter(), |(_, message)| &message.content);
        for (_, message) in replacing.into_iter().chain(other) {
            text.push_str(&format!("\n{}\n", closed(&message.content)));
        }
        if !keep.results.is_empty() {
            let results = self.within(keep.results_share, self.results(start), |(_, result)| &result.content);
            for (call, result) in results.into_iter().rev() {
                let (name, arguments) = (&call.name, closed(&call.arguments));
                text.push_str(&format!(
                    "\n<result of=\"{name}\" arguments={arguments}>\n{}\n</result>\n",
                    closed(&result.content)
                ));
            }
        }
        if keep.user_messages > 0.0 {
            let places = (0..start).rev().filter(|place| Some(*place) != stays);
            let said = places.map(|place| &self.messages[place]).filter(|message| is_of_user(message));
            let said = self.within(keep.user_messages, said, |message| &message.content);
            if !said.is_empty() {
                text.push_str("\nThe user's earlier messages, the oldest first:\n");
            }
            for message in said.into_iter().rev() {
                let media = match message.media.len() {
                    0 => String::new(),
                    media => format!("\n{}", prompts::media_left_out(media)),
                };
                let content = closed(&message.content);
                text.push_str(&format!("<user_message>\n{content}{media}\n</user_message>\n"));
            }
        }
        Some(text).filter(|text| !text.is_empty())
    }

    /// Returns the number of pins for which there is no room.
    pub(super) fn pins_left_out(&self) -> u64 {
        let share = self.meter.config.keep.pins_share;
        (self.pins.len() - self.within(share, self.pins.iter().copied(), |pin| &pin.text).len()) as u64
    }

    /// Returns the first of some texts that fit into a share of the window. One that is too long for the rest of it is left out.
    fn within<T>(&self, share: f64, all: impl Iterator<Item = T>, text: impl Fn(&T) -> &str) -> Vec<T> {
        let mut room = self.meter.config.of_window(share);
        let fits = |item: &T| match room.checked_sub(self.meter.text(text(item))) {
            Some(rest) => {
                room = rest;
                true
            }
            None => false,
        };
        all.filter(fits).collect()
    }

    /// Returns the messages with instructions and skills before `start`, each the newest of its file or skill, and whether it replaces
    /// a text of the system prompt, which would count again without it.
    fn guidance(&self, start: usize) -> impl Iterator<Item = (bool, &'a Message)> {
        let guidance = self.meter.guidance();
        guidance.newest_added().filter_map(move |added| {
            let place = self.messages.position(&added.id).filter(|place| *place < start)?;
            let replaces =
                added.kind != AddedKind::Skill && guidance.files.iter().any(|file| file.path == added.of);
            Some((replaces, &self.messages[place]))
        })
    }

    /// Returns the results of tools that stay, of calls before `start`, newest first.
    fn results(&self, start: usize) -> impl Iterator<Item = (&'a ToolCall, &'a Message)> {
        let (messages, kept) = (self.messages, &self.meter.config.keep.results);
        let mut seen = BTreeSet::new();
        let groups = (0..messages.len()).rev().map(move |place| (place, &messages[place]));
        let calls = groups
            .flat_map(|(place, message)| message.tool_calls.iter().rev().map(move |call| (place, call)));
        calls.filter_map(move |(place, call)| {
            let of = match kept.get(&call.name)? {
                KeptResults::Latest => "",
                KeptResults::Each => &call.arguments,
            };
            let results = (place + 1..messages.len()).map(|place| &messages[place]);
            let result = results
                .take_while(|result| result.role == Role::Tool)
                .find(|result| result.tool_call_id == call.id && !result.failed)
                .filter(|result| result.content != LOADED)?;
            // A later result, which is still sent, replaces it too.
            (seen.insert((&call.name, of)) && place < start).then_some((call, result))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use futures::stream;
    use superstep_graph::{MemoryCheckpointer, State as _};
    use superstep_llm::tokens::Estimate;
    use superstep_llm::{ChatModel, Delta, FinishReason, Message, Request, ResponseStream, ToolCall};

    use crate::{
        Agent, AgentState, ReactConfig,
        config::{ContextBudget, Keep, Pin, PinKind, PinSource},
    };

    /// A model that stores its requests, and whose summaries forget everything.
    #[derive(Default)]
    struct Forgets(Mutex<Vec<Vec<String>>>);

    impl ChatModel for Forgets {
        fn name(&self) -> &str {
            "forgets"
        }

        fn stream(&self, request: Request) -> ResponseStream<'_> {
            let texts: Vec<_> = request.messages.iter().map(|message| message.content.clone()).collect();
            let text = if texts.last().is_some_and(|text| text.contains("<conversation>")) {
                "We talked."
            } else {
                self.0.lock().unwrap().push(texts);
                "ok"
            };
            Box::pin(stream::iter([Ok(Delta::Text(text.to_owned())), Ok(Delta::Finish(FinishReason::Stop))]))
        }
    }

    fn agent(model: &Arc<Forgets>, keep: Keep) -> Agent {
        let mut config = ReactConfig::default();
        config.context.window = Some(2_000);
        config.context.budget = ContextBudget::Tokens(500);
        config.context.keep = keep;
        let store = MemoryCheckpointer::new();
        Agent::builder(model.clone()).config(config).counter(Estimate).checkpointer(store).build().unwrap()
    }

    fn last(model: &Forgets) -> Vec<String> {
        model.0.lock().unwrap().last().unwrap().clone()
    }

    #[tokio::test]
    async fn pins_and_messages_of_the_user_stay_when_all_else_is_forgotten() {
        let model = Arc::new(Forgets::default());
        let configured = Pin { source: PinSource::Config, ..Pin::new(PinKind::Rule, "Answer in French.") };
        let keep = Keep { pins: vec![configured], ..Keep::recommended() };
        let agent = agent(&model, keep);
        let thread = agent.thread("t");
        thread.ask("The code word is </kept> lantern.").await.unwrap();
        let first = last(&model);
        assert!(
            first[first.len() - 2].contains("Pinned: valid from now on") && first.len() == 2,
            "{first:?}"
        );
        let goal = |text| AgentState::pin([Pin::new(PinKind::Goal, text).with_id("goal")]);
        let stored = agent.graph().thread("t");
        stored.update(goal("Release on Monday.")).await.unwrap();
        stored.update(goal("Release\non Friday.")).await.unwrap();
        for nth in 0..6 {
            thread.ask(&format!("{nth} {}", "filler ".repeat(150))).await.unwrap();
        }
        let sent = last(&model);
        let kept = sent.iter().position(|text| text.starts_with("<kept>\nKept word for word")).unwrap();
        assert_eq!(
            sent[kept],
            "<kept>\nKept word for word; other earlier messages are left out.\n\nRules:\n- Answer in French.\n\n\
             Goals:\n- Release\n  on Friday.\n\nThe user's earlier messages, the oldest first:\n<user_message>\n\
             The code word is <\\/kept> lantern.\n</user_message>\n</kept>"
        );
        assert!(sent.iter().all(|text| !text.contains("Monday")), "{sent:?}");
        assert!(stored.replay().run().await.unwrap().divergence.is_none());
        // The pin has no message in a request that begins with what is kept.
        let state = stored.state().await.unwrap().values;
        assert!(state.context.summary.is_some() && state.context.carried.is_some());
        stored.update(state.unpin(["goal".to_owned()])).await.unwrap();
        thread.ask("on").await.unwrap();
        assert!(last(&model).iter().any(|text| text.contains("No longer valid")), "{:?}", last(&model));
        for _ in 0..3 {
            thread.ask(&"filler ".repeat(150)).await.unwrap();
        }
        assert!(last(&model).iter().all(|text| !text.contains("Friday")), "{:?}", last(&model));
    }

    #[tokio::test]
    async fn pins_have_a_share_of_the_window_and_rules_come_first() {
        let model = Arc::new(Forgets::default());
        let agent = agent(&model, Keep::default());
        let facts = (0..60).map(|nth| Pin::new(PinKind::Fact, format!("Room {nth} is on floor {nth}.")));
        let pins = facts.chain([Pin::new(PinKind::Rule, "Never push.")]);
        let stored = agent.graph().thread("t");
        stored.run(agent.input("hi").pins(pins.collect::<Vec<_>>())).await.unwrap();
        for _ in 0..3 {
            agent.thread("t").ask(&"filler ".repeat(150)).await.unwrap();
        }
        let carried = stored.state().await.unwrap().values.context.carried.unwrap();
        assert!(
            carried.contains("Never push.") && carried.contains("Room 0 ") && !carried.contains("Room 59 ")
        );
        assert!(!carried.contains("earlier messages"), "only pins are kept by default: {carried}");
    }

    #[tokio::test]
    async fn the_latest_list_and_each_skill_stay() {
        let model = Arc::new(Forgets::default());
        let agent = agent(&model, Keep::recommended());
        let thread = agent.thread("t");
        thread.ask("plan").await.unwrap();
        let stored = agent.graph().thread("t");
        let called = |id: &str, tool: &str, arguments: &str, result: &str| {
            let call = ToolCall::new(id, tool, arguments);
            [Message::assistant("").with_tool_calls([call]), Message::tool(id, result)]
        };
        let messages = [
            called("c1", "todo", r#"{"items":1}"#, "[ ] read"),
            called("c2", "skill", r#"{"name":"release"}"#, "Tag first."),
            called("c3", "skill", r#"{"name":"review"}"#, "Read twice."),
            called("c4", "todo", r#"{"items":2}"#, "[x] read"),
            called("c5", "shell", "{}", &"a secret ".repeat(200)),
        ];
        let messages: Vec<_> = messages.into_iter().flatten().chain([Message::assistant("ok")]).collect();
        stored.update(AgentState::update().messages(messages)).await.unwrap();
        thread.run(agent.input("go on").compact(true)).await.unwrap();
        let kept = last(&model).into_iter().find(|text| text.starts_with("<kept>")).unwrap();
        let results = "\n<result of=\"skill\" arguments={\"name\":\"release\"}>\nTag first.\n</result>\n\n\
                       <result of=\"skill\" arguments={\"name\":\"review\"}>\nRead twice.\n</result>\n\n\
                       <result of=\"todo\" arguments={\"items\":2}>\n[x] read\n</result>\n";
        assert!(kept.contains(results) && !kept.contains("[ ] read") && !kept.contains("secret"), "{kept}");
    }
}
