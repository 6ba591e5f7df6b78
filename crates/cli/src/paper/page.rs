//! page
use evenkeel_sim::paper::PaperReport;
pub(super) fn page(_: &PaperReport) -> String { String::new() }
