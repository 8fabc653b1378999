//! The checked-in code is what the contract generates today.
//!
//! After a change of the contract: `UPDATE=1 cargo test -p tulip-proto --test regenerate`.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use protox::prost::Message;

const PROTO: &str = "tulip/v1/tulip.proto";

fn compile(source_info: bool) -> Vec<u8> {
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../protos");
    let mut compiler = protox::Compiler::new([protos]).unwrap();
    compiler
        .include_imports(true)
        .include_source_info(source_info)
        .open_file(PROTO)
        .unwrap();
    compiler.encode_file_descriptor_set()
}

fn generate(out_dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut config = prost_build::Config::new();
    config.enable_type_names();
    let descriptors = Message::decode(&*compile(true)).unwrap();
    tonic_prost_build::configure()
        .out_dir(out_dir)
        .bytes(".")
        .codec_path("crate::codec::TulipCodec")
        .emit_rerun_if_changed(false)
        .compile_fds_with_config(descriptors, config)
        .unwrap();
    let code = fs::read(out_dir.join("tulip.v1.rs")).unwrap();
    // Reflection needs no comments.
    vec![
        ("tulip.v1.rs".into(), code),
        ("tulip.v1.binpb".into(), compile(false)),
    ]
}

#[test]
fn checked_in_code_is_current() {
    let out_dir = tempfile::tempdir().unwrap();
    let checked_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/generated");
    for (name, fresh) in generate(out_dir.path()) {
        let path = checked_in.join(&name);
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &fresh).unwrap();
        }
        let current = fs::read(&path).unwrap();
        assert!(
            current == fresh,
            "{} is stale: run with UPDATE=1",
            name.display()
        );
    }
}
