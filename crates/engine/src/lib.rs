//! The deterministic control plane of superstep: topology, plan, apply, retries.
