//! What is kept of every request, so that an operator can be told why one was slow.
//!
//! | part | does |
//! |---|---|
//! | [`event`] | what happens to a request |
//! | [`record`] | a request in fixed size: candidates, attempts, times, how it ended |
//! | [`recorder`] | fills one record while its request lasts |
//! | [`log`] | where each worker keeps its records: the last ones, and the remarkable ones |
//! | [`access`] | the access log: which requests, and the thread that writes |
//! | [`context`] | the trace that a request is part of |
//! | [`traces`] | traces: which requests, and the queue of those that have ended |
//! | [`exemplars`] | records for the histograms of latency |
//! | [`words`] | a record in words; [`shown`] the same as JSON |

pub mod access;
pub mod context;
pub mod event;
pub mod exemplars;
pub mod log;
pub mod record;
pub mod recorder;
pub mod shown;
pub mod traces;
mod wanted;
pub mod words;
