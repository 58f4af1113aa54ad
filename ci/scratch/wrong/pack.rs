//~ `Account` is not `Pack`, so `Packed` cannot hold it
//~ write `impl Pack for Account {}`
use polyserve::identifiable;
use polyserve::memory::Packed;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Account {
    name: String,
}
identifiable!(Account, name: String);

fn main() {
    let _ = Packed::of::<Account>();
}
