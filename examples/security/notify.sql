-- The same alerts, as requests to the security department's pager; pipeline.sql writes them to files.
CREATE TABLE access (
  ts TIMESTAMP, source STRING, user STRING, method STRING, path STRING, status INT, bytes BIGINT
)
USING json OPTIONS ('path' = 'input');

-- In earnest: an https:// URL, 'bearerToken' = '${env:PAGER_TOKEN}' or 'signingSecret'.
-- Leave `trigger` out to run for ever.
CREATE TABLE department USING webhook
OPTIONS ('url' = 'http://127.0.0.1:8080/security', 'trigger' = 'availableNow');

CREATE FLOW security AS INSERT INTO department
SELECT concat(CASE WHEN bytes > 50000000 THEN 'Traffic spike' ELSE 'Unauthorised access' END,
              ': ', user, ' from ', source, ', ', method, ' ', path) AS text,
       ts, status, bytes
FROM STREAM access
WHERE (status IN (401, 403) AND source NOT LIKE '10.%')
   OR bytes > 50000000;
