//! Planning of reductions when a request is too large.

use std::collections::BTreeSet;

use superstep_llm::{Message, Request, Role};

use super::{
    conversation_text::conversation_text,
    meter::Meter,
    retained::Keeper,
    shown::{Shown, is_of_user},
};
use crate::{
    AgentState,
    config::{
        ContextLayer,
        context::share,
        prompts::{CONSOLIDATE, SUMMARIZE_NOW},
    },
    state::{ContextView, view::Change},
};

/// The next step before the model call.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send the request: it is small enough, or all reductions were tried.
    Send,
    /// Send the request although it exceeds its limit by this number of tokens and cannot be reduced.
    TooLarge(u64),
    /// Send the request with another view.
    Change(Change),
    /// Summarize a part of the conversation with a model call.
    Consolidate(Consolidation),
    /// The request has no space for any conversation: the system prompt and the tools take `overhead` tokens of `limit`.
    NoRoom { overhead: u64, limit: u64 },
}

/// A planned summary.
#[derive(Clone, Debug)]
pub(crate) struct Consolidation {
    /// The change by the layers before, with the retained part. It has no summary yet.
    change: Change,
    /// The text to summarize.
    pub(crate) conversation: String,
    /// The prompt of the summarizing model.
    pub(crate) prompt: String,
}

/// Plans the next request. Summaries are planned only if `summaries` is set; one that is [requested](AgentState::compact) is due
/// before the first call of the turn, or of the agent that has taken the conversation over.
///
/// Depends on its arguments only.
pub(crate) fn plan(meter: Meter<'_>, state: &AgentState, summaries: bool) -> Step {
    let config = meter.config;
    if config.layers.is_empty() {
        return Step::Send;
    }
    let view = &state.context;
    let shown = Shown::new(&state.messages, view, config.micro());
    let limit = meter.limit(view);
    // Synthetic messages, such as results of a search, may follow the user's.
    let last_said = state.messages.iter().rev().find(|message| !message.synthetic);
    let is_new_turn = last_said.is_some_and(is_of_user);
    let prunes = is_new_turn && config.layers.iter().any(|layer| prunes_now(layer, meter, &shown));
    let last = &state.request_size;
    let fits = || meter.roughly().size(&shown, last) <= limit || meter.size(&shown, last) <= limit;
    let newest = state.messages.last().map_or("", |last| last.id.as_str());
    let is_settled = !newest.is_empty() && view.settled == newest;
    // A handoff requests one in the middle of a turn.
    let is_first = state.llm_calls == 0 || !state.handoffs.current.is_empty();
    let is_requested = summaries && state.compact && is_first;
    if !is_requested && !prunes && (is_settled || fits()) {
        return Step::Send;
    }
    if meter.frame() >= limit {
        return Step::NoRoom { overhead: meter.frame(), limit };
    }
    let overhead = meter.overhead();
    let size = meter.size(&shown, last);
    let mut plan = Plan::new(meter, shown, view.clone(), size, overhead, limit);
    if plan.change.after > limit {
        plan.leave_out_media(plan.last_group);
    }
    for layer in &config.layers {
        let is_too_large = plan.change.after > limit;
        match layer {
            ContextLayer::MicroCompact(_) if is_too_large => {
                let gain = share(plan.change.after, config.breaker.min_gain).max(1);
                plan.shorten(plan.last_group, gain);
            }
            ContextLayer::Prune { protect, min_gain, protect_turns, each_turn }
                if is_too_large || (*each_turn && is_new_turn) =>
            {
                plan.prune(*protect, *min_gain, *protect_turns);
            }
            ContextLayer::Consolidate { keep_recent, target, prompt }
                if is_requested || (is_too_large && summaries) =>
            {
                // A request means everything before the new message.
                let keep_recent = if is_requested { 1 } else { *keep_recent };
                if let Some(consolidation) = plan.consolidate(keep_recent, share(limit, *target), prompt) {
                    return Step::Consolidate(consolidation);
                }
            }
            ContextLayer::Snip { keep_last } if is_too_large => plan.snip(*keep_last),
            _ => {}
        }
    }
    if plan.change.after > limit && config.micro().is_some() {
        // A part of the unread messages is better than no reply at all.
        plan.shorten(state.messages.len(), 1);
    }
    if plan.change.after > limit {
        plan.leave_out_media(state.messages.len());
    }
    if plan.change.after > limit && config.snips() {
        plan.snip_to_fit();
    }
    // A view that leaves nothing out is not a change.
    let gains = plan.change.after < plan.change.before;
    match meter.over(&plan.change) {
        over if plan.change.view == *view || !gains => {
            if over > 0 {
                Step::TooLarge(over)
            } else {
                Step::Send
            }
        }
        over => {
            plan.change.view.over = over;
            Step::Change(plan.change)
        }
    }
}

/// Returns whether a layer may prune although the request is small enough; a cheap check.
fn prunes_now(layer: &ContextLayer, meter: Meter<'_>, shown: &Shown<'_>) -> bool {
    let ContextLayer::Prune { protect, min_gain, each_turn: true, .. } = layer else { return false };
    let places = shown.start.max(shown.pruned)..shown.messages.len();
    let results = places.filter(|place| shown.messages[*place].role == Role::Tool);
    let tokens = results.map(|place| meter.roughly().message(&shown.messages[place]));
    tokens.fold(0, u64::saturating_add) > protect.saturating_add(*min_gain)
}

/// A view under construction.
struct Plan<'a> {
    meter: Meter<'a>,
    shown: Shown<'a>,
    change: Change,
    /// The tokens of each sent message, as it is sent.
    sizes: Vec<u64>,
    /// The messages whose sent form changes.
    changed: BTreeSet<usize>,
    newest_of_user: Option<usize>,
    keeper: Keeper<'a>,
    overhead: u64,
    limit: u64,
    last_group: usize,
}

impl<'a> Plan<'a> {
    fn new(
        meter: Meter<'a>,
        shown: Shown<'a>,
        view: ContextView,
        size: u64,
        overhead: u64,
        limit: u64,
    ) -> Self {
        let sizes =
            (shown.start..shown.messages.len()).map(|place| meter.message(&shown.at(place))).collect();
        let change = Change { view, before: size, after: size, dropped: 0, pins_left_out: 0 };
        let (last_group, newest_of_user) = (shown.last_group(), shown.newest_of_user());
        let (changed, keeper) = (BTreeSet::new(), Keeper::new(meter, shown.messages));
        Self { meter, keeper, shown, change, sizes, changed, newest_of_user, overhead, limit, last_group }
    }

    fn size(&self, place: usize) -> u64 {
        self.sizes[place - self.shown.start]
    }

    /// Returns the tool results from `from` to `to`.
    fn results(&self, from: usize, to: usize) -> Vec<usize> {
        let is_result = |place: &usize| self.shown.messages[*place].role == Role::Tool;
        (from.max(self.shown.start)..to).filter(is_result).collect()
    }

    /// Replaces results if that gains enough.
    fn replace(
        &mut self,
        places: &[usize],
        min_gain: u64,
        show: impl Fn(&Shown<'a>, usize) -> Message,
    ) -> bool {
        let sizes = places.iter().map(|place| (*place, self.meter.message(&show(&self.shown, *place))));
        let smaller: Vec<(usize, u64)> = sizes.filter(|(place, size)| *size < self.size(*place)).collect();
        let gain: u64 = smaller.iter().map(|(place, size)| self.size(*place) - size).sum();
        if smaller.is_empty() || gain < min_gain {
            return false;
        }
        self.change.after = self.change.after.saturating_sub(gain);
        for (place, size) in smaller {
            self.changed.insert(place);
            self.sizes[place - self.shown.start] = size;
        }
        self.change.dropped = self.changed.len();
        true
    }

    /// Omits the media of the results before `to`.
    fn leave_out_media(&mut self, to: usize) {
        let places = self.results(self.shown.without_media, to);
        if self.replace(&places, 1, |shown, place| shown.bare(place)) {
            self.shown.without_media = to;
            self.change.view.without_media = self.shown.messages[to - 1].id.clone();
        }
    }

    /// Truncates the results before `to`.
    fn shorten(&mut self, to: usize, min_gain: u64) {
        let places = self.results(self.shown.shortened, to);
        if self.replace(&places, min_gain, |shown, place| shown.cut(place)) {
            self.shown.shortened = to;
            self.change.view.shortened = self.shown.messages[to - 1].id.clone();
        }
    }

    /// Reduces old results to their first line.
    fn prune(&mut self, protect: u64, min_gain: u64, protect_turns: u32) {
        let (mut turns, mut tokens, mut to) = (0, 0u64, 0);
        for place in (self.shown.start..self.shown.messages.len()).rev() {
            let message = &self.shown.messages[place];
            turns += u32::from(is_of_user(message));
            if message.role != Role::Tool || turns < protect_turns {
                continue;
            }
            tokens = tokens.saturating_add(self.size(place));
            // The model has not read the newest results yet.
            if tokens > protect && place < self.last_group {
                to = place + 1;
                break;
            }
        }
        let places = self.results(self.shown.pruned, to);
        if self.replace(&places, min_gain, |shown, place| shown.stub(place)) {
            self.shown.pruned = to;
            self.change.view.pruned = self.shown.messages[to - 1].id.clone();
        }
    }

    /// Plans a summary of all but the newest messages, if it has a gain.
    fn consolidate(&self, keep_recent: usize, target: u64, prompt: &str) -> Option<Consolidation> {
        let wanted = self.shown.messages.len().saturating_sub(keep_recent);
        let fits = |start: usize| self.overhead.saturating_add(self.rest(start)) <= target;
        let start = self.begin(wanted, fits)?;
        let conversation = conversation_text(&self.shown, start, self.newest_user_before(start));
        let (mut change, _) = self.begun_at(start);
        let summary = change.view.summary.take().map_or(0, |summary| self.meter.summary(&summary));
        change.after = change.after.saturating_sub(summary);
        let can_gain = is_gain(change.before, change.after, self.meter.config.breaker.min_gain);
        can_gain.then(|| Consolidation { change, conversation, prompt: prompt.to_owned() })
    }

    /// Omits all but the newest messages. Retains more of them than requested rather than split a group.
    fn snip(&mut self, keep_last: usize) {
        let wanted = self.shown.messages.len().saturating_sub(keep_last);
        let mut places = (self.shown.start + 1..=wanted.min(self.last_group)).rev();
        if let Some(start) = places.find(|place| self.shown.may_begin(*place)) {
            self.begin_at(start);
        }
    }

    /// Omits as many messages as necessary. The summary stays if there is space for it.
    fn snip_to_fit(&mut self) {
        if let Some(start) = self.begin(self.shown.start + 1, |start| self.fits(start)) {
            self.begin_at(start);
        }
        if self.change.after > self.limit
            && let Some(summary) = self.change.view.summary.take()
        {
            self.change.after = self.change.after.saturating_sub(self.meter.summary(&summary));
        }
    }

    /// Returns whether the request fits if it starts at `start`.
    fn fits(&self, start: usize) -> bool {
        let summary = self.change.view.summary.as_deref().map_or(0, |summary| self.meter.summary(summary));
        self.overhead.saturating_add(summary).saturating_add(self.rest(start)) <= self.limit
    }

    /// Starts the request at `start`.
    fn begin_at(&mut self, start: usize) {
        (self.change, self.changed) = self.begun_at(start);
        // Later reductions gain nothing from what is not sent.
        self.sizes.drain(..start - self.shown.start);
        self.shown.kept = self.newest_user_before(start);
        self.shown.start = start;
    }

    /// Returns the first valid start from `wanted` on that `fits`; otherwise the last valid one.
    fn begin(&self, wanted: usize, fits: impl Fn(usize) -> bool) -> Option<usize> {
        let from = wanted.clamp(self.shown.start + 1, self.last_group.max(self.shown.start + 1));
        let mut places =
            (from..=self.last_group).filter(|place| self.shown.may_begin(*place)).collect::<Vec<_>>();
        let last = places.pop()?;
        Some(places.into_iter().find(|place| fits(*place)).unwrap_or(last))
    }

    /// Returns the tokens of the sent conversation from `start` on, with the texts that stay of the messages before it.
    fn rest(&self, start: usize) -> u64 {
        let kept =
            self.newest_user_before(start).map_or(0, |kept| self.meter.message(&self.shown.messages[kept]));
        let carried = self.carried(self.keeper.text(start, self.newest_user_before(start)).as_deref());
        let kept = kept.saturating_add(carried);
        (start..self.shown.messages.len()).map(|place| self.size(place)).fold(kept, u64::saturating_add)
    }

    fn carried(&self, text: Option<&str>) -> u64 {
        text.map_or(0, |text| self.meter.carried(text))
    }

    /// Returns the newest user message, if it is before `start`.
    fn newest_user_before(&self, start: usize) -> Option<usize> {
        self.newest_of_user.filter(|newest| *newest < start)
    }

    /// Returns the view that starts at `start`, and the messages whose sent form changes.
    fn begun_at(&self, start: usize) -> (Change, BTreeSet<usize>) {
        let (messages, kept) = (self.shown.messages, self.newest_user_before(start));
        let mut change = self.change.clone();
        let was_kept = self.shown.kept.filter(|was| Some(*was) != kept);
        let gone = (self.shown.start..start).filter(|place| Some(*place) != kept).chain(was_kept);
        let mut changed = self.changed.clone();
        for place in gone {
            let size = match place.checked_sub(self.shown.start) {
                Some(at) => self.sizes[at],
                None => self.meter.message(&messages[place]),
            };
            change.after = change.after.saturating_sub(size);
            changed.insert(place);
        }
        let was_carried = self.carried(change.view.carried.as_deref());
        change.view.carried = self.keeper.text(start, kept);
        let carried = self.carried(change.view.carried.as_deref());
        change.after = change.after.saturating_sub(was_carried).saturating_add(carried);
        change.pins_left_out = self.keeper.pins_left_out();
        change.dropped = changed.len();
        change.view.start = messages[start].id.clone();
        change.view.kept = kept.map(|kept| messages[kept].id.clone()).unwrap_or_default();
        (change, changed)
    }
}

impl Consolidation {
    // Some providers reject messages with calls in a request without tools.
    /// Creates the summary request. It offers no tools and contains the conversation as text, so that the model
    /// does not follow instructions in it.
    pub(crate) fn request(&self) -> Request {
        let Consolidation { prompt, conversation, .. } = self;
        let mut text = conversation.clone();
        if prompt == CONSOLIDATE {
            text.push_str("\n\n");
            text.push_str(SUMMARIZE_NOW);
        }
        Request { messages: vec![Message::system(prompt), Message::user(text)], ..Request::default() }
    }

    /// Returns the view with the summary; `None` if it does not gain enough.
    pub(crate) fn with(self, summary: &str, meter: Meter<'_>) -> Option<Change> {
        let mut change = self.change;
        change.after = change.after.saturating_add(meter.summary(summary));
        change.view.summary = Some(summary.to_owned());
        is_gain(change.before, change.after, meter.config.breaker.min_gain).then_some(change)
    }
}

// A view that just fits is too large again after the next message, and every change costs the provider's prompt cache.
fn is_gain(before: u64, after: u64, min_gain: f64) -> bool {
    before.saturating_sub(after) >= share(before, min_gain).max(1)
}
