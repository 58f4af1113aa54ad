//~ is not an `EntityRepo<Account>`
//~ a repo of your own type is made by `of`, such as `Sharded::of::<Account>()`
use std::collections::HashMap;

use polyserve::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Account {
    name: String,
}
identifiable!(Account, name: String);

fn store(_: impl EntityRepo<Account>) {}

fn main() {
    store(HashMap::<String, Account>::new());
}
