//! testing-time
