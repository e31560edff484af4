//! The display of answers in their short forms, for readers of failing tests.

use std::fmt;

use serde_json::Value;

use super::{Answer, Piece, Script};

impl fmt::Display for Script {
    /// Writes `R1 = …`, one answer per line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (1..).zip(&self.answers).try_for_each(|(n, answer)| writeln!(f, "R{n} = {answer}"))
    }
}

impl fmt::Display for Answer {
    /// ```
    /// use superstep_testing::script::Answer;
    ///
    /// let answer = Answer::stream().text(["a", "b"]).call(0, "c1", "echo", ["{}"]).end("stop").usage(5, 2).done();
    /// assert_eq!(answer.to_string(), r#"T("a") T("b") C(0,c1,echo) A(0,"{}") END(stop) U(5,2) DONE"#);
    /// ```
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoConnection => f.write_str("NO CONNECTION"),
            Self::Http { status, headers, body } => write!(f, "HTTP({status},{headers:?},{body:?})"),
            Self::Stream { pieces, .. } => {
                let pieces: Vec<String> = pieces.iter().map(piece).collect();
                f.write_str(&pieces.join(" "))
            }
        }
    }
}

fn piece(piece: &Piece) -> String {
    match piece {
        Piece::Data(payload) if payload == "[DONE]" => "DONE".to_owned(),
        Piece::Data(payload) => {
            let short = serde_json::from_str(payload).ok().and_then(|chunk| chunk_of(&chunk));
            short.unwrap_or_else(|| format!("DATA({payload})"))
        }
        Piece::Delay(time) => format!("DELAY({})", time.as_millis()),
        Piece::Stall => "STALL".to_owned(),
        Piece::Cut => "CUT".to_owned(),
    }
}

/// Returns the short form of a chunk; `None` if no short form creates it.
fn chunk_of(chunk: &Value) -> Option<String> {
    let usage = &chunk["usage"];
    if usage.is_object() {
        return Some(format!("U({},{})", usage["prompt_tokens"], usage["completion_tokens"]));
    }
    let choice = &chunk["choices"][0];
    if let Some(reason) = choice["finish_reason"].as_str() {
        return Some(format!("END({reason})"));
    }
    let delta = &choice["delta"];
    if delta["content"].is_string() {
        return Some(format!("T({})", delta["content"]));
    }
    if delta["reasoning_content"].is_string() {
        return Some(format!("K({})", delta["reasoning_content"]));
    }
    let call = delta["tool_calls"].get(0)?;
    let function = &call["function"];
    Some(match (call["id"].as_str(), function["name"].as_str()) {
        (Some(id), Some(name)) => format!("C({},{id},{name})", call["index"]),
        _ => format!("A({},{})", call["index"], function["arguments"]),
    })
}
