//! Bodies of requests whose messages are shared and encoded once.

use proptest::{collection::vec, prelude::*, test_runner::Config};
use serde_json::json;
use superstep::llm::{
    Message, MessageData, Request, ToolCall, ToolSpec,
    media::{Accepts, Media},
    wire::{ReasoningPolicy, WireConfig, WirePolicy},
};

/// A change of a conversation between two requests.
#[derive(Clone, Debug)]
enum Change {
    /// A new message at the end.
    Append(Message),
    /// Another text of a message, if there is one at this place.
    Edit(usize, String),
    /// Another reasoning.
    Think(usize, String),
    /// A summary instead of the messages before this place.
    Compact(usize),
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just("a \"quoted\"\n\u{1F600} text".to_owned()), "[a-c\\\\\" ]{1,8}"]
}

fn call() -> impl Strategy<Value = ToolCall> {
    let arguments =
        prop_oneof![Just("{\"x\": 1}".to_owned()), Just("[1]".to_owned()), Just(" ".to_owned()), text()];
    let name = prop_oneof![Just("add".to_owned()), Just("fs.read 😀".to_owned())];
    ("c[1-3]", name, arguments).prop_map(|(id, name, arguments)| ToolCall::new(id, name, arguments))
}

fn message() -> impl Strategy<Value = Message> {
    let media = any::<bool>().prop_map(|has| {
        has.then(|| Media::new("image/gif", "R0lGODlh").expect("it is one")).into_iter().collect::<Vec<_>>()
    });
    prop_oneof![
        text().prop_map(Message::system),
        text().prop_map(Message::user),
        text().prop_map(Message::synthetic),
        (text(), text(), vec(call(), 0..3)).prop_map(|(content, reasoning, calls)| {
            let message = Message::assistant(content).with_tool_calls(calls);
            message.with(|message| message.reasoning = reasoning)
        }),
        ("c[1-3]", text(), media).prop_map(|(id, content, media)| {
            Message::tool(id, content).with(|message| message.media = media)
        }),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => message().prop_map(Change::Append),
        1 => (0..20_usize, text()).prop_map(|(at, text)| Change::Edit(at, text)),
        1 => (0..20_usize, text()).prop_map(|(at, text)| Change::Think(at, text)),
        1 => (0..20_usize).prop_map(Change::Compact),
    ]
}

fn config() -> impl Strategy<Value = WireConfig> {
    let reasoning = prop_oneof![
        Just(ReasoningPolicy::Never),
        Just(ReasoningPolicy::ToolRound),
        Just(ReasoningPolicy::Always)
    ];
    let arguments = prop_oneof![Just(WirePolicy::Wrap), Just(WirePolicy::Verbatim)];
    (reasoning, arguments, any::<[bool; 3]>()).prop_map(
        |(reasoning, arguments, [alternates, lists, images])| WireConfig {
            reasoning,
            arguments,
            alternates,
            lists_called_tools: lists,
            no_stream_options: false,
            accepts: Accepts { images, ..Accepts::NOTHING },
            ..WireConfig::default()
        },
    )
}

impl Change {
    fn apply(self, messages: &mut Vec<Message>) {
        match self {
            Self::Append(message) => messages.push(message),
            Self::Edit(at, text) => {
                if let Some(message) = messages.get_mut(at) {
                    message.to_mut().content = text;
                }
            }
            Self::Think(at, text) => {
                if let Some(message) = messages.get_mut(at) {
                    *message = message.clone().with(|message| message.reasoning = text);
                }
            }
            Self::Compact(at) => {
                messages.drain(..at.min(messages.len()));
                messages.insert(0, Message::user("summary"));
            }
        }
    }
}

/// Returns a copy that shares nothing.
fn copied(request: &Request) -> Request {
    let copied = |message: &Message| Message::from(MessageData::clone(message));
    Request {
        messages: request.messages.iter().map(copied).collect(),
        tools: request.tools.to_vec().into(),
        ..request.clone()
    }
}

proptest! {
    #![proptest_config(Config { cases: 300, failure_persistence: None, ..Config::default() })]

    #[test]
    fn bodies_of_shared_messages_equal_those_of_copies(
        configs in vec(config(), 1..3),
        changes in vec(change(), 1..20),
        tools in any::<bool>(),
    ) {
        let mut request = Request::default();
        if tools {
            request.tools = [ToolSpec { name: "add".into(), description: "".into(), parameters: json!({}) }].into();
        }
        for change in changes {
            let before = request.clone();
            let bytes = |config: &WireConfig, request: &Request| serde_json::to_string(&config.body(request)).unwrap();
            let old: Vec<String> = configs.iter().map(|config| bytes(config, &before)).collect();
            change.apply(&mut request.messages);
            let fresh = copied(&request);
            prop_assert_eq!(&fresh, &request);
            for (config, old) in configs.iter().zip(old) {
                prop_assert_eq!(bytes(config, &request), bytes(config, &fresh));
                // A change of one request does not reach its clones.
                prop_assert_eq!(bytes(config, &before), old);
            }
        }
    }
}
