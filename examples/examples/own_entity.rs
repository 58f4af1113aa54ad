//! An entity type of your own, with a text as its id, in a store and behind a server of this project.
//!
//! ```sh
//! cargo run --release --example own_entity
//! curl -i -X PUT http://127.0.0.1:8001/accounts -d '{"name":"a b","balance":7}'
//! curl -i http://127.0.0.1:8001/accounts/a%20b
//! ```

use polyserve::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Account {
    name: String,
    balance: i64,
}

impl Identifiable for Account {
    type Id = String;
    type View<'a> = &'a Self;

    fn id(&self) -> &String {
        &self.name
    }
    fn view(&self) -> &Self {
        self
    }
    fn from_view(view: &Self) -> Self {
        view.clone()
    }
}

fn main() -> anyhow::Result<()> {
    let accounts = EntityService::new(Sharded::of::<Account>()).at("/accounts");
    let server = PoolServer::mpsc(ServerConfig::default())?;
    println!("{}", server.serve_until_signal("127.0.0.1:8001", accounts)?);
    Ok(())
}
