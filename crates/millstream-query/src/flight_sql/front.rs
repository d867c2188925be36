//! The service that clients connect to: [`FlightSql`], and `GetSchema`, which the library answers
//! with a refusal.

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::{Any, CommandPreparedStatementQuery, CommandStatementQuery};
use arrow_flight::{
    Action, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, PollInfo,
    SchemaResult, Ticket,
};
use prost::Message as _;
use tonic::{Request, Response, Status, Streaming};

use super::{FlightSql, text};

/// All requests of a client.
pub(super) struct Front(pub(super) FlightSql);

impl Front {
    /// The text of the query that `descriptor` is about, if it is about one.
    fn query(descriptor: &FlightDescriptor) -> Result<Option<String>, Status> {
        let wrong = |_| Status::invalid_argument("this is no command of Flight SQL");
        let command = Any::decode(&*descriptor.cmd).map_err(wrong)?;
        let failed = |error: arrow::error::ArrowError| Status::invalid_argument(error.to_string());
        if let Some(query) = command.unpack::<CommandStatementQuery>().map_err(failed)? {
            return Ok(Some(query.query));
        }
        let prepared = command.unpack::<CommandPreparedStatementQuery>().map_err(failed)?;
        prepared.map(|prepared| text(&prepared.prepared_statement_handle)).transpose()
    }
}

#[tonic::async_trait]
impl FlightService for Front {
    type HandshakeStream = <FlightSql as FlightService>::HandshakeStream;
    type ListFlightsStream = <FlightSql as FlightService>::ListFlightsStream;
    type DoGetStream = <FlightSql as FlightService>::DoGetStream;
    type DoPutStream = <FlightSql as FlightService>::DoPutStream;
    type DoExchangeStream = <FlightSql as FlightService>::DoExchangeStream;
    type DoActionStream = <FlightSql as FlightService>::DoActionStream;
    type ListActionsStream = <FlightSql as FlightService>::ListActionsStream;

    async fn get_schema(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<SchemaResult>, Status> {
        // Nobody fetches rows, so that the plan of a query does not wait for that.
        let info = match Self::query(request.get_ref())? {
            None => self.0.get_flight_info(request).await?.into_inner(),
            Some(text) => {
                let planned = self.0.plan(&text).await?;
                let info = FlightInfo::new().try_with_schema(&planned.schema());
                info.map_err(|error| Status::internal(error.to_string()))?
            }
        };
        Ok(Response::new(SchemaResult { schema: info.schema }))
    }

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        self.0.handshake(request).await
    }

    async fn list_flights(
        &self,
        request: Request<Criteria>,
    ) -> Result<Response<Self::ListFlightsStream>, Status> {
        self.0.list_flights(request).await
    }

    async fn get_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.0.get_flight_info(request).await
    }

    async fn poll_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<PollInfo>, Status> {
        self.0.poll_flight_info(request).await
    }

    async fn do_get(
        &self,
        request: Request<Ticket>,
    ) -> Result<Response<Self::DoGetStream>, Status> {
        self.0.do_get(request).await
    }

    async fn do_put(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoPutStream>, Status> {
        self.0.do_put(request).await
    }

    async fn do_exchange(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        self.0.do_exchange(request).await
    }

    async fn do_action(
        &self,
        request: Request<Action>,
    ) -> Result<Response<Self::DoActionStream>, Status> {
        self.0.do_action(request).await
    }

    async fn list_actions(
        &self,
        request: Request<Empty>,
    ) -> Result<Response<Self::ListActionsStream>, Status> {
        self.0.list_actions(request).await
    }
}
