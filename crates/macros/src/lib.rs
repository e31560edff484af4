//! The derives of superstep: State and Route.
