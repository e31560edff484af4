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

/// Has wrong parameters, each for a reason of its own.
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

/// Has all of them and one more.
#[tool]
async fn more(#[args] all: serde_json::Value, one: u32) {}

/// Has a name that no model can write.
#[tool(name = "get weather")]
async fn named() {}

/// Has an option that there is not.
#[tool(retries = 3)]
async fn retried() {}

/// Says something twice.
#[tool(poll, poll)]
async fn polled() {}

/// Asks what cannot be asked.
#[tool(ask = 7)]
async fn asked() {}

/// Has subjects that make no sense, each for a reason of its own.
#[tool(subject = 7)]
async fn numbered() {}

/// Says what is no subject.
#[tool(subject = "file(path)")]
async fn turned(path: String) {}

/// Says it of what the model does not pass.
#[tool(subject = "path(file), url(link)")]
async fn misspelt(file: String, address: String) {}

/// Has a folder that it does not have.
#[tool(subject = "path(file in folder)")]
async fn homeless(file: String, folder: String) {}

/// Is none.
#[tool]
struct Nothing;

struct Place;

impl Place {
    /// Is a method.
    #[tool]
    async fn method(&self) {}
}

fn main() {}
