//! Drawings of a graph.
