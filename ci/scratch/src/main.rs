//! Serves the repo, asks the server once, and drains it.

use std::io::{Read, Write};
use std::net::TcpStream;

use polyserve::prelude::*;
use scratch::Tree;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = PoolServer::mpsc(ServerConfig::default())?;
    let running = server.serve("127.0.0.1:0", EntityService::new(Tree::default()))?;

    let mut client = TcpStream::connect(running.local_addr())?;
    client.write_all(
        b"PUT / HTTP/1.1\r\nHost: me\r\nConnection: close\r\nContent-Length: 39\r\n\r\n{\"id\":7,\"description\":\"d\",\"value\":0.25}",
    )?;
    let mut answer = String::new();
    client.read_to_string(&mut answer)?;
    assert!(answer.starts_with("HTTP/1.1 201 Created\r\n"), "{answer}");

    let drain = running.shutdown()?;
    assert_eq!((drain.answered, drain.cut, drain.stuck), (1, 0, 0));
    println!("served a repo of one's own: {drain}");
    Ok(())
}
