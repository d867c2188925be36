-- Log lines of all services, one JSON object a line.
-- From Kafka: USING kafka OPTIONS ('kafka.bootstrap.servers' = 'localhost:9092',
--                                  'subscribe' = 'logs', 'value.format' = 'json')
CREATE TABLE logs (service STRING, ts TIMESTAMP, level STRING, message STRING)
USING json OPTIONS ('path' = 'input');

-- To Kafka: USING kafka OPTIONS ('kafka.bootstrap.servers' = 'localhost:9092', 'topic' = 'alerts')
-- and the columns below as to_json(struct(...)) AS value. Leave `trigger` out to run for ever.
CREATE TABLE alerts USING json OPTIONS ('path' = 'alerts', 'trigger' = 'availableNow');

-- An alert must not be the next leak, so digits that look like a number of either kind are
-- replaced before it leaves.
CREATE FLOW pii AS INSERT INTO alerts
SELECT service, ts,
       CASE WHEN message RLIKE '\\b[0-9]{3}-[0-9]{2}-[0-9]{4}\\b' THEN 'social security number'
            ELSE 'card number' END AS leak,
       regexp_replace(message, '[0-9]{3}-[0-9]{2}-[0-9]{4}|([0-9]{4}[ -]?){3}[0-9]{4}', '###')
         AS message
FROM STREAM logs
WHERE message RLIKE '\\b[0-9]{3}-[0-9]{2}-[0-9]{4}\\b'
   OR message RLIKE '\\b([0-9]{4}[ -]?){3}[0-9]{4}\\b';
