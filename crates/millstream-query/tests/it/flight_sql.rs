//! Flight SQL as the protocol has it: queries that are cancelled, abandoned, or too many.

use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::util::pretty::pretty_format_batches;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    Any, CommandGetTableTypes, CommandGetXdbcTypeInfo, CommandPreparedStatementQuery,
    CommandStatementQuery, ProstMessageExt as _,
};
use arrow_flight::{Action, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus};
use arrow_flight::{FlightDescriptor, FlightInfo, Ticket};
use futures::{StreamExt as _, TryStreamExt as _};
use millstream_query::cluster::coordinator::Coordinator;
use millstream_query::cluster::security::Security;
use millstream_query::flight_sql::FlightSql;
use millstream_query::setting_statements::TIME_ZONE;
use millstream_store::env::{Env, Task};
use prost::Message as _;
use tempfile::TempDir;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::lake::{answer, events, session};
use crate::remote::{QUERIES, listener};
use crate::security::{Setup, node_of};

type Client = FlightSqlServiceClient<Channel>;

/// More rows than any client reads.
const ENDLESS: &str = "SELECT a.id + b.id AS s FROM parquet.`events` a CROSS JOIN \
                       parquet.`events` b CROSS JOIN parquet.`events` c";

/// A coordinator with a table, and without nodes.
struct Served {
    lake: TempDir,
    address: String,
    serving: Task<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Served {
    async fn start(security: &Security) -> Self {
        let (env, lake, listener) = (Env::real(), events(), listener().await);
        let address = listener.local_addr().expect("an address");
        let coordinator = Coordinator::new(&env, address, security).await.expect("it starts");
        let nodes = coordinator.in_process(&env);
        let front = FlightSql::new(&env, session(lake.path()), Some(nodes), security.clone());
        let serving = async move {
            coordinator.serve(listener, Some(front.routes())).await.expect("it serves");
        };
        Self { lake, address: address.to_string(), serving: env.spawn("coordinator", serving) }
    }

    async fn client(&self) -> Client {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).expect("one");
        let mut client = Client::new(endpoint.connect().await.expect("it connects"));
        client.set_token("secret".to_owned());
        client
    }
}

fn ticket(info: &FlightInfo) -> Ticket {
    info.endpoint[0].ticket.clone().expect("it has a ticket")
}

async fn rows(client: &mut Client, text: &str) -> Result<FlightRecordBatchStream, FlightError> {
    let info = client.execute(text.to_owned(), None).await?;
    client.do_get(ticket(&info)).await
}

async fn drawn(client: &mut Client, text: &str) -> String {
    let rows = rows(client, text).await.expect("it is planned");
    let rows: Vec<RecordBatch> = rows.try_collect().await.expect("it runs");
    pretty_format_batches(&rows).expect("they can be drawn").to_string()
}

fn code(error: FlightError) -> Code {
    match error {
        FlightError::Tonic(status) => status.code(),
        other => panic!("{other}"),
    }
}

async fn cancel(client: &mut Client, info: &FlightInfo) -> CancelStatus {
    let body = CancelFlightInfoRequest { info: Some(info.clone()) }.encode_to_vec().into();
    let action = Action { r#type: "CancelFlightInfo".to_owned(), body };
    let mut answered = client.do_action(tonic::Request::new(action)).await.expect("it is known");
    let result = answered.message().await.expect("a result").expect("a result");
    CancelFlightInfoResult::decode(&*result.body).expect("it is one").status()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn queries_run_here_until_there_are_nodes() {
    let setup = Setup::new();
    let security = setup.security(Some("secret"), None);
    let served = Served::start(&security).await;
    let mut client = served.client().await;
    let here = session(served.lake.path());
    for text in QUERIES {
        let expected = answer(&here, text).await.expect("it runs here");
        assert_eq!(drawn(&mut client, text).await, expected, "{text}");
    }
    let node = node_of(&setup, &served.address, &security).await;
    let done = || node.counts.as_ref().expect("it has runners").here.load(Ordering::Relaxed);
    let one = "SET millstream.remote.stages = 'scan'; SELECT count(*) AS n FROM parquet.`events`";
    for _ in 0..100 {
        // Until the coordinator has heard of the node, it runs queries itself.
        drawn(&mut client, one).await;
        if done() > 0 {
            break;
        }
        Env::real().sleep(Duration::from_millis(100)).await;
    }
    for text in QUERIES {
        let (expected, before) = (answer(&here, text).await.expect("it runs here"), done());
        // There is no runner behind the node's address of one, so that the node does it itself.
        let remote = format!("SET millstream.remote.stages = 'scan'; {text}");
        assert_eq!(drawn(&mut client, &remote).await, expected, "{text}");
        assert!(done() > before, "{text}: it has not run on the node");
    }
    let zone = "Asia/Kolkata";
    let text = "SELECT date_format(timestamp_seconds(id * 60), 'yyyy-MM-dd HH:00 XXX') AS hour, \
                count(*) AS n FROM parquet.`events` \
                WHERE CAST(timestamp_seconds(id * 60) AS STRING) < '1970-01-01 08' \
                GROUP BY 1 ORDER BY 1";
    let (mut there, before) = (here.clone(), done());
    there.set(TIME_ZONE, zone).expect("there is such a zone");
    let expected = answer(&there, text).await.expect("it runs here");
    assert!(expected.contains("1970-01-01 05:00 +05:30 | 30"), "{expected}");
    let remote = format!("SET TIME ZONE '{zone}'; SET millstream.remote.stages = 'scan'; {text}");
    assert_eq!(drawn(&mut client, &remote).await, expected);
    assert!(done() > before, "it has not run on the node");
    let types = client.get_xdbc_type_info(CommandGetXdbcTypeInfo { data_type: None }).await;
    let types = client.do_get(ticket(&types.expect("it is known"))).await.expect("it is known");
    let types: Vec<RecordBatch> = types.try_collect().await.expect("they come");
    assert!(types.iter().map(RecordBatch::num_rows).sum::<usize>() > 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_columns_of_a_query_are_known_before_it_runs() {
    let served = Served::start(&Setup::new().security(Some("secret"), None)).await;
    let mut client = served.client().await;
    let prepared = client.prepare(ENDLESS.to_owned(), None).await.expect("it is planned");
    let expected = prepared.dataset_schema().expect("it has columns").clone();
    let mut columns = async |command: Any| {
        let descriptor = FlightDescriptor::new_cmd(command.encode_to_vec());
        let mut request = tonic::Request::new(descriptor);
        let token = "Bearer secret".parse().expect("a value");
        request.metadata_mut().insert("authorization", token);
        let answer = client.inner_mut().get_schema(request).await?.into_inner();
        Ok::<_, tonic::Status>(Schema::try_from(&answer).expect("columns"))
    };
    let of_query = |query: &str| {
        CommandStatementQuery { query: query.to_owned(), transaction_id: None }.as_any()
    };
    assert_eq!(columns(of_query(ENDLESS)).await.expect("it is planned"), expected);
    let prepared_statement_handle = ENDLESS.to_owned().into();
    let prepared = CommandPreparedStatementQuery { prepared_statement_handle };
    assert_eq!(columns(prepared.as_any()).await.expect("it is planned"), expected);
    let types = CommandGetTableTypes {};
    let types = columns(types.as_any()).await.expect("they are known");
    assert_eq!(types.field(0).name(), "table_type");
    let error = columns(of_query("SELECT nothing")).await.expect_err("there is no such column");
    assert_eq!(error.code(), Code::InvalidArgument);
    let error = columns(of_query("DESCRIBE nope")).await.expect_err("there is no such table");
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("nope"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cancelled_answer_is_never_taken_for_a_whole_one() {
    let served = Served::start(&Setup::new().security(Some("secret"), None)).await;
    let mut client = served.client().await;
    let info = client.execute(ENDLESS.to_owned(), None).await.expect("it is planned");
    let mut rows = client.do_get(ticket(&info)).await.expect("it begins");
    rows.next().await.expect("rows").expect("rows");
    assert_eq!(cancel(&mut client, &info).await, CancelStatus::Cancelled);
    let end = async {
        loop {
            match rows.next().await {
                Some(Ok(_)) => {}
                other => return other,
            }
        }
    };
    let error = end.await.expect("an answer without its end").expect_err("it was cancelled");
    assert_eq!(code(error), Code::Cancelled);
    assert_eq!(cancel(&mut client, &info).await, CancelStatus::NotCancellable);
    // A plan that nobody has asked for is cancelled as well.
    let info = client.execute("SELECT 1 AS a".to_owned(), None).await.expect("it is planned");
    assert_eq!(cancel(&mut client, &info).await, CancelStatus::Cancelled);
    assert_eq!(cancel(&mut client, &info).await, CancelStatus::NotCancellable);
    // Its ticket has the text, by which the query is planned again.
    let rows = client.do_get(ticket(&info)).await.expect("it is planned again");
    assert_eq!(rows.try_collect::<Vec<_>>().await.expect("it runs").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn answers_that_nobody_reads_are_limited_and_end_with_their_clients() {
    let served = Served::start(&Setup::new().security(Some("secret"), None)).await;
    // Each by a connection of its own: what is unread on one keeps all others on it waiting.
    let asked = async || {
        let mut client = served.client().await;
        rows(&mut client, ENDLESS).await.map(|rows| (client, rows))
    };
    let mut unread = Vec::new();
    let refused = loop {
        match asked().await {
            Ok(rows) => unread.push(rows),
            Err(error) => break error,
        }
        assert!(unread.len() < 1_000, "there is no limit");
    };
    assert!(refused.to_string().contains("too many queries run"), "{refused}");
    assert_eq!(unread.len(), 64);
    unread.clear();
    let again = async {
        while let Err(error) = asked().await {
            assert!(error.to_string().contains("too many queries run"), "{error}");
            Env::real().sleep(Duration::from_millis(50)).await;
        }
    };
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, again).await.expect("queries without clients end");
}
