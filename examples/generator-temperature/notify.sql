-- The critical readings, as requests to the pager of whoever is on call; pipeline.sql writes all
-- alerts to files.
CREATE TABLE readings (ts TIMESTAMP, generator STRING, sensor INT, celsius DOUBLE)
USING csv OPTIONS ('path' = 'input', 'header' = 'true', 'mode' = 'DROPMALFORMED');

-- In earnest: an https:// URL, 'bearerToken' = '${env:PAGER_TOKEN}' or 'signingSecret'.
-- Leave `trigger` out to run for ever.
CREATE TABLE on_call USING webhook
OPTIONS ('url' = 'http://127.0.0.1:8080/on-call', 'trigger' = 'availableNow');

CREATE FLOW too_hot AS INSERT INTO on_call
SELECT concat('Generator ', generator, ' has ', celsius, ' degrees') AS text, ts, sensor
FROM STREAM readings
WHERE celsius >= 110;
