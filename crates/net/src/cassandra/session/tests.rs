//! Conversations without sockets.
