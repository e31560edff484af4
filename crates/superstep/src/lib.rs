//! An explicit state-graph workflow engine with a ReAct agent as its first citizen.
