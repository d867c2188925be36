-- The same alerts, as mails to whoever owns the service; pipeline.sql writes them to files.
CREATE TABLE logs (service STRING, ts TIMESTAMP, level STRING, message STRING)
USING json OPTIONS ('path' = 'input');

CREATE TABLE owners (service STRING, address STRING)
USING csv OPTIONS ('path' = 'owners.csv', 'header' = 'true');

-- In earnest: leave `security` out, for TLS, and add 'user' and 'password' = '${env:MAIL_PASSWORD}'.
-- Leave `trigger` out to run for ever.
CREATE TABLE mails USING email
OPTIONS ('host' = '127.0.0.1', 'port' = '8025', 'security' = 'none',
         'from' = 'Leaks <leaks@example.com>', 'toColumn' = 'address',
         'subject' = 'A {leak} in the log of {service}', 'text' = '{ts}\n{message}',
         'trigger' = 'availableNow');

-- A service that nobody owns is the business of the security department.
CREATE FLOW pii AS INSERT INTO mails
SELECT coalesce(owners.address, 'security@example.com') AS address, logs.service, ts,
       CASE WHEN message RLIKE '\\b[0-9]{3}-[0-9]{2}-[0-9]{4}\\b' THEN 'social security number'
            ELSE 'card number' END AS leak,
       regexp_replace(message, '[0-9]{3}-[0-9]{2}-[0-9]{4}|([0-9]{4}[ -]?){3}[0-9]{4}', '###')
         AS message
FROM STREAM logs LEFT JOIN owners ON logs.service = owners.service
WHERE message RLIKE '\\b[0-9]{3}-[0-9]{2}-[0-9]{4}\\b'
   OR message RLIKE '\\b([0-9]{4}[ -]?){3}[0-9]{4}\\b';
