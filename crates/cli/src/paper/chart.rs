//! Line charts as SVG: a line and an interval band for each policy.

pub(super) fn placeholder() {}
