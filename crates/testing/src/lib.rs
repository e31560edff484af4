//! Transcripts, scripted models and conformance suites for superstep.
