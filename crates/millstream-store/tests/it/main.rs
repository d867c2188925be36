//! The checkpoint as a whole: golden scripts over both storages, and what text cannot show.

mod checkpoint;
mod cost;
mod faulty_store;
mod golden;
mod killed;
mod overlap;
mod sample;
mod script;
