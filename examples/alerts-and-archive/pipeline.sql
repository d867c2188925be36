-- Log lines of all services, one JSON object a line.
-- From Kafka: USING kafka OPTIONS ('kafka.bootstrap.servers' = 'localhost:9092',
--                                  'subscribe' = 'logs', 'value.format' = 'json')
CREATE TABLE logs (service STRING, ts TIMESTAMP, level STRING, message STRING)
USING json OPTIONS ('path' = 'input');

-- Who is called at night.
CREATE TABLE owners (service STRING, owner STRING)
USING csv OPTIONS ('path' = 'owners.csv', 'header' = 'true');

-- To Kafka: USING kafka OPTIONS ('kafka.bootstrap.servers' = 'localhost:9092', 'topic' = 'alerts')
-- and the columns below as to_json(struct(...)) AS value. Leave `trigger` out to run for ever.
CREATE TABLE alerts USING json OPTIONS ('path' = 'alerts', 'trigger' = 'availableNow');

-- Every row, for those who look for the reason; committed once a second.
CREATE TABLE archive USING delta LOCATION 'archive';

-- The logs are read once. An alert does not wait for the archive's commit.
CREATE FLOW watch AS
FROM STREAM logs LEFT JOIN owners ON logs.service = owners.service
INSERT INTO alerts
  SELECT logs.service, ts, owner, message WHERE level = 'FATAL'
INSERT INTO archive
  SELECT logs.service, ts, level, message, CAST(ts AS DATE) AS day;
