//! The servers' addresses, as `tools/servers.sh env` prints them, and their programs.

use std::path::PathBuf;
use std::process::Command;

use crate::error::{BenchError, Tried};

/// A variable that must be set.
pub fn variable(name: &str) -> Result<String, BenchError> {
    std::env::var(name).map_err(|_| BenchError::Variable { name: name.to_owned() })
}

/// The folder of a server's programs. `name` as `tools/servers.sh` has it.
pub fn programs(name: &str) -> Result<PathBuf, BenchError> {
    let tool = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/servers.sh");
    let output = Command::new(tool).args(["bin", name]).output().tried(tool)?;
    if !output.status.success() {
        return Err(BenchError::Program {
            program: format!("{tool} bin {name}"),
            status: output.status.to_string(),
            output: String::from_utf8_lossy(&output.stderr).into_owned(),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().into())
}

/// The parts of `scheme://user:password@host:port/database`.
#[derive(Debug, Clone)]
pub struct Address {
    pub user: String,
    pub password: String,
    pub host: String,
    pub port: String,
    scheme: String,
}

impl Address {
    pub fn parse(url: &str) -> Result<Self, BenchError> {
        let parts = || {
            let (scheme, rest) = url.split_once("://")?;
            let (account, rest) = rest.split_once('@')?;
            let (user, password) = account.split_once(':')?;
            let (host, port) = rest.split('/').next()?.split_once(':')?;
            Some(Self {
                user: user.to_owned(),
                password: password.to_owned(),
                host: host.to_owned(),
                port: port.to_owned(),
                scheme: scheme.to_owned(),
            })
        };
        parts().ok_or_else(|| BenchError::Address { url: url.to_owned() })
    }

    /// As a URL of this database.
    pub fn url(&self, database: &str) -> String {
        let Self {
            scheme,
            user,
            password,
            host,
            port,
        } = self;
        format!("{scheme}://{user}:{password}@{host}:{port}/{database}")
    }
}
