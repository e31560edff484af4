//! The conversion of a [`Request`] into the body of a chat-completions request.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use serde::{Deserialize, Serialize};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use crate::{
    Message, Request, Role, ToolSpec,
    derived::DerivedFrom,
    messages::media::Accepts,
    openai::message::{Item, Sent, WirePolicy, joined, media_behind, with_media},
};

/// The assistant messages whose reasoning is sent back to the provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningPolicy {
    /// None.
    Never,
    /// Messages after the last message of the user: the model continues the reasoning that led to its calls.
    #[default]
    ToolRound,
    /// All.
    Always,
}

/// The field that carries [`Request::max_tokens`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputLimit {
    /// `max_tokens`, which nearly every server supports.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`, which OpenAI's reasoning models require.
    MaxCompletionTokens,
}

/// The differences of a provider's wire format.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WireConfig {
    /// The model's name.
    pub model: String,
    /// The treatment of broken argument text.
    pub arguments: WirePolicy,
    /// The reasoning that is sent back.
    pub reasoning: ReasoningPolicy,
    /// `true` if the text of answers has the reasoning in `<think>` tags, to be split off; see
    /// [`split_thinking`](crate::wire::split_thinking).
    pub think_tags: bool,
    /// `true` if `[DONE]` after a text ends the answer even without a finish reason. Otherwise such an answer
    /// counts as truncated, and the request is sent again.
    pub done_finishes: bool,
    /// `true` to merge consecutive messages of one side, because the chat templates of some models require
    /// strict alternation.
    pub alternates: bool,
    /// `true` to list the tools called in the conversation, with a `tool_choice` of `none`, in a request
    /// without tools. Some servers reject calls of tools that are not listed.
    pub lists_called_tools: bool,
    /// `true` to leave out `stream_options`, which requests the tokens of an answer: some servers reject it, such as Cohere's.
    /// They may then report none.
    pub no_stream_options: bool,
    /// The media types that are sent. Those of tool results become parts of a user message after the results
    /// of a round, since results themselves are texts.
    pub accepts: Accepts,
    /// The name of the output limit.
    pub output_limit: OutputLimit,
    /// The temperature of requests without one.
    pub temperature: Option<f32>,
    /// The default maximum of output tokens.
    pub max_tokens: Option<u32>,
    /// Further fields of the body, such as `seed`. They must differ from the standard fields; see
    /// [`WireConfig::conflict`]. Threads store them with the other [settings](WireConfig::settings), so keys do not belong here.
    pub extra: BTreeMap<String, Value>,
}

const OWN_FIELDS: [&str; 9] = [
    "model",
    "messages",
    "tools",
    "response_format",
    "stream",
    "stream_options",
    "temperature",
    "max_tokens",
    "max_completion_tokens",
];

impl WireConfig {
    /// Returns the first extra field that would write a field twice.
    pub fn conflict(&self) -> Option<&str> {
        let chooses = self.lists_called_tools.then_some("tool_choice");
        let mut fields = self.extra.keys().map(String::as_str);
        fields.find(|field| OWN_FIELDS.contains(field) || chooses == Some(*field))
    }

    /// Returns the parameters of requests that have none of their own: see [`ChatModel::settings`](crate::ChatModel::settings).
    pub fn settings(&self) -> BTreeMap<String, Value> {
        // The shortest decimal form, not that of the `f64` nearest to the `f32`.
        let temperature = self.temperature.and_then(|number| number.to_string().parse::<f64>().ok());
        let temperature = temperature.map(|number| ("temperature".to_owned(), number.into()));
        let max_tokens = self.max_tokens.map(|number| ("max_tokens".to_owned(), number.into()));
        let extra = self.extra.iter().map(|(name, value)| (name.clone(), value.clone()));
        temperature.into_iter().chain(max_tokens).chain(extra).collect()
    }

    /// Builds the body of a streamed request. Equal requests give equal bytes, and a longer conversation
    /// begins with the bytes of the shorter one, as prompt caches require.
    ///
    /// Messages are sent without the fields of their [origin](crate::MessageData::origin), which are valid at one server only.
    pub fn body<'a>(&'a self, request: &'a Request) -> impl Serialize + Send + 'a {
        self.body_of(request, false, false)
    }

    /// Builds the body of a request whose origins are valid at the server, possibly without `stream_options`.
    #[cfg(feature = "openai")]
    pub(crate) fn body_with_origins<'a>(
        &'a self,
        request: &'a Request,
        no_stream_options: bool,
    ) -> impl Serialize + Send + 'a {
        self.body_of(request, true, no_stream_options)
    }

    fn body_of<'a>(
        &'a self,
        request: &'a Request,
        origin: bool,
        no_stream_options: bool,
    ) -> impl Serialize + Send + 'a {
        let messages = self.messages(request, origin);
        let only_called = self.lists_called_tools && request.tools.is_empty();
        let called = if only_called { self.called(request) } else { BTreeSet::new() };
        let tool_choice = (!called.is_empty()).then_some("none");
        let is_empty = request.tools.is_empty() && called.is_empty();
        let tools = if only_called {
            Tools::Called(called.into_iter().map(WireTool::named).collect())
        } else {
            Tools::Offered(&request.tools.derived::<OfferedTools>().0)
        };
        let most = request.max_tokens.or(self.max_tokens);
        let (max_tokens, max_completion_tokens) = match self.output_limit {
            OutputLimit::MaxTokens => (most, None),
            OutputLimit::MaxCompletionTokens => (None, most),
        };
        Body {
            model: &self.model,
            messages,
            tools: (!is_empty).then_some(tools),
            tool_choice,
            response_format: request.output_schema.as_ref().map(ResponseFormat::of),
            temperature: request.temperature.or(self.temperature),
            max_tokens,
            max_completion_tokens,
            stream: true,
            stream_options: (!no_stream_options && !self.no_stream_options)
                .then_some(StreamOptions { include_usage: true }),
            extra: &self.extra,
        }
    }

    /// Returns the messages of the body. A message that is sent on its own is encoded once, for the first body
    /// that has it.
    fn messages<'a>(&self, request: &'a Request, origin: bool) -> Vec<Sent<'a>> {
        // A synthetic user message belongs to the model's current round.
        let of_the_user = |message: &Message| message.role == Role::User && !message.synthetic;
        let last_user = request.messages.iter().rposition(of_the_user);
        let items = request.messages.iter().enumerate().flat_map(|(at, message)| {
            let reasoning = match self.reasoning {
                ReasoningPolicy::Never => false,
                ReasoningPolicy::ToolRound => last_user.is_none_or(|user| at > user),
                ReasoningPolicy::Always => true,
            };
            let media = media_behind(&request.messages, at, self.accepts).map(Item::Media);
            let shown = with_media(message, self.accepts).map(Item::Media);
            let shown = shown.unwrap_or(Item::Message { message, reasoning, origin });
            [shown].into_iter().chain(media)
        });
        if !self.alternates {
            return items.map(|item| item.sent(self.arguments)).collect();
        }
        let turns = items.fold(Vec::<Vec<Item<'a>>>::new(), |mut turns, next| {
            match turns.last_mut() {
                Some(turn) if turn.last().is_some_and(|last| last.is_joined_by(&next)) => turn.push(next),
                _ => turns.push(vec![next]),
            }
            turns
        });
        turns.into_iter().map(|turn| joined(turn, self.arguments)).collect()
    }

    /// Returns the names of the tools that a conversation calls.
    fn called(&self, request: &Request) -> BTreeSet<String> {
        let calls = request.messages.iter().flat_map(|message| &message.tool_calls);
        calls.map(|call| self.arguments.name(&call.name).into_owned()).collect()
    }
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Sent<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Tools<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<ResponseFormat<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(flatten)]
    extra: &'a BTreeMap<String, Value>,
}

/// Without `strict`, which rejects schemas with optional fields; the caller validates the answer.
#[derive(Serialize)]
struct ResponseFormat<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    json_schema: NamedSchema<'a>,
}

#[derive(Serialize)]
struct NamedSchema<'a> {
    name: &'static str,
    schema: &'a Value,
}

impl<'a> ResponseFormat<'a> {
    fn of(schema: &'a Value) -> Self {
        Self { kind: "json_schema", json_schema: NamedSchema { name: "reply", schema } }
    }
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// The tools of a body.
#[derive(Serialize)]
#[serde(untagged)]
enum Tools<'a> {
    Offered(&'a RawValue),
    Called(Vec<WireTool<'static>>),
}

/// The JSON of offered tools.
struct OfferedTools(Box<RawValue>);

impl DerivedFrom<[ToolSpec]> for OfferedTools {
    fn derive(tools: &[ToolSpec]) -> Self {
        let tools: Vec<_> = tools.iter().map(WireTool::of).collect();
        Self(to_raw_value(&tools).expect("what is sent has a JSON form"))
    }
}

#[derive(Serialize)]
struct WireTool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: Cow<'a, ToolSpec>,
}

impl<'a> WireTool<'a> {
    fn of(spec: &'a ToolSpec) -> Self {
        Self { kind: "function", function: Cow::Borrowed(spec) }
    }

    /// Creates a tool with a name only.
    fn named(name: String) -> Self {
        let parameters = serde_json::json!({ "type": "object", "properties": {} });
        Self {
            kind: "function",
            function: Cow::Owned(ToolSpec { name, description: String::new(), parameters }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{ToolCall, messages::media::Media};

    fn body(config: &WireConfig, messages: Vec<Message>) -> Value {
        serde_json::to_value(config.body(&Request { messages, ..Request::default() })).unwrap()
    }

    fn arguments(policy: WirePolicy, text: &str) -> Value {
        let config = WireConfig { arguments: policy, ..WireConfig::default() };
        let message = Message::assistant("").with_tool_calls([ToolCall::new("c1", "echo", text)]);
        body(&config, vec![message])["messages"][0]["tool_calls"][0]["function"]["arguments"].clone()
    }

    #[test]
    fn the_settings_have_all_parameters_of_a_request() {
        let extra = [("seed".to_owned(), json!(7)), ("top_p".to_owned(), json!(0.5))].into();
        let config =
            WireConfig { temperature: Some(0.2), max_tokens: Some(9), extra, ..WireConfig::default() };
        assert_eq!(
            json!(config.settings()),
            json!({"temperature": 0.2, "max_tokens": 9, "seed": 7, "top_p": 0.5})
        );
    }

    #[test]
    fn a_plain_request_has_only_the_fields_it_needs() {
        let config = WireConfig { model: "m".into(), ..WireConfig::default() };
        assert_eq!(
            serde_json::to_string(&config.body(&Request {
                messages: vec![Message::system("be kind"), Message::user("hi").with_id("m1")],
                temperature: Some(0.7),
                ..Request::default()
            }))
            .unwrap(),
            r#"{"model":"m","messages":[{"role":"system","content":"be kind"},{"role":"user","content":"hi"}],"temperature":0.7,"stream":true,"stream_options":{"include_usage":true}}"#
        );
    }

    #[test]
    fn tools_limits_and_extra_fields_are_written() {
        let spec = ToolSpec {
            name: "echo".into(),
            description: "says it".into(),
            parameters: json!({"type":"object"}),
        };
        let request = Request { tools: [spec].into(), max_tokens: Some(9), ..Request::default() };
        let mut config =
            WireConfig { output_limit: OutputLimit::MaxCompletionTokens, ..WireConfig::default() };
        config.extra.insert("seed".into(), json!(1));
        let body = serde_json::to_value(config.body(&request)).unwrap();
        assert_eq!(body["max_completion_tokens"], 9);
        assert_eq!(body["seed"], 1);
        assert_eq!(
            body["tools"],
            json!([{"type":"function","function":{"name":"echo","description":"says it","parameters":{"type":"object"}}}])
        );
        config.extra.insert("tool_choice".into(), json!("required"));
        assert_eq!(config.conflict(), None);
        assert_eq!(WireConfig { lists_called_tools: true, ..config.clone() }.conflict(), Some("tool_choice"));
        config.extra.insert("stream".into(), json!(false));
        assert_eq!(config.conflict(), Some("stream"));
    }

    #[test]
    fn a_message_of_calls_only_has_null_content() {
        let messages = vec![
            Message::assistant("").with_tool_calls([ToolCall::new("c1", "add", "{\"a\": 2}")]),
            Message::tool("c1", ""),
            Message::assistant(""),
        ];
        assert_eq!(
            body(&WireConfig::default(), messages)["messages"],
            json!([
                {"role":"assistant","content":null,"tool_calls":[
                    {"id":"c1","type":"function","function":{"name":"add","arguments":"{\"a\": 2}"}}]},
                {"role":"tool","tool_call_id":"c1","content":""},
                {"role":"assistant","content":""},
            ])
        );
    }

    #[test]
    fn consecutive_messages_of_one_role_are_merged_if_configured() {
        let config = WireConfig { alternates: true, ..WireConfig::default() };
        let call = Message::assistant("").with_tool_calls([ToolCall::new("c1", "add", "{}")]);
        let messages = vec![
            Message::system("be kind"),
            Message::user("a"),
            Message::user("b"),
            Message::assistant("so"),
            call,
            Message::tool("c1", "1"),
            Message::tool("c2", "2"),
            Message::assistant(""),
            Message::assistant("end"),
            Message::user(""),
        ];
        let call = json!({"id":"c1","type":"function","function":{"name":"add","arguments":"{}"}});
        assert_eq!(
            body(&config, messages.clone())["messages"],
            json!([
                {"role":"system","content":"be kind"},
                {"role":"user","content":"a\n\nb"},
                {"role":"assistant","content":"so","tool_calls":[call]},
                {"role":"tool","tool_call_id":"c1","content":"1"},
                {"role":"tool","tool_call_id":"c2","content":"2"},
                {"role":"assistant","content":"end"},
                {"role":"user","content":""},
            ])
        );
        assert_eq!(body(&WireConfig::default(), messages)["messages"].as_array().unwrap().len(), 10);
    }

    #[test]
    fn media_of_a_round_follow_its_results_for_models_that_take_them() {
        let media = |mime: &str, data: &str| Media::new(mime, data).unwrap();
        let (gif, wav) = (media("image/gif", "R0lGODlh"), media("audio/wav", "UklGRi4uLi5XQVZF"));
        let results = ["c1", "c2"].map(|id| {
            Message::tool(id, "[both]").with(|result| result.media = vec![gif.clone(), wav.clone()])
        });
        let calls = ["c1", "c2"].map(|id| ToolCall::new(id, "look", "{}"));
        let [one, two] = results;
        let messages = vec![
            Message::user("go"),
            Message::assistant("").with_tool_calls(calls),
            one,
            two,
            Message::user("and?"),
            Message::assistant("a cat"),
        ];
        let sent =
            |config: WireConfig| body(&config, messages.clone())["messages"].as_array().unwrap().clone();
        let plain = sent(WireConfig::default());
        assert_eq!((plain.len(), &plain[2]["content"]), (6, &json!("[both]")));
        assert!(!json!(plain).to_string().contains("R0lGODlh"));

        let of = |id: &str| {
            let text = format!(
                "[This is from a tool, not from the user: the images, audio and files of the result of call {id}]"
            );
            json!({"type": "text", "text": text})
        };
        let image = json!({"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lGODlh"}});
        let sound =
            json!({"type": "input_audio", "input_audio": {"data": "UklGRi4uLi5XQVZF", "format": "wav"}});
        let all = Accepts { images: true, audio: true, pdf: false };
        let seen = sent(WireConfig { accepts: all, ..WireConfig::default() });
        assert_eq!((&seen[..4], &seen[5..]), (&plain[..4], &plain[4..]));
        let wanted = json!([of("c1"), image, sound, of("c2"), image, sound]);
        assert_eq!(seen[4], json!({"role": "user", "content": wanted}));
        let images = Accepts { images: true, ..Accepts::NOTHING };
        let seen = sent(WireConfig { accepts: images, alternates: true, ..WireConfig::default() });
        let wanted = json!([of("c1"), image, of("c2"), image, {"type": "text", "text": "and?"}]);
        assert_eq!((&seen[4], seen.len()), (&json!({"role": "user", "content": wanted}), 6));
    }

    #[test]
    fn a_request_without_tools_lists_called_tools_if_configured() {
        let messages = || {
            let calls = ["b", "a", "b"].map(|name| ToolCall::new(name, name, "{}"));
            vec![Message::user("go"), Message::assistant("").with_tool_calls(calls)]
        };
        let lists = WireConfig { lists_called_tools: true, ..WireConfig::default() };
        let listed = body(&lists, messages());
        let tool = |name| json!({"type":"function","function":{"name":name,"description":"","parameters":{"type":"object","properties":{}}}});
        assert_eq!(listed["tools"], json!([tool("a"), tool("b")]));
        assert_eq!(listed["tool_choice"], "none");
        for unlisted in [body(&WireConfig::default(), messages()), body(&lists, vec![Message::user("go")])] {
            assert_eq!((unlisted.get("tools"), unlisted.get("tool_choice")), (None, None));
        }
    }

    #[test]
    fn broken_argument_text_is_wrapped_so_that_the_wire_carries_json() {
        assert_eq!(arguments(WirePolicy::Wrap, "{x:1"), r#"{"_raw":"{x:1"}"#);
        assert_eq!(arguments(WirePolicy::Wrap, "[1]"), r#"{"_raw":"[1]"}"#);
        assert_eq!(arguments(WirePolicy::Wrap, ""), "{}");
        assert_eq!(arguments(WirePolicy::Wrap, "{ \"x\": 1.0 }"), "{ \"x\": 1.0 }");
        assert_eq!(arguments(WirePolicy::Verbatim, "{x:1"), "{x:1");
    }

    #[test]
    fn a_name_that_no_tool_can_have_is_written_as_one() {
        let name = |arguments, name: &str| {
            let config = WireConfig { arguments, ..WireConfig::default() };
            let message = Message::assistant("").with_tool_calls([ToolCall::new("c1", name, "{}")]);
            body(&config, vec![message])["messages"][0]["tool_calls"][0]["function"]["name"].clone()
        };
        assert_eq!(name(WirePolicy::Wrap, "read_file-2"), "read_file-2");
        assert_eq!(name(WirePolicy::Wrap, "fs.read 😀"), "fs_read__");
        assert_eq!(name(WirePolicy::Wrap, ""), "_");
        assert_eq!(name(WirePolicy::Wrap, &"é".repeat(65)), "_".repeat(64));
        assert_eq!(name(WirePolicy::Verbatim, "fs.read"), "fs.read");
    }

    #[test]
    fn reasoning_goes_back_as_the_policy_says() {
        let thinking = |text: &str| Message::assistant("a").with(|message| message.reasoning = text.into());
        let messages = vec![Message::user("1"), thinking("old"), Message::user("2"), thinking("new")];
        let sent = |reasoning| {
            let config = WireConfig { reasoning, ..WireConfig::default() };
            let body = body(&config, messages.clone());
            [1, 3].map(|at| body["messages"][at].get("reasoning_content").cloned())
        };
        assert_eq!(sent(ReasoningPolicy::Never), [None, None]);
        assert_eq!(sent(ReasoningPolicy::ToolRound), [None, Some(json!("new"))]);
        assert_eq!(sent(ReasoningPolicy::Always), [Some(json!("old")), Some(json!("new"))]);
    }
}
