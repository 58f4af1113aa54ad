//! Servers whose connections are tasks of an async runtime.
