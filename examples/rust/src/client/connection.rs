use std::time::Duration;

use tonic::transport::{Channel, Endpoint};

use crate::Failure;

/// Takes the addresses of all nodes, separated by commas, and balances over those that are connected. A call that meets a failed
/// node is UNAVAILABLE at once; the loops of this crate repeat it, then it goes to another one. A node that was restarted is
/// connected again at the next call that is meant for it.
pub fn connect(servers: &str) -> Result<Channel, Failure> {
    let nodes = servers.split(',').map(node).collect::<Result<Vec<_>, _>>()?;
    Ok(Channel::balance_list(nodes.into_iter()))
}

fn node(address: &str) -> Result<Endpoint, Failure> {
    let uri = format!("http://{address}"); // https and tls_config for SSL:// listeners
    let endpoint =
        Endpoint::from_shared(uri).map_err(|error| Failure::new("INVALID_ADDRESS", format!("{address}: {error}")))?;
    Ok(endpoint
        .connect_timeout(Duration::from_secs(5))
        .http2_keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(5))
        .keep_alive_while_idle(true))
}
