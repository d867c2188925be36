//! Checkpoints as the protocol library reads them, with the commits below them gone.

mod care;
mod crashes;
mod histories;
mod layouts;
mod steady;
mod stores;
mod table;
