-- Log lines of four services, made from a counter: 20,000 a second, one in 11,000 with a leak.
-- From Kafka: CREATE TABLE logs (ts TIMESTAMP, service STRING, message STRING) USING kafka
--             OPTIONS ('kafka.bootstrap.servers' = 'localhost:9092', 'subscribe' = 'logs');
CREATE TABLE ticks USING rate OPTIONS ('rowsPerSecond' = '20000');

CREATE TEMPORARY VIEW logs AS
SELECT timestamp AS ts,
       CASE value % 4 WHEN 0 THEN 'web' WHEN 1 THEN 'payments' WHEN 2 THEN 'search'
                      ELSE 'mail' END AS service,
       CASE WHEN value % 19997 = 4711
            THEN concat('new customer, SSN 9', CAST(10 + value % 89 AS STRING), '-',
                        CAST(10 + value % 83 AS STRING), '-', CAST(1000 + value % 8999 AS STRING))
            WHEN value % 24989 = 8128
            THEN concat('charge refused, card 4000 0000 0000 ', CAST(1000 + value % 8999 AS STRING))
            ELSE concat('GET /cart/', CAST(value % 977 AS STRING), ' 200')
       END AS message
FROM STREAM ticks;

-- Written as JSON lines, each alert exactly once.
-- commitInterval 0: an alert is in a file at once; by default a file collects the rows of seconds.
CREATE TABLE leaks USING json
OPTIONS ('path' = 'leaks', 'checkpointLocation' = 'checkpoints/pii',
         'commitInterval' = '0');

CREATE FLOW pii AS INSERT INTO leaks
SELECT ts, service, message
FROM logs
WHERE message RLIKE '[0-9]{3}-[0-9]{2}-[0-9]{4}'
   OR message RLIKE '([0-9]{4}[ -]?){3}[0-9]{4}';
