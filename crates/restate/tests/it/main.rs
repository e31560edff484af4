//! Tests of threads on Restate.

use std::sync::Arc;

use superstep_restate::internal::{MemoryObjects, in_memory};
use superstep_testing::conformance;

conformance!(
    checkpointer memory,
    place = Some(Arc::<MemoryObjects>::default()),
    open = async |objects: &Arc<MemoryObjects>| in_memory(objects),
);
