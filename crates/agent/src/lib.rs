//! The ReAct agent graph of superstep.
