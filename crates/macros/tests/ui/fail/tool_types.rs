use superstep_llm::tool;

struct Unknown;

/// Takes what cannot be read.
#[tool]
async fn takes(x: Unknown) -> String {
    drop(x);
    String::new()
}

/// Gives what cannot be told.
#[tool]
async fn gives() -> Unknown {
    Unknown
}

/// Works with what cannot be cloned.
#[tool]
async fn works(#[dep] unknown: Unknown) -> String {
    drop(unknown);
    String::new()
}

/// Asks about what it does not have.
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
