//! State graphs, reducers, checkpoints and the tokio driver of superstep.
