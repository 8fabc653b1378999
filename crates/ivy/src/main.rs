//! The gateway alone, in front of remote replicas.

fn main() {}
