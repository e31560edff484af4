//! Histories that were written by hand.

use super::*;

/// An operation on thread `t` from one time to another.
fn operation(lease: &str, what: What, begun: u64, ended: u64, outcome: Outcome) -> Operation {
    let (thread, lease) = ("t".to_owned(), Some(lease.to_owned()));
    Operation { thread, lease, what, begun, ended: Some((ended, outcome)) }
}

const DONE: Outcome = Outcome::Done { head: 0 };

fn head(head: u64) -> Outcome {
    Outcome::Done { head }
}

fn leased(name: &str, begun: u64, ended: u64) -> Operation {
    operation(name, What::Lease, begun, ended, DONE)
}

fn commit(lease: &str, writer: &str, begun: u64, ended: u64, outcome: Outcome) -> Operation {
    operation(lease, What::Commit { writer: writer.into() }, begun, ended, outcome)
}

fn load(begun: u64, ended: u64, at: u64) -> Operation {
    operation("-", What::Load, begun, ended, head(at))
}

fn record(lease: &str, keys: &[&str], begun: u64, ended: u64) -> Operation {
    operation(
        lease,
        What::Record { keys: keys.iter().map(|key| (*key).into()).collect() },
        begun,
        ended,
        DONE,
    )
}

fn executed(lease: &str, name: &str, key: &str, at: u64) -> Operation {
    operation(lease, What::Execute { name: name.into(), key: key.into() }, at, at, DONE)
}

fn sent(id: &str, begun: u64, ended: u64) -> Operation {
    Operation { lease: None, ..operation("-", What::Send { id: id.into() }, begun, ended, DONE) }
}

/// Thread `t` with the checkpoints of these writers.
fn chain(writers: &[&str]) -> Chain {
    let stored = |(id, writer): (u64, &&str)| Stored {
        id,
        parent: Some(id - 1).filter(|parent| *parent > 0),
        writer: Some((*writer).to_owned()),
        inputs: Vec::new(),
    };
    Chain { thread: "t".to_owned(), checkpoints: (1..).zip(writers).map(stored).collect() }
}

fn with_inputs(mut chain: Chain, inputs: &[&str]) -> Chain {
    for (stored, id) in chain.checkpoints.iter_mut().zip(inputs) {
        stored.inputs = vec![(*id).to_owned()];
    }
    chain
}

#[track_caller]
fn assert_found(operations: &[Operation], chain: Chain, expected: &[Violation]) {
    assert_eq!(check(operations, &[chain]), expected);
}

fn t() -> String {
    "t".to_owned()
}

/// A owns the thread, is stopped, and wakes up after B took over.
fn take_over() -> Vec<Operation> {
    vec![
        sent("i", 0, 1),
        leased("A", 2, 3),
        load(4, 5, 0),
        commit("A", "a1", 6, 7, head(1)),
        executed("A", "pay", "k", 8),
        // Stopped before the answer; stored.
        Operation { ended: None, ..commit("A", "a2", 9, 0, DONE) },
        leased("B", 20, 21),
        load(22, 23, 2),
        executed("B", "pay", "k", 24),
        record("B", &["k"], 25, 26),
        // It wakes up in the middle of its task.
        executed("A", "pay", "k", 27),
        commit("A", "a3", 28, 29, Outcome::Refused),
        commit("B", "b1", 30, 32, head(3)),
        commit("B", "b2", 33, 34, Outcome::Unknown),
        load(31, 35, 2),
    ]
}

#[test]
fn a_history_with_a_stopped_owner_a_lost_answer_and_an_open_request_is_correct() {
    assert_found(&take_over(), with_inputs(chain(&["a1", "a2", "b1"]), &["i"]), &[]);
    // The open request may be stored as well.
    assert_found(&take_over(), with_inputs(chain(&["a1", "a2", "b1", "b2"]), &["i"]), &[]);
}

#[test]
fn an_acknowledged_commit_that_is_missing_or_elsewhere_is_lost() {
    let history = [leased("A", 0, 1), commit("A", "a1", 2, 3, head(1)), commit("A", "a2", 4, 5, head(2))];
    let lost = |writer: &str| Violation::Lost { writer: writer.into() };
    assert_found(&history, chain(&["a1"]), &[lost("a2")]);
    assert_found(&history, chain(&["a2", "a1"]), &[lost("a1"), lost("a2")]);
}

#[test]
fn a_commit_that_is_stored_twice_refused_or_unknown_is_found() {
    let history =
        [leased("A", 0, 1), commit("A", "a1", 2, 3, head(1)), commit("A", "a2", 4, 5, Outcome::Refused)];
    assert_found(&history, chain(&["a1", "a1"]), &[Violation::Twice { writer: "a1".into() }]);
    assert_found(&history, chain(&["a1", "a2"]), &[Violation::Refused { writer: "a2".into() }]);
    assert_found(&history, chain(&["a1", "?"]), &[Violation::Phantom { thread: t(), id: 2 }]);
    let mut forked = chain(&["a1"]);
    forked.checkpoints[0].parent = Some(7);
    assert_found(&history, forked, &[Violation::Forked { thread: t(), id: 1 }]);
}

#[test]
fn a_head_that_goes_back_or_comes_from_the_future_is_found() {
    let commits = [leased("A", 0, 1), commit("A", "a1", 2, 3, head(1)), commit("A", "a2", 6, 9, head(2))];
    let with = |load: Operation| commits.iter().cloned().chain([load]).collect::<Vec<_>>();
    let both = || chain(&["a1", "a2"]);
    // During the commit, a read may see either head, and later ones no older one.
    assert_found(&with(load(7, 8, 1)), both(), &[]);
    assert_found(&with(load(7, 8, 2)), both(), &[]);
    let read_twice: Vec<_> = with(load(7, 8, 2)).into_iter().chain([load(9, 10, 1)]).collect();
    assert_found(&read_twice, both(), &[Violation::Backwards { thread: t(), head: 1 }]);
    assert_found(&with(load(4, 5, 0)), both(), &[Violation::Backwards { thread: t(), head: 0 }]);
    assert_found(
        &with(load(4, 5, 2)),
        both(),
        &[Violation::Backwards { thread: t(), head: 2 }, Violation::Future { thread: t(), head: 2 }],
    );
}

#[test]
fn a_write_after_another_lease_was_received_is_found() {
    let fenced = Violation::Fenced { thread: t(), lease: "A".into() };
    for late in [commit("A", "a1", 20, 21, head(1)), record("A", &[], 20, 21)] {
        let writers: &[&str] = if late.writer().is_some() { &["a1"] } else { &[] };
        let history = [leased("A", 0, 1), leased("B", 10, 11), late];
        assert_found(&history, chain(writers), std::slice::from_ref(&fenced));
        // It may have been on its way when B received the lease, or A may have received its lease after B.
        for (of_a, begun) in [((0, 1), 9), ((0, 12), 20)] {
            let mut fair = history.clone();
            fair[0] = leased("A", of_a.0, of_a.1);
            fair[2].begun = begun;
            assert_found(&fair, chain(writers), &[]);
        }
    }
    // A process whose lease was never answered has replaced no other.
    let begun = Operation { ended: None, ..leased("B", 10, 11) };
    assert_found(&[leased("A", 0, 1), begun, commit("A", "a1", 20, 21, head(1))], chain(&["a1"]), &[]);
    let unleased = Operation { lease: None, ..commit("A", "a1", 2, 3, head(1)) };
    assert_found(&[unleased], chain(&["a1"]), &[Violation::Unleased { thread: t() }]);
}

#[test]
fn a_thread_under_a_leased_one_needs_the_same_lease() {
    let mut late = commit("A", "a1", 20, 21, head(1));
    let mut under = chain(&["a1"]);
    (late.thread, under.thread) = ("t\u{1f}child:0@1".into(), "t\u{1f}child:0@1".into());
    let fenced = Violation::Fenced { thread: late.thread.clone(), lease: "A".into() };
    assert_found(&[leased("A", 0, 1), leased("B", 10, 11), late], under, &[fenced]);
}

#[test]
fn checkpoints_of_two_leases_do_not_alternate() {
    let history = [
        leased("A", 0, 1),
        leased("B", 10, 11),
        Operation { ended: None, ..commit("A", "a1", 2, 0, DONE) },
        Operation { ended: None, ..commit("B", "b1", 12, 0, DONE) },
        Operation { ended: None, ..commit("A", "a2", 3, 0, DONE) },
    ];
    assert_found(&history, chain(&["a1", "a2", "b1"]), &[]);
    assert_found(&history, chain(&["a1", "b1", "a2"]), &[Violation::TwoWriters { thread: t(), id: 3 }]);
    assert_found(&history, chain(&["b1", "a1", "a2"]), &[Violation::TwoWriters { thread: t(), id: 2 }]);
}

#[test]
fn an_acknowledged_input_is_stored_once() {
    let history = [
        sent("i", 0, 1),
        sent("i", 2, 3),
        leased("A", 0, 1),
        commit("A", "a1", 2, 3, head(1)),
        commit("A", "a2", 4, 5, head(2)),
    ];
    let both = || chain(&["a1", "a2"]);
    assert_found(&history, with_inputs(both(), &["i"]), &[]);
    assert_found(&history, both(), &[Violation::LostInput { thread: t(), id: "i".into() }]);
    assert_found(
        &history,
        with_inputs(both(), &["i", "i"]),
        &[Violation::RepeatedInput { thread: t(), id: "i".into() }],
    );
}

#[test]
fn an_effect_has_one_key_and_is_not_repeated_after_its_record() {
    let mut history = vec![
        leased("A", 0, 1),
        executed("A", "pay", "k", 2),
        executed("A", "pay", "k", 3),
        record("A", &["k"], 4, 5),
    ];
    assert_found(&history, chain(&[]), &[]);
    history.push(executed("A", "pay", "k", 6));
    assert_found(&history, chain(&[]), &[Violation::Repeated { thread: t(), key: "k".into() }]);
    history.pop();
    history.push(executed("A", "pay", "other", 4));
    assert_found(&history, chain(&[]), &[Violation::Keys { thread: t(), name: "pay".into() }]);
}
