//! Article C on smol, the named successor of async-std. It is no published listing, but ours, and is not judged. Each connection is a task.
//! It uses smol's timer, and smol's file API, which reads on a separate thread pool.
//!
//! As in async-std, the main thread accepts connections and the workers run the tasks.

use std::future::pending;
use std::{io, thread};

use polyserve_twins::page::{PageFlags, answer};
use polyserve_twins::{announce, answered};
use smol::io::{AsyncReadExt as _, AsyncWriteExt as _};
use smol::net::{TcpListener, TcpStream};
use smol::{Executor, Timer};

fn main() -> io::Result<()> {
    let (args, page) = PageFlags::read()?;
    let executor: &'static Executor<'_> = Box::leak(Box::new(Executor::new()));
    for _ in 0..args.workers {
        thread::spawn(|| smol::block_on(executor.run(pending::<()>())));
    }
    smol::block_on(async {
        let listener = TcpListener::bind(args.listen).await?;
        announce(&mut io::stdout(), listener.local_addr()?)?;
        let mut count = 0;
        loop {
            let (stream, _) = listener.accept().await?;
            count += 1;
            let nth = count;
            let serve = async move {
                let _ = serve(stream, nth, page).await; // the client has disconnected
            };
            executor.spawn(serve).detach();
        }
    })
}

async fn serve(mut stream: TcpStream, nth: u64, page: &PageFlags) -> io::Result<()> {
    let mut request = [0; 1024];
    let length = stream.read(&mut request).await?;
    if let Some(wait) = page.wait(nth) {
        Timer::after(wait).await;
    }
    let content = smol::fs::read(&page.file).await?;
    stream.write_all(&answer(&request[..length], &content)).await?;
    answered();
    Ok(())
}
