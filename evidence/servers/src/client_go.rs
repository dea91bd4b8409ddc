//! A candidate of client-go, whose sources are in `evidence/servers/client-go`.

use crate::built::{BuildError, OwnProgram};
use std::path::PathBuf;

/// Its version is that of Kubernetes 1.36.3.
const PROGRAM: OwnProgram = OwnProgram {
    name: "client-go",
    files: &[
        ("go.mod", include_str!("../client-go/go.mod")),
        ("go.sum", include_str!("../client-go/go.sum")),
        ("main.go", include_str!("../client-go/main.go")),
    ],
};

/// Its version, for people.
pub const VERSION: &str = "client-go 0.36.3";

/// Returns the program, and builds it first unless it was built before.
///
/// # Errors
/// See [`BuildError`].
pub fn program() -> Result<PathBuf, BuildError> {
    PROGRAM.build()
}
