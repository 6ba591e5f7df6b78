//! The ring beside Cassandra's own classes (see `ring/README.md`), and through random changes.

#[path = "ring/changes.rs"]
mod changes;
#[path = "ring/reference.rs"]
mod reference;
#[path = "ring/travels.rs"]
mod travels;
