//! Queries on a cluster: Apache Ballista's scheduler and executors, and runners that lend a hand.
//!
//! A client plans a query as it would for itself and submits the physical plan to the
//! [`coordinator`], which cuts it into stages and stages into tasks, a partition each. A [`node`]
//! takes tasks as it has room for them. It registers twice: once for tasks that it runs itself, and
//! once for tasks that it hands to a [`runner`], an HTTP server or a Lambda function. Which tasks
//! go where is [`routing`]'s decision, stage by stage.
//!
//! A runner is given one task of one stage ([`task`]), talks to the node that owns the task and to
//! the object store, and gives back the files that the task's shuffle consists of
//! ([`remote`]). To the scheduler such a task is like any other: it is repeated when it fails, and
//! its output is on the node. Answers may be long. They go from files to files ([`answer`]), and
//! where the way back has a limit they are pushed to the node ([`push`]) or spilled to the object
//! store ([`spill`]).

pub mod answer;
pub mod auto;
pub mod client;
pub mod codec;
mod connect;
mod connections;
mod control;
pub mod coordinator;
mod ending;
pub mod error;
mod http;
pub mod in_process;
pub mod lambda;
mod leases;
mod listen;
mod metrics;
pub mod node;
pub mod output;
mod placement;
mod polling;
pub mod push;
pub mod remote;
pub mod routing;
pub mod runner;
pub mod security;
mod seen;
pub mod settings;
pub mod spill;
pub mod stage;
mod sweep;
pub mod task;
pub mod tls;
pub mod transport;
