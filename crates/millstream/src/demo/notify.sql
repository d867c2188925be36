-- Sends each alert about personal data to a webhook, without the data: from the files that the flow
-- in pii.sql writes. Runs with: millstream demo --webhook URL
-- To run it again: millstream run notify.sql --set hook.url=URL
CREATE TABLE leaks (ts TIMESTAMP, service STRING, message STRING)
USING json OPTIONS ('path' = 'leaks', 'pollInterval' = '100ms');

CREATE TABLE hook USING webhook
OPTIONS ('url' = 'http://127.0.0.1:8080/', 'checkpointLocation' = 'checkpoints/notify');

CREATE FLOW notify AS INSERT INTO hook
SELECT concat('Personal data in the log of ', service) AS text, ts
FROM STREAM leaks;
