-- Readings of 50 generators, made from a counter: 5,000 a second, one in 5,003 too hot.
CREATE TABLE ticks USING rate OPTIONS ('rowsPerSecond' = '5000');

CREATE TEMPORARY VIEW readings AS
SELECT timestamp AS ts,
       concat('generator-', CAST(value % 50 AS STRING)) AS generator,
       round(60 + CAST(value * 7919 % 1000 AS DOUBLE) / 40
               + CASE WHEN value % 5003 = 2357 THEN 36 ELSE 0 END, 1) AS celsius
FROM STREAM ticks;

-- commitInterval 0: an alert is in a file at once; by default a file collects the rows of seconds.
CREATE TABLE too_hot USING json
OPTIONS ('path' = 'too_hot', 'checkpointLocation' = 'checkpoints/temperature',
         'commitInterval' = '0');

CREATE FLOW temperature AS INSERT INTO too_hot
SELECT ts, generator, celsius, 'above 95 degrees' AS reason
FROM readings
WHERE celsius > 95;
