//! The example with a real model, played over loopback.

use superstep::llm::{OpenAiConfig, OpenAiModel};
use superstep_testing::{
    script::{Script, call, txt},
    wire::WireServer,
};

#[expect(dead_code, reason = "its `main` reads the environment")]
#[path = "../../../examples/openai.rs"]
mod openai;

#[tokio::test]
async fn the_example_asks_a_real_server_and_its_thread_outlives_the_program() {
    let script = Script::new([
        call("c1", "weather", r#"{"city":"Paris"}"#),
        txt("It is 21 °C in Paris."),
        txt("I have not looked."),
    ]);
    let server = WireServer::start(script).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let threads = folder.path().join("travel.db");
    let begin = || {
        let config = OpenAiConfig::new(server.base_url(), "sk-test", "m");
        openai::agent(OpenAiModel::new(config).unwrap(), threads.to_str().unwrap()).unwrap()
    };

    let reply = openai::ask(&begin(), "How warm is it in Paris?").await.unwrap();
    assert_eq!(reply, "It is 21 °C in Paris.");
    let reply = openai::ask(&begin(), "And in Rome?").await.unwrap();
    assert_eq!(reply, "I have not looked.");

    server.check().unwrap();
    let asked = server.requests();
    assert_eq!(asked[1]["messages"][3]["content"], "21 °C");
    assert_eq!(asked[2]["messages"].as_array().unwrap().len(), 6);
}
