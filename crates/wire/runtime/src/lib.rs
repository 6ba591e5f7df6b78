//! What every server of Evenkeel has: a clock, timers, listeners, limits, certificates, metrics.
//!
//! No protocol and no decision is here.
//!
//! | room | does |
//! |---|---|
//! | [`accept`] | clients: accepted, limited in number and time, told to leave; a worker's runtime |
//! | [`bucket`] | how fast: a bound on what a peer may ask for |
//! | [`buffers`] | what may be buffered for the clients of a process |
//! | [`component`] | the parts of a process: what each runs, how each takes another configuration |
//! | [`datagrams`] | UDP, read no faster than a bound |
//! | [`files`] | the limit of open files, and what of it clients may have |
//! | [`limits`] | what one worker allows its clients and itself, with the keys of the config |
//! | [`dial`] | connections to servers, by address, name or path |
//! | [`clock`] | core's instants on the machine's clock, or on a test's virtual time |
//! | [`networks`] | networks of peers that are believed |
//! | [`timer`] | wake-ups within microseconds, for hedges |
//! | [`stream`] | a connection, whatever carries it |
//! | [`tls`] | encryption on either side: keys of the config, files that change |
//! | [`pipe`] | long bodies from socket to socket, without a copy |
//! | [`pem`] | certificates and private keys from files |
//! | [`metrics`] | the registry of metrics, and their text formats |

pub mod accept;
pub mod bucket;
pub mod buffers;
pub mod clock;
pub mod component;
pub mod datagrams;
pub mod dial;
pub mod files;
pub mod limits;
pub mod metrics;
pub mod networks;
pub mod pem;
pub mod pipe;
pub mod stream;
pub mod timer;
pub mod tls;
