//! Fake nodes that do what real ones cannot be made to do: be slow, silent, wrong or gone in the
//! middle of a frame.

mod broken;
mod limited;
mod prepared;
mod shared;
mod tls;
