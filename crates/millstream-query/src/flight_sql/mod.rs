//! Arrow Flight SQL, by which JDBC, ADBC and other tools query the tables of a coordinator.
//!
//! 1. A client asks for a query's columns and gets a ticket, which holds the query's text.
//! 2. With the ticket it asks for the rows ([`answers`]), which come as it reads them.
//!
//! A prepared statement is its text, too, and there are no sessions: settings stand in front of a
//! query ([`statement`]). So the server keeps nothing for a client that goes away, and a ticket is
//! good as long as the tables are there.
//!
//! A query runs on the nodes of the cluster, if there are any and they can run it; otherwise in
//! this process.

mod about;
mod answers;
mod front;
mod statement;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::sql::server::{FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::{
    ActionCancelQueryRequest, ActionCancelQueryResult, ActionClosePreparedStatementRequest,
    ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult, Any,
    CommandGetCatalogs, CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys,
    CommandGetImportedKeys, CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTableTypes,
    CommandGetTables, CommandGetXdbcTypeInfo, CommandPreparedStatementQuery,
    CommandPreparedStatementUpdate, CommandStatementQuery, CommandStatementUpdate,
    DoPutPreparedStatementResult, ProstMessageExt, SqlInfo, TicketStatementQuery,
};
use arrow_flight::{
    Action, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightDescriptor,
    FlightEndpoint, FlightInfo, HandshakeRequest, HandshakeResponse, Ticket,
};
use bytes::Bytes;
use futures::stream::{self, StreamExt as _};
use millstream_store::env::Env;
use prost::Message as _;
use tonic::metadata::MetadataValue;
use tonic::service::Routes;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Response, Status, Streaming};

use crate::cluster::in_process::InProcess;
use crate::cluster::security::Security;
use crate::session::QuerySession;
use answers::{Answers, Encoded, Id, Plans, encoded};
use front::Front;
use statement::{Planned, plan, status};

/// The largest request: a query's text, and a little more.
const REQUEST_BYTES_MAX: usize = 4 << 20;
/// The action of clients that cancel by the answer to their question for a query.
const CANCEL_FLIGHT_INFO: &str = "CancelFlightInfo";
/// What clients get as token where none is asked for; some insist on one.
const NO_TOKEN: &str = "none";

/// Queries for clients of Flight SQL.
pub struct FlightSql {
    here: QuerySession,
    nodes: Option<Nodes>,
    security: Security,
    plans: Plans,
    answers: Answers,
}

/// The cluster that runs queries.
struct Nodes {
    coordinator: Arc<InProcess>,
    /// As the other one, but on its nodes.
    session: QuerySession,
}

impl fmt::Debug for FlightSql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlightSql")
    }
}

/// The columns and the ticket of a command that is answered at once.
fn info_of(
    command: &impl ProstMessageExt,
    schema: &Schema,
    request: Request<FlightDescriptor>,
) -> Result<Response<FlightInfo>, Status> {
    info(command.as_any().encode_to_vec().into(), schema, request.into_inner())
}

fn info(
    ticket: Bytes,
    schema: &Schema,
    descriptor: FlightDescriptor,
) -> Result<Response<FlightInfo>, Status> {
    let endpoint = FlightEndpoint::new().with_ticket(Ticket { ticket });
    let info = FlightInfo::new().with_endpoint(endpoint).with_descriptor(descriptor);
    let info = info.try_with_schema(schema);
    Ok(Response::new(info.map_err(|error| Status::internal(error.to_string()))?))
}

fn rows(rows: RecordBatch) -> Result<Response<Encoded>, Status> {
    let schema = rows.schema();
    Ok(Response::new(encoded(schema, stream::iter([Ok(rows)]).boxed())))
}

fn no_rows(schema: SchemaRef) -> Result<Response<Encoded>, Status> {
    rows(RecordBatch::new_empty(schema))
}

fn text(bytes: &[u8]) -> Result<String, Status> {
    let text = std::str::from_utf8(bytes).map(str::to_owned);
    text.map_err(|_| Status::invalid_argument("this is no statement of this server"))
}

/// A ticket's name and its query's text, as bytes.
fn handle(id: Id, text: &str) -> Bytes {
    [&id.to_be_bytes()[..], text.as_bytes()].concat().into()
}

fn parsed(handle: &[u8]) -> Result<(Id, String), Status> {
    let wrong = || Status::invalid_argument("this is no ticket of this server");
    let (id, rest) = handle.split_first_chunk().ok_or_else(wrong)?;
    Ok((Id::from_be_bytes(*id), text(rest).map_err(|_| wrong())?))
}

const WRITES_NOTHING: &str = "a query writes nothing; flows write: millstream run";

impl FlightSql {
    /// Queries over the tables of `here`, on the nodes of `coordinator` if there is one.
    pub fn new(
        env: &Env,
        here: QuerySession,
        coordinator: Option<InProcess>,
        security: Security,
    ) -> Self {
        let nodes = coordinator.map(|coordinator| {
            let (mut session, coordinator) = (here.clone(), Arc::new(coordinator));
            session.run_in(Arc::clone(&coordinator), &security);
            Nodes { coordinator, session }
        });
        let (plans, answers) = (Plans::new(env.clone()), Answers::new(env.clone()));
        Self { here, nodes, security, plans, answers }
    }

    /// The service, which asks for the token.
    pub fn routes(self) -> Routes {
        let guard = self.security.guard();
        let service =
            FlightServiceServer::new(Front(self)).max_decoding_message_size(REQUEST_BYTES_MAX);
        Routes::new(InterceptedService::new(service, guard))
    }

    async fn plan(&self, text: &str) -> Result<Planned, Status> {
        let failed = |error| status(&error, text);
        if let Some(nodes) = self.nodes.as_ref().filter(|nodes| nodes.coordinator.has_nodes()) {
            let planned = plan(&nodes.session, text).await.map_err(failed)?;
            if planned.is_for_nodes() {
                return Ok(planned);
            }
        }
        plan(&self.here, text).await.map_err(failed)
    }

    async fn ticket(
        &self,
        text: &str,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let planned = self.plan(text).await?;
        let schema = planned.schema();
        let statement_handle = handle(self.plans.keep(planned), text);
        info_of(&TicketStatementQuery { statement_handle }, &schema, request)
    }

    /// Ends the query that `info` was given for, whether it runs or waits.
    fn cancel(&self, info: &FlightInfo) -> Result<bool, Status> {
        let mut is_known = false;
        for ticket in info.endpoint.iter().filter_map(|endpoint| endpoint.ticket.as_ref()) {
            let wrong = |_| Status::invalid_argument("this is no ticket of this server");
            let ticket = Any::decode(&*ticket.ticket).map_err(wrong)?;
            let unpacked = ticket.unpack::<TicketStatementQuery>();
            let query = unpacked.map_err(|error| Status::invalid_argument(error.to_string()))?;
            let Some(query) = query else { continue };
            let (id, _) = parsed(&query.statement_handle)?;
            is_known |= self.plans.take(id).is_some();
            is_known |= self.answers.cancel(id);
        }
        Ok(is_known)
    }
}

type Handshakes = Pin<Box<dyn stream::Stream<Item = Result<HandshakeResponse, Status>> + Send>>;

#[tonic::async_trait]
impl FlightSqlService for FlightSql {
    type FlightService = Self;

    async fn do_handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Handshakes>, Status> {
        // Whoever comes here has shown the token, as a password for example.
        let bearer = self.security.authorization();
        let bearer = bearer.unwrap_or_else(|| format!("Bearer {NO_TOKEN}"));
        let payload = bearer.trim_start_matches("Bearer ").to_owned().into();
        let given = Ok(HandshakeResponse { protocol_version: 0, payload });
        let mut response: Response<Handshakes> = Response::new(Box::pin(stream::iter([given])));
        let value = MetadataValue::try_from(bearer);
        let mut value = value.map_err(|error| Status::internal(error.to_string()))?;
        value.set_sensitive(true);
        response.metadata_mut().insert("authorization", value);
        Ok(response)
    }

    async fn get_flight_info_statement(
        &self,
        query: CommandStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.ticket(&query.query, request).await
    }

    async fn get_flight_info_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.ticket(&text(&query.prepared_statement_handle)?, request).await
    }

    async fn do_get_statement(
        &self,
        ticket: TicketStatementQuery,
        _: Request<Ticket>,
    ) -> Result<Response<Encoded>, Status> {
        let (id, text) = parsed(&ticket.statement_handle)?;
        let planned = match self.plans.take(id) {
            Some(planned) => planned,
            None => self.plan(&text).await?,
        };
        Ok(Response::new(self.answers.run(id, planned, text)?))
    }

    async fn do_action_create_prepared_statement(
        &self,
        query: ActionCreatePreparedStatementRequest,
        _: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let planned = self.plan(&query.query).await?;
        let schema = FlightInfo::new().try_with_schema(&planned.schema());
        let schema = schema.map_err(|error| Status::internal(error.to_string()))?;
        Ok(ActionCreatePreparedStatementResult {
            prepared_statement_handle: query.query.into(),
            dataset_schema: schema.schema,
            parameter_schema: Bytes::new(),
        })
    }

    async fn do_action_close_prepared_statement(
        &self,
        _: ActionClosePreparedStatementRequest,
        _: Request<Action>,
    ) -> Result<(), Status> {
        // There is nothing to be closed.
        Ok(())
    }

    async fn do_put_prepared_statement_query(
        &self,
        _: CommandPreparedStatementQuery,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<DoPutPreparedStatementResult, Status> {
        let mut parameters = request.into_inner();
        while let Some(part) = parameters.next().await {
            // The columns alone, of which there may be none, are no values.
            if !part?.data_body.is_empty() {
                return Err(Status::invalid_argument(
                    "a query has no parameters; write the value into the query",
                ));
            }
        }
        Ok(DoPutPreparedStatementResult { prepared_statement_handle: None })
    }

    async fn do_put_statement_update(
        &self,
        _: CommandStatementUpdate,
        _: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        Err(Status::invalid_argument(WRITES_NOTHING))
    }

    async fn do_put_prepared_statement_update(
        &self,
        _: CommandPreparedStatementUpdate,
        _: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        Err(Status::invalid_argument(WRITES_NOTHING))
    }

    async fn do_action_cancel_query(
        &self,
        query: ActionCancelQueryRequest,
        _: Request<Action>,
    ) -> Result<ActionCancelQueryResult, Status> {
        let info = FlightInfo::decode(&*query.info)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let result = if self.cancel(&info)? { CancelStatus::Cancelled } else { NOT_RUNNING };
        // The two enumerations have the same numbers.
        Ok(ActionCancelQueryResult { result: result as i32 })
    }

    async fn do_action_fallback(
        &self,
        request: Request<Action>,
    ) -> Result<Response<<Self as FlightService>::DoActionStream>, Status> {
        let action = request.into_inner();
        if action.r#type != CANCEL_FLIGHT_INFO {
            let problem = format!("there is no action {}", action.r#type);
            return Err(Status::unimplemented(problem));
        }
        let asked = CancelFlightInfoRequest::decode(&*action.body)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let info = asked.info.unwrap_or_default();
        let status = if self.cancel(&info)? { CancelStatus::Cancelled } else { NOT_RUNNING };
        let body = CancelFlightInfoResult { status: status as i32 }.encode_to_vec().into();
        Ok(Response::new(Box::pin(stream::iter([Ok(arrow_flight::Result { body })]))))
    }

    async fn get_flight_info_catalogs(
        &self,
        command: CommandGetCatalogs,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info_of(&command, &command.into_builder().schema(), request)
    }

    async fn do_get_catalogs(
        &self,
        command: CommandGetCatalogs,
        _: Request<Ticket>,
    ) -> Result<Response<Encoded>, Status> {
        rows(about::catalogs(command)?)
    }

    async fn get_flight_info_schemas(
        &self,
        command: CommandGetDbSchemas,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info_of(&command, &command.clone().into_builder().schema(), request)
    }

    async fn do_get_schemas(
        &self,
        command: CommandGetDbSchemas,
        _: Request<Ticket>,
    ) -> Result<Response<Encoded>, Status> {
        rows(about::schemas(command)?)
    }

    async fn get_flight_info_tables(
        &self,
        command: CommandGetTables,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info_of(&command, &command.clone().into_builder().schema(), request)
    }

    async fn do_get_tables(
        &self,
        command: CommandGetTables,
        _: Request<Ticket>,
    ) -> Result<Response<Encoded>, Status> {
        rows(about::tables(command, self.here.catalog())?)
    }

    async fn get_flight_info_table_types(
        &self,
        command: CommandGetTableTypes,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info_of(&command, &command.into_builder().schema(), request)
    }

    async fn do_get_table_types(
        &self,
        command: CommandGetTableTypes,
        _: Request<Ticket>,
    ) -> Result<Response<Encoded>, Status> {
        rows(about::table_types(command)?)
    }

    async fn get_flight_info_sql_info(
        &self,
        command: CommandGetSqlInfo,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info_of(&command, &command.clone().into_builder(&about::INFO).schema(), request)
    }

    async fn do_get_sql_info(
        &self,
        command: CommandGetSqlInfo,
        _: Request<Ticket>,
    ) -> Result<Response<Encoded>, Status> {
        let info = command.into_builder(&about::INFO).build();
        rows(info.map_err(|error| Status::internal(error.to_string()))?)
    }

    async fn get_flight_info_xdbc_type_info(
        &self,
        command: CommandGetXdbcTypeInfo,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info_of(&command, &command.into_builder(&about::TYPES).schema(), request)
    }

    async fn do_get_xdbc_type_info(
        &self,
        command: CommandGetXdbcTypeInfo,
        _: Request<Ticket>,
    ) -> Result<Response<Encoded>, Status> {
        let types = command.into_builder(&about::TYPES).build();
        rows(types.map_err(|error| Status::internal(error.to_string()))?)
    }

    async fn get_flight_info_primary_keys(
        &self,
        command: CommandGetPrimaryKeys,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info_of(&command, &about::primary_keys(), request)
    }

    async fn do_get_primary_keys(
        &self,
        _: CommandGetPrimaryKeys,
        _: Request<Ticket>,
    ) -> Result<Response<Encoded>, Status> {
        no_rows(about::primary_keys())
    }

    async fn get_flight_info_exported_keys(
        &self,
        command: CommandGetExportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info_of(&command, &about::foreign_keys(), request)
    }

    async fn do_get_exported_keys(
        &self,
        _: CommandGetExportedKeys,
        _: Request<Ticket>,
    ) -> Result<Response<Encoded>, Status> {
        no_rows(about::foreign_keys())
    }

    async fn get_flight_info_imported_keys(
        &self,
        command: CommandGetImportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info_of(&command, &about::foreign_keys(), request)
    }

    async fn do_get_imported_keys(
        &self,
        _: CommandGetImportedKeys,
        _: Request<Ticket>,
    ) -> Result<Response<Encoded>, Status> {
        no_rows(about::foreign_keys())
    }

    async fn get_flight_info_cross_reference(
        &self,
        command: CommandGetCrossReference,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info_of(&command, &about::foreign_keys(), request)
    }

    async fn do_get_cross_reference(
        &self,
        _: CommandGetCrossReference,
        _: Request<Ticket>,
    ) -> Result<Response<Encoded>, Status> {
        no_rows(about::foreign_keys())
    }

    async fn register_sql_info(&self, _: i32, _: &SqlInfo) {
        // What is known of the server does not change.
    }
}

/// The answer to a client that cancels a query which is done or unknown.
const NOT_RUNNING: CancelStatus = CancelStatus::NotCancellable;
