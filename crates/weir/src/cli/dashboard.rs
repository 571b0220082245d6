//! Arguments of `weir dashboard`.

use clap::Args;

use crate::http::ListenAddress;

/// Arguments of `weir dashboard`.
#[derive(Debug, Args)]
pub struct DashboardArguments {
    /// Where to serve the page
    ///
    /// A port, which is then on 127.0.0.1, or an IP address and a port, such as [::1]:9337. Port 0 is any that is free; the
    /// command prints which.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9337")]
    pub listen: ListenAddress,
}
