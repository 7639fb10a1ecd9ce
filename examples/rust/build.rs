//! The code of proto/streamlog/v1, generated without protoc.

use std::{error::Error, fs};

const PROTO: &str = "../../proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTO}/streamlog/v1");
    let files = fs::read_dir(format!("{PROTO}/streamlog/v1"))?
        .map(|entry| entry.map(|file| file.path()))
        .collect::<Result<Vec<_>, _>>()?;
    tonic_prost_build::configure().build_server(false).compile_fds(protox::compile(files, [PROTO])?)?;
    Ok(())
}
