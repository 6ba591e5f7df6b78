//! What the driver for Rust sees of a cluster.

fn main() {}
