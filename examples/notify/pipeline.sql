-- Events of all elevators, one JSON object a line.
-- From Kafka: USING kafka OPTIONS ('kafka.bootstrap.servers' = 'localhost:9092',
--                                  'subscribe' = 'elevators', 'value.format' = 'json')
CREATE TABLE elevators (
  ts TIMESTAMP, building STRING, elevator INT, event STRING, floor INT
)
USING json OPTIONS ('path' = 'input');

CREATE TABLE buildings (building STRING, address STRING, guard STRING, telephone STRING)
USING csv OPTIONS ('path' = 'buildings.csv', 'header' = 'true');

-- The guards' pagers: a request for each emergency, in order. Leave `trigger` out to run for ever.
-- In earnest: an https:// URL, 'bearerToken' = '${env:PAGER_TOKEN}' or 'signingSecret'.
CREATE TABLE guards USING webhook
OPTIONS ('url' = 'http://127.0.0.1:8080/guards', 'trigger' = 'availableNow');

-- The supervisor's list: one request for all that came meanwhile.
CREATE TABLE supervisor USING webhook
OPTIONS ('url' = 'http://127.0.0.1:8080/supervisor', 'body' = 'array');

CREATE FLOW emergencies AS
FROM STREAM elevators AS e LEFT JOIN buildings AS b ON e.building = b.building
INSERT INTO guards
  SELECT concat('Elevator ', elevator, ', floor ', floor, ': ',
                coalesce(address, concat('building ', e.building))) AS text,
         guard, telephone
  WHERE event = 'emergency'
INSERT INTO supervisor
  SELECT ts, e.building, elevator, event, floor
  WHERE event IN ('emergency', 'overload');
