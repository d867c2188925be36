use object_store::ObjectStore;
use object_store::memory::InMemory;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use url::Url;

use super::*;

/// A task that the node cannot run.
#[derive(Debug)]
struct Nothing;

impl fmt::Display for Nothing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing")
    }
}

#[async_trait]
impl QueryStageExecutor for Nothing {
    async fn execute_query_stage(
        &self,
        _: usize,
        _: Arc<TaskContext>,
    ) -> Result<Vec<ShuffleWritePartition>> {
        Ok(Vec::new())
    }

    fn collect_plan_metrics(&self) -> Vec<MetricsSet> {
        Vec::new()
    }
}

/// A task of the runner at `address`, whose answer may be spilled to `memory:///place`.
fn task(env: &Env, runtime: &Arc<RuntimeEnv>, address: String) -> RemoteTask {
    let runners = Runners {
        addresses: vec![RunnerAddress::Http(address)],
        security: Security::default(),
        inline_bytes_max: Some(1),
        reached: Reached::default(),
    };
    let transport = Transport::new(env.clone(), &runners.addresses, Security::default());
    let shared = Shared {
        env: env.clone(),
        runners,
        transport: transport.expect("no function is among them"),
        inbox: Arc::default(),
        runtime: Arc::clone(runtime),
        sweeps: Sweeps::default(),
        next: AtomicUsize::default(),
        room_here: Semaphore::new(1),
        siblings: Siblings::default(),
        counts: Arc::default(),
    };
    RemoteTask {
        shared: Arc::new(shared),
        attempts: 1,
        patience: Duration::from_secs(60),
        spill: Some("memory:///place".to_owned()),
        header: TaskHeader {
            job: "job".to_owned(),
            stage: 1,
            task: 1,
            partitions: Vec::new(),
            proxy: None,
            settings: Vec::new(),
            paths: ResultPaths::default(),
        },
        plan: Bytes::new(),
        directory: std::env::temp_dir(),
        here: Arc::new(Nothing),
        metrics: Mutex::default(),
    }
}

#[tokio::test]
async fn an_attempt_that_was_refused_leaves_no_search_for_its_answer() {
    let env = Env::real();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let refusing = env.spawn("full-runner", async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let _ = stream.read(&mut [0; 4096]).await;
        let answer = b"HTTP/1.1 429 Too Many\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.expect("it reads");
    });
    let (runtime, store) = (Arc::new(RuntimeEnv::default()), Arc::new(InMemory::new()));
    let (url, registered) = (Url::parse("memory:///"), Arc::clone(&store));
    runtime.register_object_store(&url.expect("a URL"), registered as Arc<dyn ObjectStore>);
    let task = task(&env, &runtime, address);
    let refused = task.attempt().await.expect_err("there is no room");
    assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    refusing.join().await;
    let refused = task.attempt().await.expect_err("nobody listens any more");
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    // What looks for spilled answers has the store; so has, for a moment, what sweeps it.
    for _ in 0..100 {
        if Arc::strong_count(&store) == 2 {
            return;
        }
        env.sleep(Duration::from_millis(20)).await;
    }
    panic!("the store is in use {} times", Arc::strong_count(&store));
}
