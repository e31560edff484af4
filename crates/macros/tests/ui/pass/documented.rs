//! A library that requires documentation, and forbids lints that generated code often triggers.
#![deny(missing_docs, unreachable_pub, unused, unused_qualifications, private_interfaces)]

use superstep_graph::{Log, Route, State};

mod chat {
    #[derive(super::State, Clone, Debug, Default)]
    struct Inner {
        #[channel(sum)]
        r#type: i64,
    }

    pub(crate) fn typed() -> i64 {
        let mut inner = Inner::default();
        superstep_graph::State::fold(&mut inner, InnerUpdate::default().r#type(3)).expect("3 fits");
        inner.r#type
    }
}

/// A conversation.
#[derive(State, Clone, Debug, Default)]
pub struct Chat {
    #[channel(append)]
    messages: Log<String>,
    answer: Option<String>,
}

/// The routes.
#[derive(Route, Clone, Copy)]
pub enum Next {
    /// The only one.
    End,
}

fn main() {
    #[derive(State, Clone, Default)]
    struct Local {
        count: u8,
    }

    assert_eq!(chat::typed(), 3);
    let chat = superstep_graph::state::reduce(&Chat::default(), [Chat::update().messages([String::new()])]);
    assert!(chat.is_ok_and(|chat| chat.messages.len() == 1 && chat.answer.is_none()));
    assert_eq!(Local::update().count(2).count, Some(2));
    assert_eq!(Next::End.index(), 0);
}
