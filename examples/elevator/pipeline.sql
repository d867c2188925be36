-- Events of all elevators, one JSON object a line.
-- From Kafka: USING kafka OPTIONS ('kafka.bootstrap.servers' = 'localhost:9092',
--                                  'subscribe' = 'elevators', 'value.format' = 'json')
CREATE TABLE elevators (
  ts TIMESTAMP, building STRING, elevator INT, event STRING, floor INT
)
USING json OPTIONS ('path' = 'input');

-- Not read as a stream: the whole table, and again whenever the file changes.
-- In Redis, asked for the buildings that are needed: see redis.sql.
CREATE TABLE buildings (building STRING, address STRING, guard STRING, telephone STRING)
USING csv OPTIONS ('path' = 'buildings.csv', 'header' = 'true');

-- To Kafka: USING kafka OPTIONS ('kafka.bootstrap.servers' = 'localhost:9092', 'topic' = 'alerts')
-- and the columns below as to_json(struct(...)) AS value. Leave `trigger` out to run for ever.
CREATE TABLE alerts USING json OPTIONS ('path' = 'alerts', 'trigger' = 'availableNow');

-- LEFT JOIN: an alarm from a building that nobody has entered yet is still an alarm.
CREATE FLOW emergencies AS INSERT INTO alerts
SELECT e.ts, e.building, e.elevator, e.floor,
       coalesce(b.address, 'not in the building table') AS address, b.guard, b.telephone
FROM STREAM elevators AS e
LEFT JOIN buildings AS b ON e.building = b.building
WHERE e.event = 'emergency';
