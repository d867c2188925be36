//! Queries here and on a cluster, over real files.

mod ansi_off;
mod faulty;
mod flight_sql;
mod functions;
mod lake;
mod local;
mod remote;
mod security;
mod settings_of_spark;
mod time_zones;
mod variables;
