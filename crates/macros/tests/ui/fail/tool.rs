use superstep_llm::{ToolCx, tool};

/// Is not async.
#[tool]
fn blocking(x: u32) -> u32 {
    x
}

#[tool]
async fn undocumented() {}

/// Is generic.
#[tool]
async fn generic<T>(x: T) -> String {
    String::new()
}

/// Has invalid parameters, each for another reason.
#[tool]
async fn wrong(
    text: &str,
    (a, b): (u32, u32),
    any: impl Into<String>,
    #[dep] #[serde(default)] both: u32,
    #[doc(hidden)] #[inline] other: u32,
    #[dep] cx: ToolCx,
) {
}

/// Has two.
#[tool]
async fn twice(cx: ToolCx, other: ToolCx) {}

/// Has all parameters and one more.
#[tool]
async fn more(#[args] all: serde_json::Value, one: u32) {}

/// Has a name that no model can write.
#[tool(name = "get weather")]
async fn named() {}

/// Has an unknown option.
#[tool(retries = 3)]
async fn retried() {}

/// Repeats an option.
#[tool(poll, poll)]
async fn polled() {}

/// Has an invalid question.
#[tool(ask = 7)]
async fn asked() {}

/// Has invalid subjects, each for another reason.
#[tool(subject = 7)]
async fn numbered() {}

/// Has an invalid kind of subject.
#[tool(subject = "file(path)")]
async fn turned(path: String) {}

/// Has subjects of unknown arguments.
#[tool(subject = "path(file), url(link)")]
async fn misspelt(file: String, address: String) {}

/// Has an unknown folder.
#[tool(subject = "path(file in folder)")]
async fn homeless(file: String, folder: String) {}

/// Is a struct.
#[tool]
struct Nothing;

struct Place;

impl Place {
    /// Is a method.
    #[tool]
    async fn method(&self) {}
}

fn main() {}
