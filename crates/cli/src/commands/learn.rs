//! `superstep models learn`: the facts that a server reports about a model.
//!
//! Servers report them in different places; see `docs/models.md`. The first one that has a window ends the search.

use std::time::Duration;

use reqwest::{Client, RequestBuilder, Response};
use serde_json::{Value, json};
use superstep::{
    clock::{Clock as _, SystemClock},
    llm::{
        ApiKey,
        http::{base_url, client, root_cause},
        models::{ModelInfo, ModelTable, Price, Prices},
        wire::excerpt,
    },
};
use superstep_session::{
    config::{
        defaults::Defaults,
        file,
        model::{Environment, ModelInputs},
        settings::{Given, Settings, StoredSettings},
        wire::Wire,
    },
    error::{ErrorKind, SessionError},
};

use crate::{
    args::command_line::LearnArgs,
    output::{
        exit::Exit,
        table::{lines, print, time},
    },
};

/// Time limit of each request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum size of a response. Lists of routers have some megabytes.
const MAX_BYTES: usize = 16 << 20;

pub(crate) async fn learn(args: LearnArgs) -> Result<Exit, SessionError> {
    let LearnArgs { model, base_url, config: named, json } = args;
    let config = named.as_deref().map(file::read).transpose()?.unwrap_or_default();
    let settings = Settings { model, base_url, ..Settings::default() };
    let given = &Given { settings, file: named, ..Given::default() };
    let (thread, environment) = (&StoredSettings::default(), &Environment::read()?);
    let choice = ModelInputs { given, thread, environment, config: &config, defaults: &Defaults::default() }
        .choose()
        .await?;
    let Some(base_url) = choice.base_url else {
        return Err(SessionError::usage(
            "no server is configured; name one with `--base-url`, and a `--model`",
        ));
    };
    let (_, at_provider) = Wire::split(&choice.name);
    let server = Server::of(&choice.name, &base_url, choice.key)?;
    let mut info = server.learn(at_provider).await.map_err(|problem| {
        SessionError::new(
            ErrorKind::Model,
            format!("the server `{base_url}` reports nothing about `{}`: {problem}", choice.name),
        )
    })?;
    info.as_of = time(SystemClock.now_ms()).chars().take("2026-11-28".len()).collect();
    if json {
        return print(&lines([info]));
    }
    let table: ModelTable = [info.into()].into_iter().collect();
    let toml = toml::to_string(&table).map_err(|error| SessionError::caused(ErrorKind::Failed, &error))?;
    print(&toml)
}

/// A server of models.
pub(super) struct Server {
    client: Client,
    /// The address with `/v1`, and without it.
    base_url: String,
    root: String,
    host: String,
    key: ApiKey,
}

impl Server {
    /// Finds the server of a model, whose name has the protocol.
    pub(super) fn of(model: &str, base_url: &str, key: ApiKey) -> Result<Self, SessionError> {
        let trimmed = base_url.trim_end_matches('/');
        // The version is a part of the path there.
        let address = match Wire::of(model) {
            Wire::Vertex => {
                return Err(SessionError::usage(
                    "Vertex AI is not queried; the table has its models under the names of their providers",
                ));
            }
            Wire::Anthropic if !trimmed.ends_with("/v1") => format!("{trimmed}/v1"),
            Wire::Gemini if !base_url.contains("/v1") => format!("{trimmed}/v1beta"),
            _ => base_url.to_owned(),
        };
        Self::new(&address, key).map_err(|problem| {
            SessionError::usage(format!("the server `{}` cannot be queried: {problem}", excerpt(base_url)))
        })
    }

    /// Requests the list of models.
    ///
    /// # Errors
    /// The problem: the server cannot be reached, refuses the key, or has no list.
    pub(super) async fn lists_models(&self) -> Result<(), String> {
        self.get(&format!("{}/models", self.base_url)).await.map(drop)
    }

    fn new(address: &str, key: ApiKey) -> Result<Self, String> {
        let url = base_url(address)?;
        let client = client(&url, PATIENCE).map_err(|error| root_cause(&*error))?;
        let host = url.origin().ascii_serialization();
        let base_url = url.as_str().trim_end_matches('/').to_owned();
        let root = base_url.strip_suffix("/v1").unwrap_or(&base_url).to_owned();
        Ok(Self { client, base_url, root, host, key })
    }

    /// Queries the places in which servers report a model.
    ///
    /// # Errors
    /// The problem of the first query, if none has reported anything.
    async fn learn(&self, model: &str) -> Result<ModelInfo, String> {
        let mut learned =
            ModelInfo { id: model.to_owned(), source: self.host.clone(), ..ModelInfo::default() };
        let empty = learned.clone();
        let Self { base_url, root, .. } = self;
        let mut problem = None;
        let list = self.get(&format!("{base_url}/models")).await;
        match list {
            Ok(list) => of_list(&mut learned, &list),
            Err(unreachable) => problem = Some(unreachable),
        }
        type Reads = fn(&mut ModelInfo, &Value);
        // Gemini has its limits beside the compatible interface.
        let native = base_url.strip_suffix("/openai");
        let own = |root: &str| (format!("{root}/models/{model}"), of_model as Reads);
        let rest: [(String, Reads); 2] =
            [(format!("{root}/props"), of_props), (format!("{root}/api/v1/models"), of_lm_studio)];
        for (address, read) in [own(base_url)].into_iter().chain(native.map(own)).chain(rest) {
            if learned.window.is_some() {
                return Ok(learned);
            }
            if let Ok(reported) = self.get(&address).await {
                read(&mut learned, &reported);
            }
        }
        if learned.window.is_none() {
            let shown =
                self.client.post(format!("{root}/api/show")).body(json!({ "model": model }).to_string());
            if let Ok(shown) = self.send(shown.header("content-type", "application/json")).await {
                of_ollama(&mut learned, &shown);
            }
            if let Ok(loaded) = self.get(&format!("{root}/api/ps")).await {
                of_loaded(&mut learned, &loaded);
            }
        }
        if learned == empty {
            return Err(
                problem.unwrap_or_else(|| "it has no limits, abilities or prices of models".to_owned())
            );
        }
        Ok(learned)
    }

    async fn get(&self, address: &str) -> Result<Value, String> {
        self.send(self.client.get(address)).await
    }

    /// Sends a request with the key under the names of all providers.
    async fn send(&self, request: RequestBuilder) -> Result<Value, String> {
        let key = self.key.reveal();
        let request = match key {
            "" => request,
            key => request.bearer_auth(key).header("x-api-key", key).header("x-goog-api-key", key),
        };
        let request = request.header("anthropic-version", "2023-06-01").timeout(PATIENCE);
        let response = request.send().await.map_err(|error| root_cause(&error))?;
        if !response.status().is_success() {
            return Err(format!("the server answered {}", response.status().as_u16()));
        }
        serde_json::from_slice(&body(response).await?).map_err(|_| "its answer is not JSON".to_owned())
    }
}

async fn body(mut response: Response) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while let Some(more) = response.chunk().await.map_err(|error| root_cause(&error))? {
        if bytes.len() + more.len() > MAX_BYTES {
            return Err(format!("its answer is longer than {} MiB", MAX_BYTES >> 20));
        }
        bytes.extend_from_slice(&more);
    }
    Ok(bytes)
}

/// Reads the entry of the model in a list: of vLLM, OpenRouter, and others.
fn of_list(learned: &mut ModelInfo, list: &Value) {
    let all = list["data"].as_array().or(list.as_array());
    let id = learned.id.clone();
    if let Some(model) = all.into_iter().flatten().find(|model| model["id"] == *id) {
        of_model(learned, model);
    }
}

/// Reads a model: of Anthropic, OpenRouter, vLLM, or Gemini.
fn of_model(learned: &mut ModelInfo, model: &Value) {
    let top = &model["top_provider"];
    let windows = [
        &model["max_input_tokens"],
        &model["max_model_len"],
        &model["inputTokenLimit"],
        &model["context_length"],
        &top["context_length"],
    ];
    learned.window = windows.into_iter().filter_map(tokens).min().or(learned.window);
    let outputs = [&model["max_tokens"], &model["outputTokenLimit"], &top["max_completion_tokens"]];
    learned.max_output = outputs.into_iter().filter_map(tokens).min().or(learned.max_output);
    learned.price = price(&model["pricing"]).or(learned.price.take());
    let capabilities = &model["capabilities"];
    let supported = |name: &str| capabilities[name]["supported"] == true;
    let parameters = model["supported_parameters"].as_array();
    let takes = |name: &str| parameters.is_some_and(|all| all.iter().any(|parameter| parameter == name));
    let modalities = model["architecture"]["input_modalities"].as_array();
    let reads = |name: &str| modalities.is_some_and(|all| all.iter().any(|modality| modality == name));
    let types = &capabilities["thinking"]["types"];
    for (ability, has) in [
        ("images", supported("image_input") || reads("image")),
        ("audio", reads("audio")),
        ("pdf", supported("pdf_input") || reads("file")),
        ("schema", supported("structured_outputs") || takes("structured_outputs")),
        ("tools", takes("tools")),
        ("reasoning", supported("thinking") || takes("reasoning")),
        ("adaptive", types["adaptive"]["supported"] == true),
    ] {
        add(learned, ability, has);
    }
}

/// Reads the properties of llama.cpp's server.
fn of_props(learned: &mut ModelInfo, props: &Value) {
    learned.window = tokens(&props["default_generation_settings"]["n_ctx"]).or(learned.window);
    add(learned, "images", props["modalities"]["vision"] == true);
    add(learned, "audio", props["modalities"]["audio"] == true);
}

/// Reads the list of LM Studio. The window of a loaded model counts before its maximum.
fn of_lm_studio(learned: &mut ModelInfo, list: &Value) {
    let id = learned.id.clone();
    let is_it = |model: &&Value| model["key"] == *id || model["id"] == *id;
    let Some(model) = list["models"].as_array().into_iter().flatten().find(is_it) else { return };
    let loaded = model["loaded_instances"].as_array().into_iter().flatten();
    let loaded = loaded.filter_map(|instance| tokens(&instance["config"]["context_length"])).min();
    learned.window = loaded.or(tokens(&model["max_context_length"])).or(learned.window);
    add(learned, "images", model["capabilities"]["vision"] == true);
    add(learned, "tools", model["capabilities"]["trained_for_tool_use"] == true);
}

/// Reads a model of Ollama.
fn of_ollama(learned: &mut ModelInfo, shown: &Value) {
    let info = shown["model_info"].as_object();
    let length = info.into_iter().flatten().find(|(name, _)| name.ends_with(".context_length"));
    learned.window = length.and_then(|(_, length)| tokens(length)).or(learned.window);
    let abilities = shown["capabilities"].as_array().into_iter().flatten();
    for ability in abilities.filter_map(Value::as_str) {
        let names = [("vision", "images"), ("tools", "tools"), ("thinking", "reasoning")];
        let known = names.into_iter().find(|(name, _)| *name == ability);
        known.into_iter().for_each(|(_, ability)| add(learned, ability, true));
    }
}

/// Reads the loaded models of Ollama. The smaller window counts.
fn of_loaded(learned: &mut ModelInfo, loaded: &Value) {
    let id = learned.id.clone();
    let is_it = |model: &&Value| model["name"] == *id || model["model"] == *id;
    let loaded = loaded["models"].as_array().into_iter().flatten().filter(is_it);
    let loaded = loaded.filter_map(|model| tokens(&model["context_length"]));
    learned.window = loaded.chain(learned.window).min();
}

fn add(learned: &mut ModelInfo, ability: &str, has: bool) {
    if has {
        learned.can.insert(ability.to_owned());
    }
}

fn tokens(value: &Value) -> Option<u64> {
    value.as_u64().filter(|tokens| *tokens > 0)
}

/// Reads the prices of OpenRouter, which are dollars per token.
fn price(pricing: &Value) -> Option<Prices> {
    let of = |name: &str| per_million(pricing[name].as_str()?);
    Some(Prices {
        input: of("prompt")?,
        cached: of("input_cache_read"),
        cache_write: of("input_cache_write"),
        cache_write_1h: None,
        output: of("completion")?,
        reasoning: of("internal_reasoning").filter(|price| price.per_million().0 > 0),
        above: Vec::new(),
    })
}

/// Converts a price per token, exactly.
fn per_million(per_token: &str) -> Option<Price> {
    let (whole, fraction) = per_token.split_once('.').unwrap_or((per_token, ""));
    if whole.is_empty() {
        return None;
    }
    let fraction = format!("{fraction:0<6}");
    let (millionths, rest) = (fraction.get(..6)?, fraction.get(6..)?.trim_end_matches('0'));
    let rest = if rest.is_empty() { "0" } else { rest };
    format!("{whole}{millionths}.{rest}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(read: fn(&mut ModelInfo, &Value), reported: Value) -> ModelInfo {
        let mut learned = ModelInfo { id: "m".to_owned(), ..ModelInfo::default() };
        read(&mut learned, &reported);
        learned
    }

    fn facts(info: &ModelInfo) -> (Option<u64>, Option<u64>, Vec<&str>) {
        (info.window, info.max_output, info.can.iter().map(String::as_str).collect())
    }

    #[test]
    fn every_server_has_its_own_place() {
        let anthropic = json!({
            "id": "m", "max_input_tokens": 1_000_000, "max_tokens": 128_000,
            "capabilities": {
                "image_input": { "supported": true }, "pdf_input": { "supported": false },
                "thinking": { "supported": true, "types": { "adaptive": { "supported": true } } },
            },
        });
        let router = json!({ "data": [{ "id": "other" }, {
            "id": "m", "context_length": 200_000,
            "top_provider": { "context_length": 131_072, "max_completion_tokens": 8_192 },
            "supported_parameters": ["tools", "structured_outputs"],
        }] });
        let ollama = json!({ "model_info": { "qwen3.context_length": 40_960 }, "capabilities": ["completion", "tools"] });
        let lm_studio = json!({ "models": [{
            "key": "m", "max_context_length": 131_072, "capabilities": { "vision": true },
            "loaded_instances": [{ "config": { "context_length": 8_192 } }],
        }] });
        let props =
            json!({ "default_generation_settings": { "n_ctx": 4_096 }, "modalities": { "audio": true } });
        type Reads = fn(&mut ModelInfo, &Value);
        let reads: [(Reads, Value, _); 7] = [
            (of_model, anthropic, (Some(1_000_000), Some(128_000), vec!["adaptive", "images", "reasoning"])),
            (of_model, json!({ "inputTokenLimit": 9, "outputTokenLimit": 8 }), (Some(9), Some(8), vec![])),
            (of_list, router, (Some(131_072), Some(8_192), vec!["schema", "tools"])),
            (
                of_list,
                json!({ "data": [{ "id": "m", "max_model_len": 32_768 }] }),
                (Some(32_768), None, vec![]),
            ),
            (of_ollama, ollama, (Some(40_960), None, vec!["tools"])),
            (of_lm_studio, lm_studio, (Some(8_192), None, vec!["images"])),
            (of_props, props, (Some(4_096), None, vec!["audio"])),
        ];
        for (read, reported, wanted) in reads {
            assert_eq!(facts(&learned(read, reported.clone())), wanted, "{reported}");
        }
    }

    #[test]
    fn a_loaded_model_has_the_smaller_window() {
        let mut info = learned(of_ollama, json!({ "model_info": { "q.context_length": 40_960 } }));
        of_loaded(
            &mut info,
            &json!({ "models": [{ "name": "n", "context_length": 1 }, { "name": "m", "context_length": 8_192 }] }),
        );
        assert_eq!(info.window, Some(8_192));
    }

    #[test]
    fn reports_of_a_wrong_form_say_nothing() {
        let reads: [fn(&mut ModelInfo, &Value); 6] =
            [of_model, of_list, of_ollama, of_lm_studio, of_props, of_loaded];
        for read in reads {
            for reported in
                [json!(null), json!([]), json!("x"), json!({ "data": 3, "models": {}, "capabilities": [1] })]
            {
                assert_eq!(facts(&learned(read, reported)), (None, None, vec![]));
            }
        }
        assert_eq!(learned(of_model, json!({ "max_tokens": 0, "context_length": -1 })).window, None);
    }

    #[test]
    fn prices_per_token_are_converted_exactly() {
        for (per_token, price) in [
            ("0.000003", "3"),
            ("0.0000002", "0.2"),
            ("0", "0"),
            ("0.00000000125", "0.00125"),
            ("1", "1000000"),
        ] {
            assert_eq!(
                per_million(per_token).map(|price| price.to_string()).as_deref(),
                Some(price),
                "{per_token}"
            );
        }
        for wrong in ["-1", "1e-6", "", "é.é"] {
            assert_eq!(per_million(wrong), None, "{wrong}");
        }
        let prices = json!({ "prompt": "0.000003", "completion": "0.000015", "internal_reasoning": "0" });
        let prices = price(&prices).unwrap();
        assert_eq!((prices.output.to_string().as_str(), prices.reasoning), ("15", None));
    }
}
