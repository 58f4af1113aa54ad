//! The sizes of the answers of repos and services, which every call moves, and of a connection.
#![forbid(unsafe_code)]

use std::mem::size_of;

use polyserve_core::{Answer, Lookup, Put, Removed, Reply, RepoAnswer};
use polyserve_serving::Connection;
use polyserve_serving::http1::Session;

const _: () = assert!(size_of::<RepoAnswer<Lookup>>() <= 40);
const _: () = assert!(size_of::<RepoAnswer<Put>>() <= 24);
const _: () = assert!(size_of::<RepoAnswer<Removed>>() <= 24);

#[test]
fn the_sizes_are_what_the_docs_say() {
    assert_eq!(size_of::<RepoAnswer<Lookup>>(), 40);
    println!("Answer<Reply>: {} bytes, Session: {} bytes", size_of::<Answer<Reply>>(), size_of::<Session>());
    // An idle connection is these, its entry in the table, and a socket.
    assert_eq!(size_of::<Session>(), 168);
    assert_eq!(size_of::<Connection>(), 232);
    assert_eq!(size_of::<Answer<Reply>>(), 112);
}
