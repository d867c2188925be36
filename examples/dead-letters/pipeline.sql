-- Readings of sensors, some of which send nonsense.
CREATE TABLE sensors (sensor STRING NOT NULL, celsius DOUBLE)
USING json OPTIONS ('path' = 'input', 'deadLetter' = 'bad');

-- What cannot be decoded or cannot be right, with the reason. Without columns it would have all
-- that is known of a letter; into Delta it would be CREATE TABLE bad USING delta LOCATION 'bad'.
CREATE TABLE bad (payload STRING, error STRING, constraint_name STRING)
USING json OPTIONS ('path' = 'bad');

-- Leave `trigger` out to run for ever.
CREATE TABLE readings USING json OPTIONS ('path' = 'readings', 'trigger' = 'availableNow');

CREATE FLOW sorted COMMENT 'every record is a reading or a dead letter' (
  CONSTRAINT possible EXPECT (celsius BETWEEN -90 AND 60) ON VIOLATION DEAD LETTER,
  CONSTRAINT mild EXPECT (celsius < 40)
) AS INSERT INTO readings
SELECT sensor, celsius FROM STREAM sensors;
