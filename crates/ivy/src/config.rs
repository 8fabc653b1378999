//! Options of the gateway, checked before a port is bound.
