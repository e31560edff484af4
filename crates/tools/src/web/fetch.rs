//! `fetch_url`: reads a web page, after approval.

use std::{net::IpAddr, sync::Arc, time::Duration};

use reqwest::{Response, Url, header, redirect::Policy};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use superstep_llm::{
    Subject, Tool, ToolCx, ToolError, ToolFuture, ToolSpec, http::client_builder, text::printable_line,
    timers::check_timers,
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{html, reach::Reach};
use crate::{
    call::{REPEATABLE, cancelled, crashed, cut, grouped, is_binary, stop_signal},
    settings::WebSettings,
    text::{self, TextForm},
};

const MAX_URL_BYTES: usize = 2_000;
const MAX_BODY_BYTES: usize = 1 << 20;
const MAX_TEXT_BYTES: usize = 256 << 10;
const MAX_REDIRECTS: usize = 5;
const TIMEOUT: Duration = Duration::from_secs(30);
/// Number of bytes shown of an error response's body.
const REFUSAL_BYTES: usize = 500;
/// Number of bytes shown of an unknown charset.
const MAX_LABEL_BYTES: usize = 40;

#[derive(JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
struct FetchUrl {
    /// The address, beginning with `http://` or `https://`.
    url: String,
}

/// The tool `fetch_url{url}`: reads a web address as text, after approval.
///
/// HTML is converted to text; a body that is not text is rejected. The tool reads at most 1 MiB, takes at
/// most 30 seconds and follows at most five redirects within one server. A redirect to another scheme, host
/// or port is rejected with its target, so that the model can request that address in a new call.
///
/// An address of this machine or of a private network is fetched only if the call itself names it
/// (`http://localhost:3000`, `http://10.0.0.7/`); the approval question then states this. Redirects and name
/// resolutions that lead there are rejected. Addresses that belong to no single machine, or to a cloud's
/// metadata service, are rejected as well. To enforce this, the tool resolves names itself and uses no proxy, unless
/// [`WebSettings`] has one.
pub fn fetch_url() -> impl Tool {
    fetch_url_with(WebSettings::default())
}

/// Creates the same tool, with a proxy, and with hosts that may be in a private network.
pub fn fetch_url_with(settings: WebSettings) -> impl Tool {
    Fetch {
        settings: settings.into(),
        spec: ToolSpec::of::<FetchUrl>(
            "fetch_url",
            "Reads a page of the web as text, at most 1 MiB. A person may be asked first.",
        ),
    }
}

struct Fetch {
    settings: Arc<WebSettings>,
    spec: ToolSpec,
}

impl Tool for Fetch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn behaviour(&self) -> superstep_llm::Behaviour {
        REPEATABLE
    }

    fn changes_files(&self) -> Option<bool> {
        Some(false)
    }

    fn approval(&self, args: &Value) -> Option<String> {
        let target = Target::parse(args).ok()?;
        let host = target.url.host_str().unwrap_or_default();
        let place = match target.named {
            None if self.settings.may_be_private(host) => ", which may be in a private network",
            None => "",
            Some(Reach::Machine) => ", which is on this machine",
            Some(_) => ", which is in a private network",
        };
        Some(format!("fetch {}{place}", printable_line(target.url.as_str())))
    }

    fn subject(&self, argument: &str, args: &Value) -> Option<Subject> {
        let address = args[argument].as_str().filter(|_| argument == "url")?;
        Some(Subject::Url(address.to_owned()))
    }

    fn call(&self, args: Value, cx: ToolCx) -> ToolFuture<'_> {
        Box::pin(async move {
            let target = Target::parse(&args)?;
            check_timers()?;
            let fetched = tokio::select! {
                biased;
                () = cx.cancel.cancelled() => return Err(cancelled()),
                fetched = timeout(TIMEOUT, fetch(target, &self.settings, cx.clone())) => fetched,
            };
            let late =
                |_| Err(ToolError::Failed(format!("there was no answer within {} s", TIMEOUT.as_secs())));
            fetched.unwrap_or_else(late).map(Into::into)
        })
    }
}

/// A checked request target.
#[derive(Clone, Debug)]
struct Target {
    url: Url,
    /// The reach of the host, if the URL names it explicitly and it is not public.
    named: Option<Reach>,
}

impl Target {
    fn parse(args: &Value) -> Result<Self, ToolError> {
        let wrong = |why: &str| ToolError::InvalidArguments(format!("`url` {why}"));
        let FetchUrl { url } =
            FetchUrl::deserialize(args).map_err(|error| ToolError::InvalidArguments(error.to_string()))?;
        if url.len() > MAX_URL_BYTES {
            return Err(wrong(&format!("is longer than {MAX_URL_BYTES} bytes")));
        }
        let url = Url::parse(&url).map_err(|error| wrong(&format!("is not a valid URL: {error}")))?;
        Self::new(url).map_err(|why| wrong(&why))
    }

    /// Checks an address that may be fetched next.
    fn new(url: Url) -> Result<Self, String> {
        if !["http", "https"].contains(&url.scheme()) {
            return Err(format!("has the scheme `{}`; only http and https are fetched", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("has a user or a password in it, which is not sent".into());
        }
        let named = match literal(&url) {
            Some(Reach::Nowhere) => return Err("has an address that must not be fetched".into()),
            Some(Reach::Public) => None,
            Some(reach) => Some(reach),
            None if is_localhost(&url) => Some(Reach::Machine),
            None => None,
        };
        Ok(Self { url, named })
    }

    /// Resolves and checks a redirect's target.
    fn redirected(&self, location: &str) -> Result<Self, String> {
        let url = self.url.join(location).map_err(|error| format!("is not a valid URL: {error}"))?;
        let next = Self::new(url)?;
        // Approval of one server does not cover another one.
        if next.url.origin() != self.url.origin() {
            let place = if next.named.is_some() { ", on this machine or in a private network" } else { "" };
            return Err(format!("is another server{place}; call `fetch_url` with that address"));
        }
        Ok(next)
    }

    /// Resolves the host and returns the addresses that may be contacted.
    async fn addresses(&self, settings: &WebSettings) -> Result<Vec<std::net::SocketAddr>, ToolError> {
        let host = self.url.host_str().unwrap_or_default();
        let is_granted = self.named.is_none() && settings.may_be_private(host);
        if literal(&self.url).is_some() {
            return Ok(Vec::new());
        }
        let port = self.url.port_or_known_default().unwrap_or(80);
        let found = tokio::net::lookup_host((host, port)).await;
        let hint = settings.proxy_hint();
        let found =
            found.map_err(|error| ToolError::Failed(format!("`{host}` is not known: {error}{hint}")))?;
        let wanted = self.named.unwrap_or(Reach::Public);
        let is_wanted = |reach| reach == wanted || is_granted && reach != Reach::Nowhere;
        let addresses: Vec<_> = found.filter(|address| is_wanted(Reach::of(address.ip()))).collect();
        if addresses.is_empty() {
            return Err(ToolError::Denied(format!(
                "`{host}` leads to this machine or into a private network; name its address to fetch from there, or the user adds \
                 the host to `private_hosts` of `[web]` in the configuration"
            )));
        }
        Ok(addresses)
    }
}

/// Returns the reach of a host that is given as an address.
fn literal(url: &Url) -> Option<Reach> {
    let host = url.host_str()?;
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok()?;
    Some(Reach::of(address))
}

fn is_localhost(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_end_matches('.');
    host == "localhost" || host.ends_with(".localhost")
}

async fn fetch(mut target: Target, settings: &WebSettings, cx: ToolCx) -> Result<String, ToolError> {
    for _ in 0..=MAX_REDIRECTS {
        let response = get(&target, settings).await?;
        let location =
            response.headers().get(header::LOCATION).filter(|_| response.status().is_redirection());
        let Some(location) = location else { return read(target.url, response, cx).await };
        let location = String::from_utf8_lossy(location.as_bytes()).into_owned();
        let next = target.redirected(&location).and_then(|next| {
            let is_permitted = cx.permits("url", &Subject::Url(next.url.to_string()));
            let why = "the rules do not let this call fetch; call `fetch_url` with that address";
            if is_permitted { Ok(next) } else { Err(why.to_owned()) }
        });
        target = next.map_err(|why| {
            let from = printable_line(target.url.as_str());
            let to = target.url.join(&location).map_or(location.clone(), String::from);
            ToolError::Denied(format!(
                "`{from}` redirects to `{}`, which {why}",
                printable_line(cut(&to, MAX_URL_BYTES))
            ))
        })?;
    }
    Err(ToolError::Failed(format!("there were more than {MAX_REDIRECTS} redirects")))
}

async fn get(target: &Target, settings: &WebSettings) -> Result<Response, ToolError> {
    let failed = |error: reqwest::Error| {
        let mut text = error.to_string();
        let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(&error);
        while let Some(why) = cause {
            text = format!("{text}: {why}");
            cause = why.source();
        }
        let hint = if error.is_connect() { settings.proxy_hint() } else { "" };
        ToolError::Failed(text + hint)
    };
    // Hosts of a private network are reached directly.
    let is_private =
        target.named.is_some() || settings.may_be_private(target.url.host_str().unwrap_or_default());
    let proxy = if is_private { None } else { settings.proxy().map_err(ToolError::Failed)? };
    // A proxy resolves the name itself.
    let addresses = if proxy.is_some() { Vec::new() } else { target.addresses(settings).await? };
    let client = client_builder().map_err(|cause| ToolError::Failed(cause.to_string()))?;
    let mut client = client.redirect(Policy::none()).no_proxy().connect_timeout(TIMEOUT);
    client = client.user_agent(concat!("superstep/", env!("CARGO_PKG_VERSION")));
    if let Some(proxy) = proxy {
        client = client.proxy(proxy);
    }
    if let (Some(host), false) = (target.url.host_str(), addresses.is_empty()) {
        client = client.resolve_to_addrs(host, &addresses);
    }
    let client = client.build().map_err(failed)?;
    let accepted =
        "text/html, application/xhtml+xml, text/*, application/json, application/xml;q=0.9, */*;q=0.1";
    client.get(target.url.clone()).header(header::ACCEPT, accepted).send().await.map_err(failed)
}

/// The supported kinds of text.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Html,
    Plain,
    /// Content type missing.
    Unknown,
}

impl Kind {
    /// Parses a `Content-Type` value; `None` if it is not text.
    fn of(content_type: &str) -> Option<Self> {
        let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let texts = [
            "application/json",
            "application/xml",
            "application/javascript",
            "application/yaml",
            "application/toml",
        ];
        match kind.as_str() {
            "" => Some(Self::Unknown),
            "text/html" | "application/xhtml+xml" => Some(Self::Html),
            kind if kind.starts_with("text/") || texts.contains(&kind) => Some(Self::Plain),
            kind if kind.ends_with("+json") || kind.ends_with("+xml") => Some(Self::Plain),
            _ => None,
        }
    }
}

async fn read(url: Url, mut response: Response, cx: ToolCx) -> Result<String, ToolError> {
    let status = response.status();
    let header =
        |name| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let content_type = header(header::CONTENT_TYPE).to_owned();
    let encoding = header(header::CONTENT_ENCODING).to_owned();
    let kind = Kind::of(&content_type);
    let label = charset(&content_type);
    let mut body = Vec::new();
    let mut is_cut = false;
    // Only the needed part is read.
    if kind.is_some() && matches!(encoding.as_str(), "" | "identity") {
        while let Some(chunk) =
            response.chunk().await.map_err(|error| ToolError::Failed(error.to_string()))?
        {
            let room = MAX_BODY_BYTES - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                is_cut = true;
                break;
            }
        }
    }
    drop(response);
    if !status.is_success() {
        let start = &body[..body.len().min(REFUSAL_BYTES)];
        let declared = charset(&content_type).as_deref().and_then(text::named);
        let text = TextForm::of_page(start, declared).decode(start).0.into_owned();
        return Err(ToolError::Failed(
            format!("the server answered {status}: {}", text.trim()).trim_end_matches(": ").into(),
        ));
    }
    if !matches!(encoding.as_str(), "" | "identity") {
        return Err(ToolError::Failed(format!(
            "the server compressed its answer (`{}`)",
            printable_line(&encoding)
        )));
    }
    let declared = label.as_deref().and_then(text::named);
    let form = TextForm::of_page(&body, declared);
    let page = form.decode(&body).0.into_owned();
    let Some(kind) = kind.filter(|_| !is_binary(page.as_bytes())) else {
        let what = if kind.is_none() { printable_line(&content_type) } else { "binary".to_owned() };
        return Err(ToolError::Failed(format!("the address has no text: it is {what}")));
    };
    let read = body.len() as u64;
    let (stop, _guard) = stop_signal(&cx);
    let base = url.clone();
    let text =
        tokio::task::spawn_blocking(move || shown(page, kind, &base, &stop)).await.map_err(|_| crashed())?;
    let mut notes = vec![format!("[{url}, {} bytes]", grouped(read))];
    if is_cut {
        notes.push(format!(
            "[the rest of it was not read: it is longer than {} bytes]",
            grouped(MAX_BODY_BYTES as u64)
        ));
    }
    if let Some(label) = label.filter(|_| declared.is_none()) {
        notes.push(format!("[the charset `{}` is not known]", printable_line(cut(&label, MAX_LABEL_BYTES))));
    }
    if let Some(name) = form.name() {
        notes.push(format!("[read as {name}]"));
    }
    if text.contains('\u{fffd}') {
        notes.push(format!("[bytes that are not {} are shown as \u{fffd}]", form.encoding.name()));
    }
    notes.push(cut(&text, MAX_TEXT_BYTES).to_owned());
    if text.len() > MAX_TEXT_BYTES {
        notes.push(format!("[cut: the text is longer than {} bytes]", grouped(MAX_TEXT_BYTES as u64)));
    }
    Ok(notes.join("\n"))
}

fn charset(content_type: &str) -> Option<String> {
    let parameters = content_type.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let (_, label) = parameters.into_iter().find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))?;
    Some(label.trim().trim_matches(['"', '\'']).to_owned())
}

fn shown(plain: String, kind: Kind, base: &Url, stop: &CancellationToken) -> String {
    let start = plain.trim_start().get(..14).unwrap_or_default().to_ascii_lowercase();
    let is_html = kind == Kind::Html
        || kind == Kind::Unknown && (start == "<!doctype html" || start.starts_with("<html"));
    if is_html { html::text(&plain, base, MAX_TEXT_BYTES, stop) } else { plain }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;
    use crate::testing::{self, call, cx, refusal};

    fn args(url: &str) -> Value {
        json!({ "url": url })
    }

    /// Starts a loopback server that sends one of these responses per connection, then closes; returns its
    /// address without a path.
    async fn serve(answers: Vec<Vec<u8>>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            for answer in answers {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut request = [0; 4_096];
                let _ = socket.read(&mut request).await;
                // A client that has read enough disconnects.
                let _ = socket.write_all(&answer).await;
            }
        });
        address
    }

    fn page(content_type: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
        answer("200 OK", &format!("content-type: {content_type}\r\n"), body)
    }

    fn answer(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
        let body = body.as_ref();
        let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    }

    #[tokio::test]
    async fn a_proxy_gets_addresses_of_the_internet_and_no_others() {
        let proxy = serve(vec![page("text/plain", "by proxy")]).await;
        let settings = WebSettings { proxy: Some(proxy), ..WebSettings::default() };
        let tool = fetch_url_with(settings);
        let text = call(&tool, args("http://no-such-host.invalid/a")).await;
        assert_eq!(text, "[http://no-such-host.invalid/a, 8 bytes]\nby proxy");
        let direct = serve(vec![page("text/plain", "direct")]).await;
        assert!(call(&tool, args(&direct)).await.ends_with("direct"));
    }

    #[tokio::test]
    async fn a_host_of_a_private_network_is_fetched_if_the_user_names_it() {
        let port = serve(vec![page("text/plain", "here")]).await.rsplit_once(':').unwrap().1.to_owned();
        let url = format!("http://localhost.localdomain:{port}");
        // The name that hosts files give to this machine; without it there is nothing to test.
        if tokio::net::lookup_host(url.trim_start_matches("http://")).await.is_err() {
            eprintln!("skipped: this machine has one name only");
            return;
        }
        assert!(
            refusal(&fetch_url(), args(&url))
                .await
                .ends_with("`private_hosts` of `[web]` in the configuration")
        );
        let settings =
            WebSettings { private_hosts: vec!["*.localdomain".to_owned()], ..WebSettings::default() };
        let tool = fetch_url_with(settings);
        let asked = tool.approval(&args(&url)).unwrap();
        assert!(asked.ends_with(", which may be in a private network"), "{asked}");
        assert!(call(&tool, args(&url)).await.ends_with("here"));
    }

    #[tokio::test]
    async fn a_page_is_read_in_its_charset() {
        let cyrillic = b"<p>\xcf\xf0\xe8\xe2\xe5\xf2".as_slice();
        let meta =
            [b"<!doctype html><meta http-equiv=x content='text/html; charset=windows-1251'>", cyrillic]
                .concat();
        let (wide, xml) = (b"\xff\xfeh\0\xe9\0", b"<?xml version='1.0' encoding='iso-8859-1'?><a>\xe9</a>");
        let answers = [
            page("text/html; Charset=\"windows-1251\"", cyrillic),
            page("text/html", &meta),
            page("text/plain; charset=x-unknown", "plain"),
            page("text/plain", wide),
            page("application/xml", xml),
            answer("404 Not Found", "content-type: text/plain; charset=windows-1251\r\n", b"\xed\xe5\xf2"),
        ];
        let url = serve(answers.to_vec()).await;
        for wanted in [
            "[read as windows-1251]\nПривет",
            "[read as windows-1251]\nПривет",
            "[the charset `x-unknown` is not known]\nplain",
            "[read as UTF-16LE]\nhé",
            "[read as windows-1252]\n<?xml version='1.0' encoding='iso-8859-1'?><a>é</a>",
        ] {
            let text = call(&fetch_url(), args(&url)).await;
            assert!(text.ends_with(wanted), "{text}");
        }
        assert_eq!(refusal(&fetch_url(), args(&url)).await, "the server answered 404 Not Found: нет");
    }

    #[tokio::test]
    async fn html_becomes_text_and_text_stays() {
        let html = "<html><head><title>T</title><script>x()</script></head><body><h1>Hi</h1><p>See <a href='/x'>it</a>.";
        let url =
            serve(vec![page("text/html; charset=utf-8", html), page("application/json", "{\"a\": 1}")]).await;
        let text = call(&fetch_url(), args(&url)).await;
        assert_eq!(text, format!("[{url}/, {} bytes]\nT\n\n# Hi\n\nSee it ({url}/x).", html.len()));
        let text = call(&fetch_url(), args(&format!("{url}/a.json?b=c"))).await;
        assert_eq!(text, format!("[{url}/a.json?b=c, 8 bytes]\n{{\"a\": 1}}"));
    }

    #[tokio::test]
    async fn at_most_a_mebibyte_is_read() {
        let url = serve(vec![page("text/plain", "x".repeat(3 << 20))]).await;
        let text = call(&fetch_url(), args(&url)).await;
        assert!(text.len() < MAX_TEXT_BYTES + 300, "{}", text.len());
        assert!(text.contains("[the rest of it was not read: it is longer than 1,048,576 bytes]"));
        assert!(text.ends_with("x\n[cut: the text is longer than 262,144 bytes]"));
    }

    #[tokio::test]
    async fn binary_content_is_rejected() {
        for (answer, expected) in [
            (page("image/png", b"\x89PNG\0"), "the address has no text: it is image/png"),
            (page("text/plain", b"a\0b"), "the address has no text: it is binary"),
            (
                answer("200 OK", "content-type: text/plain\r\ncontent-encoding: br\r\n", "x"),
                "the server compressed its answer (`br`)",
            ),
            (
                answer("404 Not Found", "", " nothing here "),
                "the server answered 404 Not Found: nothing here",
            ),
            (
                answer("500 Oops", "content-type: image/png\r\n", "x"),
                "the server answered 500 Internal Server Error",
            ),
        ] {
            let url = serve(vec![answer]).await;
            assert_eq!(refusal(&fetch_url(), args(&url)).await, expected);
        }
    }

    #[tokio::test]
    async fn redirects_are_followed_as_long_as_they_may_be() {
        let to = |location: &str| answer("302 Found", &format!("location: {location}\r\n"), "");
        let url = serve(vec![to("/next"), to("again"), page("text/plain", "there")]).await;
        assert_eq!(call(&fetch_url(), args(&url)).await, format!("[{url}/again, 5 bytes]\nthere"));
        let url = serve(vec![to("/"); 6]).await;
        assert_eq!(refusal(&fetch_url(), args(&url)).await, "there were more than 5 redirects");
        for (location, why) in [
            ("file:///etc/passwd", "has the scheme `file`; only http and https are fetched"),
            ("http://169.254.169.254/latest", "has an address that must not be fetched"),
            (
                "http://192.168.0.1/",
                "is another server, on this machine or in a private network; call `fetch_url` with that address",
            ),
            (
                "http://127.0.0.1:1/next",
                "is another server, on this machine or in a private network; call `fetch_url` with that address",
            ),
            ("https://example.com/a?b", "is another server; call `fetch_url` with that address"),
            ("http://u:p@example.com/", "has a user or a password in it, which is not sent"),
        ] {
            let url = serve(vec![to(location)]).await;
            let expected = format!("`{url}/` redirects to `{location}`, which {why}");
            assert_eq!(refusal(&fetch_url(), args(&url)).await, expected);
        }
        // Nor to an address that the permission rules deny.
        let url = serve(vec![to("/secret/a")]).await;
        let cx = cx().with_permits(|_, subject| !format!("{subject:?}").contains("/secret/"));
        let refused = fetch_url().call(args(&url), cx).await.unwrap_err().to_string();
        let why = "the rules do not let this call fetch; call `fetch_url` with that address";
        assert_eq!(refused, format!("`{url}/` redirects to `{url}/secret/a`, which {why}"));
    }

    #[tokio::test]
    async fn addresses_that_cannot_be_fetched_are_refused_without_asking() {
        for (url, expected) in [
            ("", "`url` is not a valid URL: relative URL without a base"),
            ("ftp://example.com", "`url` has the scheme `ftp`; only http and https are fetched"),
            ("file:///etc/passwd", "`url` has the scheme `file`; only http and https are fetched"),
            ("http://user@example.com", "`url` has a user or a password in it, which is not sent"),
            ("http://169.254.169.254/", "`url` has an address that must not be fetched"),
            ("http://[::ffff:169.254.169.254]/", "`url` has an address that must not be fetched"),
            ("http://0/", "`url` has an address that must not be fetched"),
        ] {
            assert_eq!(refusal(&fetch_url(), args(url)).await, expected);
            assert_eq!(fetch_url().approval(&args(url)), None);
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_behind_the_walls_is_refused() {
        let named = |named| Target { url: Url::parse("http://localhost:1/").unwrap(), named };
        // As if the owner of a public name pointed it here.
        let error = named(None).addresses(&WebSettings::default()).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "`localhost` leads to this machine or into a private network; name its address to fetch from there, or the user adds the \
             host to `private_hosts` of `[web]` in the configuration"
        );
        assert!(
            named(Some(Reach::Machine))
                .addresses(&WebSettings::default())
                .await
                .unwrap()
                .iter()
                .all(|at| at.ip().is_loopback())
        );
    }

    #[test]
    fn the_question_names_private_addresses() {
        let ask = |url: &str| fetch_url().approval(&args(url)).unwrap();
        assert_eq!(ask("https://example.com/a?b"), "fetch https://example.com/a?b");
        assert_eq!(ask("http://localhost:3000"), "fetch http://localhost:3000/, which is on this machine");
        assert_eq!(ask("http://2130706433/"), "fetch http://127.0.0.1/, which is on this machine");
        assert_eq!(ask("http://10.1.2.3"), "fetch http://10.1.2.3/, which is in a private network");
        assert_eq!(ask("http://[fd00::1]"), "fetch http://[fd00::1]/, which is in a private network");
    }

    #[tokio::test]
    async fn a_silent_server_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (tool, cx) = (fetch_url(), cx());
        let cancel = cx.cancel.clone();
        let mut calling = tool.call(args(&url), cx);
        tokio::select! {
            ended = &mut calling => panic!("{ended:?}"),
            _ = listener.accept() => {}
        }
        cancel.cancel();
        assert_eq!(calling.await, Err(ToolError::Failed("cancelled".into())));
        assert_eq!(testing::cancelled(&tool, args(&url)).await, Err(ToolError::Failed("cancelled".into())));

        let calling = tool.call(args(&url), testing::cx());
        tokio::pin!(calling);
        let mut held = None;
        loop {
            tokio::select! {
                ended = &mut calling => {
                    assert_eq!(ended, Err(ToolError::Failed("there was no answer within 30 s".into())));
                    break;
                }
                accepted = listener.accept(), if held.is_none() => {
                    held = Some(accepted.unwrap());
                    // Real sockets and paused time do not mix, so it is paused once the connection stands.
                    tokio::time::pause();
                }
            }
        }
    }
}
