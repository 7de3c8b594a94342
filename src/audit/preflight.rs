//! Whether what a pipeline writes down of its events can be written where its file says.

use std::path::Path;

use crate::config::{Dispatches, Pipeline};
use crate::preflight::{Finding, Needs, Place};

use super::files::beside;

/// Looks at the places, and makes nothing there.
pub(crate) fn preflight(pipeline: &Pipeline, state_dir: &Path) -> Vec<Finding> {
    let ledger = pipeline.audit.as_ref().map(|audit| Place {
        what: "audit ledger",
        path: state_dir.join(&audit.path),
        opened_with: vec![beside(&state_dir.join(&audit.path), "lock")],
        key: "`path` of spec.audit",
        // Its lock, and the files that become full.
        needs: Needs::FilesBeside,
    });
    let dispatches = match &pipeline.dispatches {
        Some(Dispatches::File(path)) => Some(Place {
            what: "dispatch records",
            path: state_dir.join(path),
            key: "`path` of spec.dispatches",
            needs: Needs::FileAndFolder,
            opened_with: Vec::new(),
        }),
        Some(Dispatches::Stdout | Dispatches::Otlp { .. }) | None => None,
    };
    ledger.iter().chain(&dispatches).map(Place::look).collect()
}
