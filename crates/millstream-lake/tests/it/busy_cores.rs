//! A store that answers while all cores wait for what is read from it.

use std::sync::mpsc::channel;
use std::time::Duration;

use millstream_lake::store::TableStore;
use millstream_store::env::Env;

use crate::proxy_store::{Control, Fate, ProxyStore};

#[test]
fn a_store_is_read_while_each_core_waits_for_it() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("file"), "content").expect("it is writable");
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().expect("a runtime");
    let env = {
        let _inside = runtime.enter();
        Env::real()
    };
    let control = std::sync::Arc::new(Control::default());
    control.decide(|_, _| Fate::ByATask);
    let store = TableStore::parse(&directory.path().display().to_string(), &env).expect("a path");
    let store = store.wrapped(|inner| std::sync::Arc::new(ProxyStore { inner, control }));

    let (busy, (read, waits)) = (channel(), channel());
    let (give_up, given_up) = channel::<()>();
    let waiting = env.spawn_on_cores("waits", async move {
        busy.0.send(()).expect("somebody waits for it");
        let got = waits.recv();
        drop(given_up);
        got
    });
    busy.1.recv().expect("the only core is busy");
    let (answer, answered) = channel();
    let reading = env.thread("reads", move || {
        let _ = answer.send(store.get("file"));
    });
    let found = answered.recv_timeout(Duration::from_secs(20));
    // Lets the core go, so that the test ends one way or the other.
    read.send(()).expect("it waits");
    drop(give_up);
    drop(reading);
    runtime.block_on(waiting.join()).expect("it was let go");
    let found = found.expect("nothing was read while the core was busy").expect("the file");
    assert_eq!(found, "content");
}
