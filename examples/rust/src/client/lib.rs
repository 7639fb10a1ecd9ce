//! Connects to a cluster as docs/clients.md says, and repeats what may be repeated: the programs in src/bin see no error while a
//! node fails.

mod connection;
mod exchange;
mod failure;
mod member;
mod options;
mod producer;
mod reader;
mod transactions;

pub use connection::connect;
pub use failure::Failure;
pub use member::{Member, Polled};
pub use options::{Options, stopped};
pub use producer::Producer;
pub use reader::read_to_end;
pub use transactions::{Ended, Transactions};

/// Generated from proto/streamlog/v1.
#[allow(clippy::all)]
pub mod v1 {
    tonic::include_proto!("streamlog.v1");
}
