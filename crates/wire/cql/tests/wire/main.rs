//! Cassandra's protocol as bytes: against what drivers' own encoders write, against itself cut at
//! random places, and against what no peer should send.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod common;
mod hostile;
mod java_driver;
mod python_driver;
mod round_trip;
