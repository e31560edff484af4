//! Calls of functions with a `Cx`.

use super::*;
use superstep_testing::cx;

#[tokio::test]
async fn the_function_of_a_node_is_called_without_a_graph() {
    let charges = Charges::default();
    let test = cx().node("pay").answer("approve", true).effect("rate", 1);
    let called = test.call({
        let charges = charges.clone();
        move |cx| pay(charges.clone(), two_parts(), cx)
    });
    let called = called.await.unwrap();
    let update = called.output.unwrap().unwrap();
    assert_eq!((update.cents, charges.load(Ordering::SeqCst)), (Some(1), 1));
    assert_eq!(json!(called.effects), json!({ "charge": "live-1", "rate": 1 }));
}

#[tokio::test]
async fn a_call_sees_its_surroundings() {
    let test = cx().node("look").now(5).step(3).thread("t").context("ada").seed(2);
    let called = test.call(async |cx: Cx| {
        cx.emit("seen", cx.now_ms());
        let user: String = cx.context().unwrap();
        (cx.node().to_string(), cx.step(), cx.thread().unwrap().to_string(), user)
    });
    let called = called.await.unwrap();
    assert_eq!(called.output.unwrap(), ("look".to_owned(), 3, "t".to_owned(), "ada".to_owned()));
    assert_eq!(called.events, [("seen".to_owned(), json!(5))]);
}

#[tokio::test]
async fn a_call_without_an_answer_has_a_question_and_no_output() {
    let called = cx().call(async |cx: Cx| cx.interrupt::<bool>("sure", "really?").await).await.unwrap();
    assert_eq!((called.output, called.questions.len()), (None, 1));
    assert_eq!(
        (called.questions[0].key.as_str(), &called.questions[0].question),
        ("sure", &json!("really?"))
    );
}

#[tokio::test]
async fn an_error_is_output_and_a_panic_is_not() {
    let called = cx().call(async |_: Cx| Err::<(), _>("no")).await.unwrap();
    assert_eq!((called.output, called.error.is_none()), (Some(Err("no")), true));
    let called = cx().call(async |_: Cx| -> () { panic!("no stock") }).await.unwrap();
    assert!(called.output.is_none() && called.error.is_some());
}

#[tokio::test]
async fn a_name_that_no_node_has_is_an_error() {
    let error = cx().node("a/b").call(async |_: Cx| ()).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("SS018: node name `a/b`") && text.contains("nodes/cx.rs"), "{text}");
}
