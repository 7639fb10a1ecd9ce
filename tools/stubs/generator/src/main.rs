//! generator PROTO OUT FILE...: the Rust code of proto files of folder PROTO, in folder OUT.

use std::{env, error::Error};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [proto, out, files @ ..] = arguments.as_slice() else {
        return Err("give PROTO OUT FILE...".into());
    };
    let descriptors = protox::compile(files, [proto])?;
    tonic_prost_build::configure()
        .build_server(false)
        .out_dir(out)
        .compile_fds(descriptors)?;
    Ok(())
}
