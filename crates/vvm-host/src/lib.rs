//! vvm-host
