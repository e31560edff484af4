//! The answers of a scripted model, in the short forms of the scenarios.

mod short;

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

/// The answers of a model, one per request.
///
/// A [`WireServer`](crate::wire::WireServer) sends them over loopback, a
/// [`ScriptedModel`](crate::scripted::ScriptedModel) streams them without a network. Both process every
/// answer with the same chunk reader, so that a scenario can run at either level.
/// # Example
/// ```
/// use superstep_testing::script::{Answer, Script, call, txt};
///
/// let script = Script::new([
///     call("c1", "echo", r#"{"x":"1"}"#),
///     Answer::stream().text(["do", "ne"]).end("stop").usage(5, 2).done(),
///     txt("bye"),
/// ]);
/// assert_eq!(script.answers.len(), 3);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// The answers; request k gets the k-th.
    pub answers: Vec<Answer>,
}

impl Script {
    /// Creates a script of these answers.
    pub fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self { answers: answers.into_iter().collect() }
    }
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Status 200 and a stream of events.
    Stream {
        /// The pieces, in order.
        pieces: Vec<Piece>,
        /// The split of the bytes into network reads.
        reads: Reads,
    },
    /// Any other status.
    Http {
        /// The status.
        status: u16,
        /// Headers with lower-case names.
        headers: BTreeMap<String, String>,
        /// The body.
        body: String,
    },
    /// The connection is closed without an answer.
    NoConnection,
}

/// One event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// `data: …` and a blank line.
    Data(String),
    /// A pause of this duration.
    Delay(Duration),
    /// An endless pause with the connection open.
    Stall,
    /// The connection breaks.
    Cut,
}

/// The split of a streamed answer's bytes into network reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// One read per event.
    #[default]
    PerEvent,
    /// Cut at these byte positions only.
    At(Vec<usize>),
    /// One byte at a time.
    Bytewise,
}

/// Creates `TXT`: a text, finish reason `stop`, `[DONE]`.
pub fn txt(text: &str) -> Answer {
    Answer::stream().text([text]).end("stop").done()
}

/// Creates `CALL`: one tool call, finish reason `tool_calls`, `[DONE]`.
pub fn call(id: &str, name: &str, arguments: &str) -> Answer {
    calls([(id, name, arguments)])
}

/// Creates `CALLS`: tool calls of (id, name, arguments), finish reason `tool_calls`, `[DONE]`.
pub fn calls<'a>(calls: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>) -> Answer {
    let answer = calls
        .into_iter()
        .enumerate()
        .fold(Answer::stream(), |answer, (at, (id, name, arguments))| answer.call(at, id, name, [arguments]));
    answer.end("tool_calls").done()
}

/// Creates `HTTP`: a status with headers and a body.
pub fn http(status: u16, headers: &[(&str, &str)], body: &str) -> Answer {
    let headers = headers.iter().map(|(name, value)| (name.to_lowercase(), value.to_string())).collect();
    Answer::Http { status, headers, body: body.to_owned() }
}

impl Answer {
    /// Creates an empty stream.
    pub fn stream() -> Self {
        Self::Stream { pieces: Vec::new(), reads: Reads::default() }
    }

    /// Creates a stream of the events of `text`, each `data: …` and a blank line.
    pub fn sse(text: &str) -> Self {
        text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).fold(Self::stream(), Self::data)
    }

    /// Adds `T`: pieces of text.
    #[must_use]
    pub fn text<'a>(self, pieces: impl IntoIterator<Item = &'a str>) -> Self {
        pieces.into_iter().enumerate().fold(self, |answer, (at, text)| {
            let role = if at == 0 { r#""role":"assistant","# } else { "" };
            answer.chunk(&format!(r#"{{{role}"content":{}}}"#, quoted(text)), None)
        })
    }

    /// Adds `K`: a piece of reasoning.
    #[must_use]
    pub fn reasoning(self, text: &str) -> Self {
        self.chunk(&format!(r#"{{"reasoning_content":{}}}"#, quoted(text)), None)
    }

    /// Adds `C`: a tool call whose arguments arrive in pieces.
    #[must_use]
    pub fn call<'a>(
        self,
        index: usize,
        id: &str,
        name: &str,
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let (id, name) = (quoted(id), quoted(name));
        let opened = self.chunk(
            &format!(
                r#"{{"tool_calls":[{{"index":{index},"id":{id},"type":"function","function":{{"name":{name},"arguments":""}}}}]}}"#
            ),
            None,
        );
        arguments.into_iter().fold(opened, |answer, text| answer.arguments(index, text))
    }

    /// Adds a further piece of the arguments of the call at `index`.
    #[must_use]
    pub fn arguments(self, index: usize, text: &str) -> Self {
        let text = quoted(text);
        self.chunk(
            &format!(r#"{{"tool_calls":[{{"index":{index},"function":{{"arguments":{text}}}}}]}}"#),
            None,
        )
    }

    /// Adds `END`: a finish reason.
    #[must_use]
    pub fn end(self, reason: &str) -> Self {
        self.chunk("{}", Some(reason))
    }

    /// Adds `U`: usage, in a chunk without choices.
    #[must_use]
    pub fn usage(self, prompt: u64, completion: u64) -> Self {
        let total = prompt + completion;
        self.data(&format!(
            r#"{{"id":"cc-1","object":"chat.completion.chunk","created":0,"model":"m","choices":[],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{total}}}}}"#
        ))
    }

    /// Adds `DONE`.
    #[must_use]
    pub fn done(self) -> Self {
        self.data("[DONE]")
    }

    /// Adds `CUT`: the connection breaks.
    #[must_use]
    pub fn cut(self) -> Self {
        self.piece(Piece::Cut)
    }

    /// Adds an endless pause with the connection open.
    #[must_use]
    pub fn stall(self) -> Self {
        self.piece(Piece::Stall)
    }

    /// Adds a pause of `ms` milliseconds.
    #[must_use]
    pub fn delay(self, ms: u64) -> Self {
        self.piece(Piece::Delay(Duration::from_millis(ms)))
    }

    /// Adds one chunk with this delta, a JSON text.
    #[must_use]
    pub fn chunk(self, delta: &str, finish: Option<&str>) -> Self {
        let finish = finish.map_or("null".to_owned(), quoted);
        self.data(&format!(
            r#"{{"id":"cc-1","object":"chat.completion.chunk","created":0,"model":"m","choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}"#
        ))
    }

    /// Adds one event with any payload.
    #[must_use]
    pub fn data(self, payload: &str) -> Self {
        self.piece(Piece::Data(payload.to_owned()))
    }

    /// Splits the stream into network reads at these byte positions only.
    #[must_use]
    pub fn split_at(self, positions: impl IntoIterator<Item = usize>) -> Self {
        self.read(Reads::At(positions.into_iter().collect()))
    }

    /// Splits the stream into single bytes.
    #[must_use]
    pub fn byte_by_byte(self) -> Self {
        self.read(Reads::Bytewise)
    }

    /// Returns the bytes of all events, without pauses.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Stream { pieces, .. } => pieces.iter().flat_map(Piece::bytes).collect(),
            Self::Http { body, .. } => body.clone().into_bytes(),
            Self::NoConnection => Vec::new(),
        }
    }

    fn read(mut self, how: Reads) -> Self {
        match &mut self {
            Self::Stream { reads, .. } => *reads = how,
            other => panic!("only a stream is cut into reads, this is {other:?}"),
        }
        self
    }

    fn piece(mut self, piece: Piece) -> Self {
        match &mut self {
            Self::Stream { pieces, .. } => pieces.push(piece),
            other => panic!("only a stream has pieces, this is {other:?}"),
        }
        self
    }
}

impl Piece {
    /// Returns its bytes on the wire.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Data(payload) => format!("data: {payload}\n\n").into_bytes(),
            Self::Delay(_) | Self::Stall | Self::Cut => Vec::new(),
        }
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_forms_give_the_bytes_of_the_scenarios() {
        let head = r#"{"id":"cc-1","object":"chat.completion.chunk","created":0,"model":"m","choices":"#;
        let answer = Answer::stream().text(["a", "b"]).end("stop").usage(5, 2).done();
        assert_eq!(
            String::from_utf8(answer.bytes()).unwrap(),
            [
                &format!(r#"data: {head}[{{"index":0,"delta":{{"role":"assistant","content":"a"}},"finish_reason":null}}]}}"#),
                &format!(r#"data: {head}[{{"index":0,"delta":{{"content":"b"}},"finish_reason":null}}]}}"#),
                &format!(r#"data: {head}[{{"index":0,"delta":{{}},"finish_reason":"stop"}}]}}"#),
                &format!(r#"data: {head}[],"usage":{{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}}}"#),
                "data: [DONE]",
                "",
            ]
            .join("\n\n")
        );
        assert_eq!(Answer::sse(&String::from_utf8(answer.bytes()).unwrap()), answer);
    }
}
