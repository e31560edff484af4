//! The usage of sub-agents, and their time limits.

use superstep::{
    agent::config::{AtLimit, Limit},
    clock::TokioClock,
};

use super::*;

/// Returns the usage of this number of requests.
fn of(requests: usize) -> Usage {
    let requests = u64::try_from(requests).unwrap();
    Usage::new(40 * requests, 10 * requests)
}

/// Creates a run on the clock of the test.
fn timed() -> RunOptions {
    t().clock(TokioClock::starting_at(0))
}

fn patient() -> ReactConfig {
    ReactConfig { tool_timeout: None, ..preset() }
}

#[tokio::test(start_paused = true)]
async fn usage_of_a_sub_agent_counts_for_every_end() {
    let rounds: &[&[(&str, &str)]] = &[&[ECHO], &[HANG]];
    let (soon, ms) = (Duration::from_millis(40), Duration::from_millis);
    let limit = Limit { max: 1, at: AtLimit::Fail, ..preset().limit };
    let budget = Budget { wall: Some(soon), reserve_final: true, ..Budget::default() };
    for ended in ["timed out", "budget exhausted", "interrupted by the user", "limit of 1"] {
        let (kit, boss, digger) = (Kit::default(), caller("boss", &[&[DIG]]), caller("digger", rounds));
        let config = match ended {
            "limit of 1" => ReactConfig { limit: limit.clone(), ..patient() },
            _ => patient(),
        };
        let mut own = sub("digger", agent(&digger, &kit, &["echo", "hang"]).config(config)).share(1.0);
        if ended == "timed out" {
            own = own.timeout(soon);
        }
        let mut config = patient();
        if ended == "budget exhausted" {
            config.budget = budget.clone();
        }
        let agent = agent(&boss, &kit, &[]).config(config).sub_agent(own);
        let agent = agent.checkpointer(Arc::new(MemoryCheckpointer::new())).build().unwrap();
        let run = timed();
        let token = run.get_cancel().clone();
        let cancel = async {
            tokio::time::sleep(ms(80)).await;
            token.cancel();
        };
        let (end, ()) = tokio::join!(agent.configured(run).run(agent.input("go")), cancel);
        let state = end.unwrap().state;
        assert!(state.tool_result_history[0].contains(ended), "{ended}: {:?}", state.tool_result_history);
        assert!(digger.asked() > 0, "{ended}");
        assert_eq!(state.usage, of(boss.asked() + digger.asked()), "{ended}");
    }
}

#[tokio::test(start_paused = true)]
async fn usage_before_a_question_counts_if_the_time_is_over_after_the_answer() {
    let (kit, store) = (Kit::default(), Arc::new(MemoryCheckpointer::new()));
    let (boss, digger) = (caller("boss", &[&[DIG]]), caller("digger", &[&[SEND], &[HANG]]));
    let open = || {
        let own = sub("digger", agent(&digger, &kit, &["send", "hang"]).config(patient()));
        let agent = agent(&boss, &kit, &[]).sub_agent(own.timeout(Duration::from_millis(40)));
        agent.checkpointer(store.clone()).build().unwrap()
    };
    let asked = open().thread("t").ask("go").await.unwrap();
    let answers = Answers::new().answer(asked.interrupts[0].id.as_str(), Approval::Approve);
    let reply = open().thread("t").answers(answers).resume().await.unwrap();
    assert!(reply.text.contains("timed out after 40 ms"), "{}", reply.text);
    assert_eq!((digger.asked(), reply.usage), (2, of(4)));
}

#[tokio::test(start_paused = true)]
async fn no_clock_ends_a_sub_agent_that_waits_for_an_answer_while_another_one_works() {
    let asks = ("asker", r#"{"task":"ask"}"#);
    let slow = ("slow", r#"{"x":"a"}"#);
    let budget = Budget { wall: Some(Duration::from_millis(200)), ..Budget::default() };
    for (budget, result) in [(Budget::default(), "r:a"), (budget, "budget exhausted")] {
        let kit = Kit::default();
        let (boss, asker) = (caller("boss", &[&[asks, DIG]]), caller("asker", &[&[SEND]]));
        let digger = caller("digger", &[&[slow]]);
        let config = ReactConfig {
            tool_mode: ToolMode::Parallel { max: 4 },
            tool_timeout: Some(Duration::from_millis(70)),
            budget,
            ..preset()
        };
        let own = sub("digger", agent(&digger, &kit, &["slow"]).config(patient())).share(1.0);
        let agent = agent(&boss, &kit, &[]).config(config).sub_agent(own.timeout(Duration::from_secs(1)));
        let agent = agent.sub_agent(sub("asker", self::agent(&asker, &kit, &["send"])));
        let agent = agent.checkpointer(Arc::new(MemoryCheckpointer::new())).build().unwrap();
        let asked = agent.thread("t").clock(TokioClock::starting_at(0)).ask("go").await.unwrap();
        assert_eq!((asked.outcome, asked.interrupts.len()), (AgentOutcome::AwaitingApproval, 1));
        let answers = Answers::new().answer(asked.interrupts[0].id.as_str(), Approval::Approve);
        let reply =
            agent.thread("t").clock(TokioClock::starting_at(0)).answers(answers).resume().await.unwrap();
        let state = agent.graph().thread("t").state().await.unwrap().values;
        assert!(reply.text.starts_with("boss: asker: sent, "), "{}", reply.text);
        assert!(state.tool_result_history[1].contains(result), "{:?}", state.tool_result_history);
        assert_eq!((kit.n("send"), kit.n("slow")), (1, 1));
    }
}

#[tokio::test]
async fn usage_of_sub_agents_is_reported_by_model() {
    let kit = Kit::default();
    let deep = caller("deep", &[&[ECHO]]);
    let middle = caller("middle", &[&[("deep", r#"{"task":"deeper"}"#)]]);
    let boss = caller("boss", &[&[("middle", r#"{"task":"a"}"#), DIG], &[ECHO]]);
    // The model may be the caller's own.
    let digger = caller("boss", &[&[ECHO]]);
    let between = agent(&middle, &kit, &[]).sub_agent(sub("deep", agent(&deep, &kit, &["echo"])));
    let agent = agent(&boss, &kit, &["echo"]).sub_agent(sub("middle", between));
    let agent = agent.sub_agent(sub("digger", self::agent(&digger, &kit, &["echo"]))).build().unwrap();
    let state = agent.without_thread().run(agent.input("go")).await.unwrap().state;
    let by_model: Vec<_> = state.usage_by_model.iter().map(|(model, usage)| (&**model, *usage)).collect();
    assert_eq!(by_model, [("boss", of(5)), ("deep", of(2)), ("middle", of(2))]);
    assert_eq!((state.usage, &state.metadata.usage_by_model), (of(9), &state.usage_by_model));
}

#[tokio::test]
async fn a_turn_with_one_model_reports_no_usage_by_model() {
    let (kit, boss, digger) = (Kit::default(), caller("m", &[&[DIG]]), caller("m", &[&[ECHO]]));
    let agent = office(&kit, &boss, &digger).build().unwrap();
    let state = agent.without_thread().run(agent.input("go")).await.unwrap().state;
    assert_eq!((state.usage, state.usage_by_model.len()), (of(4), 0));
}
