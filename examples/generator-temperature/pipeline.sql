-- Readings of all generators, one line of CSV each. A sensor that has lost its footing sends
-- lines that are no readings.
-- From Kafka: USING kafka OPTIONS ('kafka.bootstrap.servers' = 'localhost:9092',
--                                  'subscribe' = 'readings', 'value.format' = 'csv',
--                                  'mode' = 'DROPMALFORMED')
CREATE TABLE readings (ts TIMESTAMP, generator STRING, sensor INT, celsius DOUBLE)
USING csv OPTIONS ('path' = 'input', 'header' = 'true', 'mode' = 'DROPMALFORMED');

-- To Kafka: USING kafka OPTIONS ('kafka.bootstrap.servers' = 'localhost:9092', 'topic' = 'alerts')
-- and the columns below as to_json(struct(...)) AS value. Leave `trigger` out to run for ever.
CREATE TABLE alerts
USING csv OPTIONS ('path' = 'alerts', 'header' = 'false', 'trigger' = 'availableNow');

CREATE FLOW too_hot AS INSERT INTO alerts
SELECT ts, generator, sensor, celsius,
       CASE WHEN celsius >= 110 THEN 'critical' ELSE 'warning' END AS severity
FROM STREAM readings
WHERE celsius > 95;
