//! HTTP/1.1: the engine that moves messages, and the proxy that decides where they go.

pub mod brownout;
pub mod engine;
pub mod orca;
pub mod proxy;
pub mod redirected;
pub mod route;
