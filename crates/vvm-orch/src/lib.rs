//! vvm-orch
