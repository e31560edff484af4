//! Whether a call may run, and asking about it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::{FutureExt, future::join_all};
use globset::GlobBuilder;
use serde_json::{Value, json};
use superstep_graph::NodeError;
use superstep_llm::Tool;

use super::{Executor, Pending};
use crate::{Approval, ApprovalRequest, Approvals, PermissionRule, Permit, events, texts};

/// What is to happen to a call that could be executed.
#[derive(Clone)]
pub(super) enum Verdict {
    /// It runs.
    Run,
    /// Somebody is asked this.
    Ask(String),
    /// It does not run, and the model reads this.
    Refuse(String),
}

/// What came of a call that was to be permitted.
pub(super) enum Permission {
    /// It runs.
    Go {
        args: Value,
        /// What the model reads before the result.
        notice: Option<String>,
        /// What else was permitted, for good.
        rule: Option<PermissionRule>,
    },
    /// It does not run, and this is its result all the same.
    Answer(String),
    /// It does not run.
    No {
        /// What the model reads.
        text: String,
        /// Whether somebody denied it.
        denied: bool,
    },
}

impl Permission {
    fn no(text: String) -> Self {
        Self::No { text, denied: false }
    }
}

impl Executor {
    /// What is to happen to a call with these arguments, before anybody is asked.
    fn verdict(&self, tool: &dyn Tool, name: &str, args: &Value) -> Verdict {
        self.verdict_with(tool, name, args, self.remembered(name, args))
    }

    /// The same, with what the thread remembers of it.
    fn verdict_with(&self, tool: &dyn Tool, name: &str, args: &Value, remembered: Option<Permit>) -> Verdict {
        let configured = last_about(&self.deps.config.permissions, name, args);
        // What somebody permitted for good answers a question; it does not lift a prohibition, for nobody was asked about that.
        let permit = match configured {
            Some(Permit::Deny) => Some(Permit::Deny),
            other => remembered.or(other),
        };
        match permit {
            Some(Permit::Allow) => return Verdict::Run,
            Some(Permit::Deny) => return Verdict::Refuse(texts::denied("a rule forbids it")),
            Some(Permit::Ask) | None => {}
        }
        let asks = match catch_unwind(AssertUnwindSafe(|| tool.approval(args))) {
            Ok(asks) => asks,
            Err(panic) => return Verdict::Refuse(texts::failed(name, &texts::tool_panicked(&*panic))),
        };
        match (asks, permit) {
            (Some(question), _) => Verdict::Ask(question),
            (None, Some(_)) => Verdict::Ask(format!("Run {name} with {args}?")),
            (None, None) => Verdict::Run,
        }
    }

    /// What the rules say that the thread remembers.
    fn remembered(&self, name: &str, args: &Value) -> Option<Permit> {
        last_about(&self.permissions.lock().expect("nobody panics while holding it"), name, args)
    }

    /// The same for a call that may be no call of a tool at all, or with arguments that cannot be used: nothing then.
    pub(super) fn verdict_on(&self, call: &Pending) -> Option<Verdict> {
        let is_open = call.refused.is_none() && call.denied().is_none();
        let Some(Ok(args)) = call.checked.as_ref().filter(|_| is_open) else { return None };
        let tool = self.deps.tools.get(&call.name)?;
        Some(self.verdict(&**tool, &call.name, args))
    }

    /// What is about to happen, for a replay: the call, and what would happen to it by what was permitted before this round.
    pub(super) fn about(&self, call: &Pending) -> Value {
        let args = call.args();
        let verdict = match (&call.checked, self.deps.tools.get(&call.name), call.denied()) {
            (_, _, Some(reason)) => json!({ "denied": reason }),
            (Some(Ok(args)), Some(tool), None) => {
                let permissions: Vec<_> = self.state.permissions.iter().cloned().collect();
                match self.verdict_with(&**tool, &call.name, args, last_about(&permissions, &call.name, args))
                {
                    Verdict::Run => json!("run"),
                    Verdict::Ask(question) => json!({ "ask": question }),
                    Verdict::Refuse(text) => json!({ "refuse": text }),
                }
            }
            (Some(Err(error)), ..) => json!({ "refuse": error.to_string() }),
            _ => Value::Null,
        };
        json!({ "tool": call.name, "args": args, "verdict": verdict })
    }

    /// Has the calls decided that wait for it, all of them before the first one runs.
    pub(super) async fn decide(&self, calls: &mut [(usize, Pending)]) -> Result<(), NodeError> {
        match &self.deps.approvals {
            Approvals::Deny => {}
            Approvals::Interrupt => {
                let asked = calls.iter().map(|(_, call)| async {
                    match call.request() {
                        Some(request) => Some(self.decided_outside(request).await),
                        None => None,
                    }
                });
                let decisions = join_all(asked).await;
                for ((_, call), decision) in calls.iter_mut().zip(decisions) {
                    call.decision = decision;
                }
            }
            Approvals::Ask(_) => {
                for (position, call) in calls {
                    let Some(request) = call.request() else { continue };
                    // Stored, for nobody is to be asked again should the node run again.
                    let mark = format!("decision.{position}");
                    call.decision =
                        self.cx.once(&mark, async |_| Ok::<_, NodeError>(self.ask(&request).await)).await?;
                }
            }
        }
        Ok(())
    }

    /// Interrupts the run until a call is decided on.
    async fn decided_outside(&self, mut request: ApprovalRequest) -> Approval {
        for round in 1.. {
            let key = match round {
                1 => request.call_id.clone(),
                _ => format!("{}.{round}", request.call_id),
            };
            if !self.cx.is_answered(&key) {
                events::approval_requested(&self.cx, &request);
            }
            let approval: Approval = self.cx.ask(&key, &request).await;
            match self.problem(&request.tool, &approval) {
                Some(problem) => request.problem = Some(problem),
                None => return approval,
            }
        }
        unreachable!("the loop ends with a decision that can be used")
    }

    /// Why a decision cannot be used.
    fn problem(&self, tool: &str, decision: &Approval) -> Option<String> {
        if let Approval::Edit(args) = decision {
            return self.deps.tools.check(tool, &args.to_string())?.err().map(|error| error.to_string());
        }
        decision.rule(tool)?.problem()
    }

    /// Asks whoever is there; nothing if the turn is cancelled meanwhile. Who panics does not approve.
    async fn ask(&self, request: &ApprovalRequest) -> Option<Approval> {
        let Approvals::Ask(approver) = &self.deps.approvals else { return None };
        let asked = async {
            let _asking = self.asking.lock().await;
            // While others were asked it may have been permitted for good.
            if self.remembered(&request.tool, &request.args) == Some(Permit::Allow) {
                return Approval::Approve;
            }
            let decision = approver.ask(request).await;
            self.remember(decision.rule(&request.tool));
            decision
        };
        tokio::select! {
            biased;
            () = self.cx.cancel().cancelled() => None,
            decision = AssertUnwindSafe(asked).catch_unwind() => Some(decision.unwrap_or_else(|panic| {
                Approval::Deny(format!("whoever was asked panicked: {}", texts::panic(&*panic)))
            })),
        }
    }

    fn remember(&self, rule: Option<PermissionRule>) {
        let rule = rule.filter(|rule| rule.problem().is_none());
        self.permissions.lock().expect("nobody panics while holding it").extend(rule);
    }

    /// Whether a call may run, and with what; whoever is to be asked is asked now if nobody was before.
    pub(super) async fn permission(&self, tool: &dyn Tool, call: &Pending, args: Value) -> Permission {
        let name = call.name.as_str();
        let verdict = call.verdict.clone().unwrap_or_else(|| self.verdict(tool, name, &args));
        let question = match verdict {
            Verdict::Run => return Permission::Go { args, notice: None, rule: None },
            Verdict::Refuse(text) => return Permission::no(text),
            Verdict::Ask(question) => question,
        };
        let decision = match (&call.decision, &self.deps.approvals) {
            (Some(decision), _) => Some(decision.clone()),
            (None, Approvals::Ask(_)) => self.ask(&ApprovalRequest::new(call, &args, question)).await,
            (None, Approvals::Deny | Approvals::Interrupt) => {
                return Permission::no(texts::denied("nobody is there to approve it"));
            }
        };
        let Some(decision) = decision else { return Permission::no(texts::INTERRUPTED.to_owned()) };
        if let Some(problem) = self.problem(name, &decision) {
            return Permission::no(match decision {
                Approval::Edit(_) => texts::bad_args(name, &problem),
                _ => texts::denied(&problem),
            });
        }
        let rule = decision.rule(name);
        match decision {
            Approval::Approve | Approval::Always | Approval::AlwaysFor(_) => {
                Permission::Go { args, notice: None, rule }
            }
            Approval::Edit(args) => Permission::Go { notice: Some(texts::edited(&args)), args, rule },
            Approval::Deny(reason) => Permission::No { text: texts::denied(&reason), denied: true },
            Approval::Respond(text) => Permission::Answer(text),
        }
    }
}

impl Pending {
    /// What is asked about it; nothing if nobody is.
    fn request(&self) -> Option<ApprovalRequest> {
        match (&self.verdict, &self.checked) {
            (Some(Verdict::Ask(question)), Some(Ok(args))) => {
                Some(ApprovalRequest::new(self, args, question.clone()))
            }
            _ => None,
        }
    }
}

impl ApprovalRequest {
    fn new(call: &Pending, args: &Value, question: String) -> Self {
        let (call_id, tool) = (call.call.id.clone(), call.name.clone());
        Self { call_id, tool, args: args.clone(), question, problem: None }
    }
}

/// What the last rule says that is about a call.
fn last_about(rules: &[PermissionRule], tool: &str, args: &Value) -> Option<Permit> {
    rules.iter().rev().find(|rule| matches(rule, tool, args)).map(|rule| rule.then)
}

/// Whether a rule is about a call. Patterns were checked when the agent was built; one that is none matches nothing.
fn matches(rule: &PermissionRule, tool: &str, args: &Value) -> bool {
    let fits = |pattern: &str, text: &str| {
        GlobBuilder::new(pattern).build().is_ok_and(|glob| glob.compile_matcher().is_match(text))
    };
    let argument = |(name, pattern): (&String, &String)| match &args[name.as_str()] {
        Value::Null => false,
        Value::String(text) => fits(pattern, text),
        other => fits(pattern, &other.to_string()),
    };
    fits(&rule.tool, tool) && rule.arguments.iter().all(argument)
}
