-- Requests of a web service, one JSON object a line.
-- From Kafka: USING kafka OPTIONS ('kafka.bootstrap.servers' = 'localhost:9092',
--                                  'subscribe' = 'access', 'value.format' = 'json')
CREATE TABLE access (
  ts TIMESTAMP, source STRING, user STRING, method STRING, path STRING, status INT, bytes BIGINT
)
USING json OPTIONS ('path' = 'input');

-- To Kafka: USING kafka OPTIONS ('kafka.bootstrap.servers' = 'localhost:9092', 'topic' = 'alerts')
-- and the columns below as to_json(struct(...)) AS value. Leave `trigger` out to run for ever.
CREATE TABLE alerts USING json OPTIONS ('path' = 'alerts', 'trigger' = 'availableNow');

CREATE FLOW security AS INSERT INTO alerts
SELECT ts,
       CASE WHEN bytes > 50000000 THEN 'traffic spike' ELSE 'unauthorised access' END AS reason,
       source, user, concat(method, ' ', path) AS request, status, bytes
FROM STREAM access
WHERE (status IN (401, 403) AND source NOT LIKE '10.%')
   OR bytes > 50000000;
