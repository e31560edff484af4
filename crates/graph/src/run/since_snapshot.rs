//! The interval between the snapshots of a thread.

use superstep_state::Snapshot;

use crate::CheckpointId;

/// The amount of data stored since the last snapshot, which decides when the next one is due.
///
/// Every commit is counted, when it is made and when it is loaded, so that a later run decides equally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SinceSnapshot {
    commits: usize,
    /// The number of commits that folded updates: all except inputs and forks.
    folded: usize,
    bytes: usize,
    /// The size of the last snapshot, or of the largest commit if that is more: the next one is hardly
    /// smaller.
    snapshot_bytes: usize,
    /// `true` if the commit counted last is to have a snapshot.
    is_due: bool,
    /// The weight at which the last snapshot was due, and was not worth its size.
    tried: usize,
}

impl SinceSnapshot {
    /// The minimum number of commits between two snapshots.
    const EVERY: usize = 50;
    /// The factor between the size of a snapshot and the amount of data stored without one. Snapshots then
    /// cost a constant share of each commit, for any length of the history. The updates of a state that only
    /// grows are as good as a snapshot: such a state seldom has one.
    const WEIGHT: usize = 4;
    /// The size of a snapshot that is always worth storing when it is due.
    const SMALL: usize = 16 << 10;
    /// The cost of folding one commit at a load, in bytes that take the same time.
    const COMMIT_BYTES: usize = 256;

    /// Counts a commit, its size, and whether it `folded` updates.
    pub(crate) fn count(&mut self, folded: bool, update_bytes: usize) {
        self.commits += 1;
        self.folded += usize::from(folded);
        self.bytes += update_bytes;
        self.snapshot_bytes = self.snapshot_bytes.max(update_bytes);
        // The size of the state is only known from a snapshot. Unused ones get rarer, so that they cost a
        // constant share as well.
        self.is_due = folded
            && self.commits >= Self::EVERY
            && self.outweighs(self.snapshot_bytes)
            && self.weight() >= self.tried + self.tried / 2;
        if self.is_due {
            self.tried = self.weight();
        }
    }

    /// Returns whether a snapshot is due with the last commit.
    pub(crate) fn is_due(&self) -> bool {
        self.is_due
    }

    /// Returns whether `every` commits, or more, folded updates.
    pub(crate) fn has_folded(&self, every: usize) -> bool {
        self.folded >= every.max(1)
    }

    /// Returns whether a typed snapshot, whose size is unknown, is due with the checkpoint `id`. Their distance grows with
    /// the square root of the length of the thread, so that neither their number nor the work of a load grows like it.
    pub(crate) fn is_far(&self, id: CheckpointId) -> bool {
        self.commits >= Self::EVERY && (self.commits as u64).pow(2) >= id.0 * Self::EVERY as u64
    }

    /// Returns the maximum size of a due snapshot that is worth it, in bytes.
    pub(crate) fn worth(&self) -> usize {
        Self::SMALL.max(self.weight() / Self::WEIGHT)
    }

    fn outweighs(&self, snapshot_bytes: usize) -> bool {
        self.weight() >= snapshot_bytes * Self::WEIGHT
    }

    fn weight(&self) -> usize {
        self.bytes + self.commits * Self::COMMIT_BYTES
    }

    /// Returns an upper bound of the size of the state as JSON.
    pub(crate) fn state_bytes(self) -> usize {
        self.bytes + self.snapshot_bytes
    }

    /// Counts from a snapshot on.
    pub(crate) fn taken(snapshot: &Snapshot) -> Self {
        Self { snapshot_bytes: snapshot.bytes(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use superstep_state::ChannelValue;

    use super::*;

    /// Returns the numbers of commits after which there are snapshots, for updates of `update` bytes and
    /// states of the given sizes.
    fn snapshots(commits: usize, update: usize, state: impl Fn(usize) -> usize) -> Vec<usize> {
        let mut since = SinceSnapshot::default();
        let mut taken = Vec::new();
        for commit in 1..=commits {
            since.count(true, update);
            if since.is_due() {
                let value = ChannelValue { channel: "c".into(), json: "0".repeat(state(commit)).into() };
                let snapshot = Snapshot::from(vec![value]);
                if snapshot.bytes() <= since.worth() {
                    since = SinceSnapshot::taken(&snapshot);
                    taken.push(commit);
                }
            }
        }
        taken
    }

    #[test]
    fn an_overwritten_state_has_snapshots_and_a_growing_one_has_none() {
        assert_eq!(snapshots(200, 1_000, |_| 1_000), [50, 100, 150, 200]);
        assert!(snapshots(10_000, 1_000, |commit| commit * 1_000).is_empty());
    }

    #[test]
    fn typed_snapshots_become_rarer_like_the_square_root_of_the_length() {
        let (mut since, mut taken) = (SinceSnapshot::default(), Vec::new());
        for id in 1..=10_000 {
            since.count(true, 0);
            if since.is_far(CheckpointId(id)) {
                since = SinceSnapshot::default();
                taken.push(id);
            }
        }
        let longest = taken.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(taken[0] == 50 && taken.len() < 40 && longest < 800, "{taken:?}");
    }

    #[test]
    fn a_load_folds_a_few_times_the_size_of_the_state() {
        let taken = snapshots(10_000, 100, |commit| 100_000 + commit);
        let steps = taken.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(taken[0] <= 1_800 && steps <= 1_800, "{taken:?}");
    }

    #[test]
    fn useless_snapshots_become_rarer() {
        let mut since = SinceSnapshot::default();
        let due = (0..100_000).filter(|_| {
            since.count(true, 1_000);
            since.is_due()
        });
        assert!(due.count() < 30);
    }
}
