//! Requests to a Mem0 server, in the formats of both forms.

use reqwest::{Method, Url};
use serde_json::{Value, json};

use super::config::Mem0Form;

/// The metadata field with the key of the memory request.
pub(super) const KEY: &str = "superstep_key";
/// Maximum number of entries of one request; Mem0 returns no more.
pub(super) const MAX_FOUND: usize = 1000;
/// Maximum number of entries of one page of a list.
pub(super) const MAX_PAGE_ITEMS: usize = 200;
/// Maximum number of bytes of a query; embedding models read no more.
const MAX_QUERY_LENGTH: usize = 8 << 10;

/// One request.
#[derive(Debug, PartialEq)]
pub(super) struct Call {
    pub(super) method: Method,
    path: Vec<String>,
    query: Vec<(&'static str, String)>,
    pub(super) body: Option<Value>,
}

impl Call {
    fn new<'a>(method: Method, path: impl IntoIterator<Item = &'a str>, body: Option<Value>) -> Self {
        Self { method, path: path.into_iter().map(str::to_owned).collect(), query: Vec::new(), body }
    }

    fn post<'a>(path: impl IntoIterator<Item = &'a str>, body: Value) -> Self {
        Self::new(Method::POST, path, Some(body))
    }

    /// Returns its URL at a server with this address.
    pub(super) fn url(&self, base: &Url) -> Url {
        let mut url = base.clone();
        url.path_segments_mut().expect("an http address has a path").pop_if_empty().extend(&self.path);
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        url
    }
}

impl Mem0Form {
    /// Adds these messages.
    pub(super) fn add(self, messages: &[Value], user_id: &str, key: &str, infer: bool) -> Call {
        let body = json!({
            "messages": messages, "user_id": user_id, "metadata": { KEY: key }, "infer": infer,
        });
        match self {
            Self::Hosted => Call::post(["v3", "memories", "add", ""], body),
            Self::SelfHosted => Call::post(["memories"], body),
        }
    }

    /// Polls the state of an event; the hosted form only.
    pub(super) fn event(event: &str) -> Call {
        Call::new(Method::GET, ["v1", "event", event, ""], None)
    }

    /// Lists the memories added under a key. A self-hosted server cannot list by key, so it searches for any
    /// text with a filter.
    pub(super) fn under_key(self, anything: &str, user_id: &str, key: &str) -> Call {
        match self {
            Self::Hosted => {
                let filters = json!({ "AND": [{ "user_id": user_id }, { "metadata": { KEY: key } }] });
                Self::hosted_page(filters, 1, MAX_PAGE_ITEMS)
            }
            Self::SelfHosted => {
                let filters = json!({ "user_id": user_id, KEY: key });
                self.find(anything, filters, MAX_PAGE_ITEMS, 0.0)
            }
        }
    }

    /// Searches a user's memory for `query`.
    pub(super) fn search(self, query: &str, user_id: &str, limit: usize, threshold: f64) -> Call {
        self.find(query, json!({ "user_id": user_id }), limit, threshold)
    }

    fn find(self, query: &str, filters: Value, limit: usize, threshold: f64) -> Call {
        let query = &query[..query.floor_char_boundary(MAX_QUERY_LENGTH)];
        let body = json!({ "query": query, "filters": filters, "top_k": limit, "threshold": threshold });
        match self {
            Self::Hosted => Call::post(["v3", "memories", "search", ""], body),
            Self::SelfHosted => Call::post(["search"], body),
        }
    }

    /// Lists a user's memory. Only the hosted form has pages, counted from 1.
    pub(super) fn list(self, user_id: &str, page: usize, limit: usize) -> Call {
        match self {
            Self::Hosted => Self::hosted_page(json!({ "user_id": user_id }), page, limit.min(MAX_PAGE_ITEMS)),
            Self::SelfHosted => {
                let query = vec![("user_id", user_id.to_owned()), ("top_k", limit.to_string())];
                Call { query, ..Call::new(Method::GET, ["memories"], None) }
            }
        }
    }

    fn hosted_page(filters: Value, page: usize, size: usize) -> Call {
        let query = vec![("page", page.to_string()), ("page_size", size.to_string())];
        Call { query, ..Call::post(["v3", "memories", ""], json!({ "filters": filters })) }
    }

    /// Gets one memory.
    pub(super) fn get(self, id: &str) -> Call {
        self.one(Method::GET, id)
    }

    /// Deletes one memory.
    pub(super) fn delete(self, id: &str) -> Call {
        self.one(Method::DELETE, id)
    }

    fn one(self, method: Method, id: &str) -> Call {
        match self {
            Self::Hosted => Call::new(method, ["v1", "memories", id, ""], None),
            Self::SelfHosted => Call::new(method, ["memories", id], None),
        }
    }
}

/// Escapes a user id or key so that Mem0 does not interpret it; different names stay different, and none is
/// empty.
pub(super) fn name(name: &str) -> String {
    if name.is_empty() {
        return "%".to_owned();
    }
    let mut wire = String::with_capacity(name.len());
    for char in name.chars() {
        if char.is_whitespace() || char.is_control() || "*%".contains(char) {
            wire.extend(char.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!("%{byte:02X}")));
        } else {
            wire.push(char);
        }
    }
    wire
}

/// Returns whether a memory or an event may have this id, which becomes part of a URL: an empty one or dots
/// would lead elsewhere.
pub(super) fn is_id(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=128).contains(&id.len()) && id.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_mean_something_else_to_mem0_are_written_differently() {
        for same in ["ada", "ada@example.com", "Jürgen", "記憶", "a/../b", "{\"in\":[]}"] {
            assert_eq!(name(same), same);
        }
        assert_eq!(name("*"), "%2A");
        assert_eq!(name(" ada\n"), "%20ada%0A");
        assert_eq!(name("100%2A"), "100%252A");
        assert_eq!(name("\u{a0}"), "%C2%A0");
        assert_eq!((&*name(""), &*name("%")), ("%", "%25"));
    }

    #[test]
    fn ids_with_path_characters_are_rejected() {
        for id in ["", ".", "..", "a/b", "a?b", "é", &"a".repeat(129)] {
            assert!(!is_id(id), "{id}");
        }
        assert!(is_id("3c90c3cc-0d44-4b50-8888-8dd25736052a") && is_id("mem_01JF8ZS4Y0"));
    }

    #[test]
    fn addresses_begin_with_the_base_url_and_nothing_breaks_out_of_them() {
        let base = Url::parse("http://h/mem0/").unwrap();
        let url = |call: Call| call.url(&base).to_string();
        assert_eq!(
            url(Mem0Form::SelfHosted.list("a&b=../#", 1, 5)),
            "http://h/mem0/memories?user_id=a%26b%3D..%2F%23&top_k=5"
        );
        assert_eq!(
            url(Mem0Form::Hosted.list("ada", 2, 999)),
            "http://h/mem0/v3/memories/?page=2&page_size=200"
        );
        assert_eq!(url(Mem0Form::Hosted.delete("m-1")), "http://h/mem0/v1/memories/m-1/");
        assert_eq!(url(Mem0Form::SelfHosted.get("m-1")), "http://h/mem0/memories/m-1");
    }

    #[test]
    fn a_long_question_is_cut_between_characters() {
        let call = Mem0Form::SelfHosted.search(&format!("a{}", "é".repeat(MAX_QUERY_LENGTH)), "ada", 1, 0.1);
        assert_eq!(call.body.unwrap()["query"].as_str().unwrap().len(), MAX_QUERY_LENGTH - 1);
    }
}
