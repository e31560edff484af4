//! Limits for images and audio of tool results.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use superstep_llm::media::Media;

/// The limits for storing and sending images and audio of tool results. The text names the number of omitted
/// ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MediaConfig {
    /// Maximum number stored per tool result: the first ones.
    pub per_result: usize,
    /// Maximum number of bytes stored per tool result.
    pub result_bytes: usize,
    /// Maximum number per request. If exceeded, the older half is no longer sent, so that later requests have
    /// the same prefix.
    pub per_request: usize,
    /// Maximum number of media bytes per request.
    pub request_bytes: usize,
}

impl Default for MediaConfig {
    /// Returns 8 with 5 MiB per result, and 16 with 16 MiB per request.
    fn default() -> Self {
        Self { per_result: 8, result_bytes: 5 << 20, per_request: 16, request_bytes: 16 << 20 }
    }
}

impl MediaConfig {
    /// Returns the media of one result to store, and a text for the model about the omitted ones.
    pub(crate) fn of_result(&self, mut media: Vec<Media>) -> (Vec<Media>, Option<String>) {
        let Self { per_result, result_bytes, .. } = *self;
        let (all, mut left) = (media.len(), result_bytes);
        media.retain(|one| match left.checked_sub(one.bytes()) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        });
        media.truncate(per_result);
        let out = all - media.len();
        let note = format!(
            "[{out} of {all} images, audio clips or files left out: a result may have {per_result} with {result_bytes} bytes]"
        );
        (media, (out > 0).then_some(note))
    }

    /// Returns the range of media to send, given their sizes: the newest ones.
    pub(crate) fn of_request(&self, sizes: &[usize]) -> Range<usize> {
        let Self { per_request, request_bytes, .. } = *self;
        let (mut sent, mut bytes) = (0..0, 0usize);
        for (at, size) in sizes.iter().enumerate() {
            sent.end = at + 1;
            bytes = bytes.saturating_add(*size);
            let is_over =
                |sent: &Range<usize>, bytes: usize| sent.len() > per_request || bytes > request_bytes;
            // Omitting many at once is better than one with each request.
            let is_half = |sent: &Range<usize>, bytes: usize| {
                sent.len() <= per_request.div_ceil(2) && bytes <= request_bytes / 2
            };
            if is_over(&sent, bytes) {
                while is_over(&sent, bytes) || (sent.len() > 1 && !is_half(&sent, bytes)) {
                    bytes -= sizes[sent.start];
                    sent.start += 1;
                }
            }
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gif(bytes: usize) -> Media {
        // Three bytes are four characters.
        Media::new("image/gif", format!("R0lGODlh{}", "AAAA".repeat(bytes / 3 - 2))).unwrap()
    }

    #[test]
    fn of_a_result_the_first_stay_for_which_there_is_space() {
        let config = MediaConfig { per_result: 2, result_bytes: 30, ..MediaConfig::default() };
        let (stored, note) = config.of_result(vec![gif(12), gif(30), gif(15), gif(6)]);
        assert_eq!(stored, [gif(12), gif(15)]);
        let wanted = "[2 of 4 images, audio clips or files left out: a result may have 2 with 30 bytes]";
        assert_eq!(note.as_deref(), Some(wanted));
        assert_eq!(config.of_result(vec![gif(15), gif(15)]), (vec![gif(15), gif(15)], None));
    }

    #[test]
    fn of_a_request_the_older_half_goes_when_there_are_too_many() {
        let config = MediaConfig { per_request: 4, request_bytes: 100, ..MediaConfig::default() };
        let counts = [0, 4, 5, 7, 8].map(|n| config.of_request(&vec![1; n]));
        assert_eq!(counts, [0..0, 0..4, 3..5, 3..7, 6..8]);
        let sizes = [[50, 50], [50, 51], [50, 101], [101, 1]].map(|sizes| config.of_request(&sizes));
        assert_eq!(sizes, [0..2, 1..2, 2..2, 1..2]);
        let of = |per_request| MediaConfig { per_request, ..config.clone() }.of_request(&[1, 1]);
        assert_eq!([of(0), of(1)], [2..2, 1..2]);
    }
}
