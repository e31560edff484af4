use superstep_llm::tool;

struct Unknown;

/// Takes an argument without `Deserialize`.
#[tool]
async fn takes(x: Unknown) -> String {
    drop(x);
    String::new()
}

/// Returns a type without `Serialize`.
#[tool]
async fn gives() -> Unknown {
    Unknown
}

/// Has a dependency without `Clone`.
#[tool]
async fn works(#[dep] unknown: Unknown) -> String {
    drop(unknown);
    String::new()
}

/// Has a question with an unknown argument.
#[tool(ask = "Send {what}?")]
async fn asks(to: String) -> String {
    to
}

/// Cannot be sent.
#[tool]
async fn stays() -> String {
    let local = std::rc::Rc::new(());
    std::future::ready(()).await;
    drop(local);
    String::new()
}

fn main() {}
